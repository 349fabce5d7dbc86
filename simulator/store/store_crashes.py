"""Every point of a short run at which a server may crash: around each transaction of its disk, each message,
each write of the metastore, and after each step.

The same run is counted first, and then run again with one crash at each point in turn. Up to the point both are
the same; from then on the server is gone, with all that it had not sent or stored, and comes back a bit later.
A transaction is there or not, as a whole: that is LMDB's promise, and assumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from rebalance.store.core.disk_changes import DiskChange
from rebalance.store.core.store_effects import SendServer, StoreEffect
from rebalance.store.core.store_inputs import StoreInput
from simulator.store.store_disk import SimulatedDisk
from simulator.store.store_run import LIMITS, StoreRun, StoreShape
from simulator.store.store_world import StoreProcess, StoreWorld

RETURN_MS = 400
SHORT = StoreShape(servers=3, partitions=1, copies=2, clients=2, keys=2, deletes=True, faults_ms=2_000)


class CrashPlace(Enum):
    """COMMIT: a transaction of the disk. SEND: a message to another server. CALL: what changes the metastore.
    STEP: an input that had effects; there is nothing before it that is not after another place."""

    COMMIT = "COMMIT"
    SEND = "SEND"
    CALL = "CALL"
    STEP = "STEP"


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The server's so-and-so many-th passage of the place, from 1, over all its incarnations."""

    server: str
    place: CrashPlace
    number: int
    after: bool


@dataclass
class CrashWorld(StoreWorld):
    """``passages``: how often each server has come to each place. ``happened``: the server has crashed."""

    point: CrashPoint | None = None
    happened: bool = False
    passages: Counter[tuple[str, CrashPlace]] = field(default_factory=Counter)

    def start(self, name: str) -> StoreProcess:
        self.disks.setdefault(name, _CrashDisk(self, name))
        return super().start(name)

    def sent(self, sender: StoreProcess, effect: SendServer) -> None:
        if sender.is_alive:
            self.passage(sender.name, CrashPlace.SEND, lambda: super(CrashWorld, self).sent(sender, effect))

    def call(self, process: StoreProcess, request: Callable[[], StoreInput | None]) -> None:
        if not process.is_alive:
            return

        def watched() -> StoreInput | None:
            """Watch a request: only a write is a place for a crash; a dead server's request that is on its way
            is carried out."""
            revision = self.metastore.revision
            answer = request()
            if self.metastore.revision > revision and process.is_alive:
                self.passage(process.name, CrashPlace.CALL, lambda: None)
            return answer

        super().call(process, watched)

    def stepped(self, process: StoreProcess, effects: list[StoreEffect]) -> None:
        super().stepped(process, effects)
        if effects and process.is_alive:
            self.passage(process.name, CrashPlace.STEP, lambda: None)

    def passage(self, name: str, place: CrashPlace, act: Callable[[], None]) -> None:
        """Does ``act``, unless the server crashes before it; a crash after it is one right after it."""
        self.passages[name, place] += 1
        here = [CrashPoint(name, place, self.passages[name, place], after) for after in (False, True)]
        is_due = self.point in here and not self.happened
        if not is_due or self.point == here[True]:
            act()
        if is_due:
            self._crash(name)

    def _crash(self, name: str) -> None:
        self.happened = True
        process = self.processes[name]
        process.kill()
        self.note(f"{name} crashes: {self.point}")
        self.time.after(RETURN_MS, lambda: self._restart(process))


class _CrashDisk(SimulatedDisk):
    def __init__(self, world: CrashWorld, name: str) -> None:
        super().__init__()
        self._world = world
        self._name = name

    def commit(self, changes: tuple[DiskChange, ...]) -> None:
        if self._world.processes[self._name].is_alive:
            commit = super().commit
            self._world.passage(self._name, CrashPlace.COMMIT, lambda: commit(changes))


class CrashRun(StoreRun):
    """A run that follows from its seed up to ``point``: servers join, a zone opens, copies move, a server is
    killed and comes back, while clients write. ``points``: those of the run, before it is left to rest."""

    def __init__(self, seed: int, point: CrashPoint | None = None, shape: StoreShape = SHORT) -> None:
        self.points: list[CrashPoint] = []
        self._crashes = CrashWorld(seed, LIMITS, point=point)
        super().__init__(seed, shape, self._crashes)

    @property
    def happened(self) -> bool:
        return self._crashes.happened

    def run(self) -> None:
        """Raises StoreRuleBrokenError."""
        world = self.world
        self.begin()
        world.time.run_until(world.time.now + 500)
        self.set_targets()
        world.time.run_until(world.time.now + 700)
        victim = self.names[self.seed % len(self.names)]
        world.kill(victim)
        world.time.after(RETURN_MS, lambda: self._return(victim))
        world.time.run_until(world.time.now + 1_500)
        self.points = list(_points(self._crashes.passages))
        self.rest()
        self.check()

    def _return(self, name: str) -> None:
        if not self.world.processes[name].is_alive:
            self.world.start(name)


def _points(passages: Counter[tuple[str, CrashPlace]]) -> Iterator[CrashPoint]:
    for (server, place), count in passages.items():
        for number in range(1, count + 1):
            if place in (CrashPlace.COMMIT, CrashPlace.SEND):
                yield CrashPoint(server, place, number, after=False)
            yield CrashPoint(server, place, number, after=True)
