"""Kinds of cut that strike a whole installation under load: what clients were told is recorded, and what the
installation shows of itself after the cut's end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.client.blocking import BlockingZoneClient
from app.client.zone_client import ZoneClient
from catalog.core.zone import ZoneId
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.records import MemberRole, Stage
from rebalance.groups.key_hash import partition_of
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.partition_view import Mirrors, NodePartitionView
from tests.cut_installation import CONTROLLER, NODES, SERVER, SITES, STORES, CutInstallation
from tests.cut_judgement import CONVERGENCE_S, Judgement, Look, issues
from tests.cut_kinds import Kind, Moment, Role
from tests.cut_networks import HERE
from tests.linearizability.checker import violations
from tests.linearizability.history import write
from tests.linearizability.load import NO_ANSWER, Load, Way, load

ZONE = "CUTS"
PARTITIONS = 2
CLIENTS = {Way.DIRECT: 2, Way.ROUTED: 2, Way.SPREAD: 3}
FILL_PUTS, FILL_BYTES = 128, 128 << 10
SLOW_RATE = 2 << 20
"""Bytes a second of the joiner's cable: a copy takes some seconds."""
STAGE_S = 90.0
CUT_S = (5.0, 12.0)
"""Longer than a node's lease, at least."""
OPERATION_S = 4.0
"""Some cuts last longer than a client waits: outcomes are unknown then."""
FLAP_S = 1.0
WELL_S = 1.0
"""Of load before the cut, and after all is well."""
WITH_ALL = f"ALTER ZONE {ZONE} SET (REPLICAS 3, NODES FILTER '$..*')"


def without(node: str) -> str:
    """The other two vote."""
    return f"ALTER ZONE {ZONE} SET (REPLICAS 2, NODES FILTER '$[?(@.not_{node} == \"yes\")]')"


def prepare(whole: CutInstallation) -> None:
    """The zone, with data, once an installation. Its moves take the lock while they promote a joiner."""
    whole.execute(f"CREATE ZONE {ZONE} (PARTITIONS {PARTITIONS}, REPLICAS 3)")
    whole.execute(f"ALTER ZONE {ZONE} SET REBALANCE STRATEGY 'update'")
    with BlockingZoneClient([whole.url]) as client:
        for number in range(FILL_PUTS):
            client.put(ZONE, f"large-{number}", "x" * FILL_BYTES)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one case. ``converged_s``: seconds after the cut's end; ``named``: the causes that were shown where it
    was more than ``cut_judgement.SETTLED_S``."""

    kind: Kind
    cut_s: float
    converged_s: float
    named: tuple[str, ...]
    operations: int
    puts: int
    unknown: int

    def __str__(self) -> str:
        named = f" ({', '.join(self.named)})" if self.named else ""
        return (
            f"{self.kind.name}: cut for {self.cut_s:.1f} s, well {self.converged_s:.1f} s later{named}; "
            f"{self.operations} operations, {self.puts} puts, {self.unknown} of unknown outcome"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """The partition that a case is about, at its moment."""

    partition: int
    leader: str
    voters: frozenset[str]


class CutRun:
    """``seed``: of how long cuts take, between the two ends of ``cut_s``, of who joins or leaves, and of the
    load. Histories that are not linearizable are left in ``directory``."""

    def __init__(
        self, whole: CutInstallation, seed: int, directory: Path, cut_s: tuple[float, float] = CUT_S
    ) -> None:
        self._whole = whole
        self._seed = seed
        self._directory = directory
        self._cut_s = cut_s
        self._chooser = random.Random(seed)
        (zone,) = whole.get("/api/v1/zones")["zones"]
        self._zone_id = ZoneId(zone["zone_id"])
        self._cases = 0

    async def strike(self, kind: Kind) -> Outcome:
        """Raises AssertionError when clients or users were told what may not be."""
        self._cases += 1
        prefix = f"{self._seed}-{self._cases}-{kind.name}-"
        moved, cut_s = self._chooser.choice(NODES), self._chooser.uniform(*self._cut_s)
        leaves = kind.moment is Moment.LEAVING
        joins = kind.moment not in (Moment.LEAVING, Moment.AT_REST)
        await asyncio.to_thread(self._reach, without(moved) if joins else WITH_ALL)
        target = without(moved) if leaves else WITH_ALL
        url = self._whole.url
        async with load(
            [url], ZONE, self._seed, clients=CLIENTS, prefix=prefix, limit_s=OPERATION_S
        ) as running:
            await asyncio.sleep(WELL_S)
            if kind.slow:
                await asyncio.to_thread(self._whole.networks.slow, moved, rate=SLOW_RATE)
            leading = await asyncio.to_thread(self._whole.metastore_leader)
            place = await self._moment(kind.moment, target, moved)
            asked = target if kind.moment is Moment.BEFORE else ""
            await self._cut(kind, _roles(place, moved, leading), cut_s, asked)
            wanted = frozenset(NODES) - ({moved} if leaves else frozenset())
            converged_s, named = await self.converge(wanted, prefix)
            await asyncio.sleep(WELL_S)
            await running.read_back()
        self._check(running, self._directory / f"{prefix}history.jsonl")
        figures = running.figures.values()
        puts, unknown = sum(len(each.puts) for each in figures), sum(each.unknown for each in figures)
        operations = len(running.recorder.operations)
        return Outcome(kind, cut_s, converged_s, named, operations, puts, unknown)

    def _reach(self, statement: str) -> None:
        """Before a case nothing is cut, and what is left of the last one is over."""
        try:
            self._whole.execute(statement, CONVERGENCE_S)
        except AssertionError as error:
            shown = [
                (each["partition"], each["leader"], each["status"]) for each in self._whole.partitions(ZONE)
            ]
            raise AssertionError(f"{error}: {shown}") from error

    async def _moment(self, moment: Moment, statement: str, moved: str) -> Place:
        if moment in (Moment.AT_REST, Moment.BEFORE):
            (first, *_) = await asyncio.to_thread(self._whole.partitions, ZONE)
            return Place(0, first["leader"], frozenset(first["stable"]["peers"]))
        async with _mirrored(self._whole) as mirrors:
            seen: asyncio.Future[Place] = asyncio.get_running_loop().create_future()

            def look(_: frozenset[str]) -> None:
                for number in range(PARTITIONS):
                    view = mirrors.shown(PartitionId(self._zone_id, number))
                    place = _place(moment, view, mirrors.partitions.get(view.keys.lock) is not None, moved)
                    if place is not None and not seen.done():
                        seen.set_result(place)

            mirrors.partitions.listen(look)
            mirrors.members.listen(look)
            await asyncio.to_thread(self._whole.sql, statement)
            async with asyncio.timeout(STAGE_S):
                return await seen

    async def _cut(self, kind: Kind, roles: dict[Role, tuple[str, ...]], cut_s: float, asked: str) -> None:
        """``asked``: the statement that is run once the links are cut."""
        networks, ends = self._whole.networks, time.monotonic() + cut_s

        def cut() -> None:
            for each in kind.cuts:
                for source in roles[each.source]:
                    for destination in roles[each.destination]:
                        if source != destination:
                            networks.cut(source, destination, one_way=each.one_way)

        if kind.stopped is not None:
            self._whole.stop_metastore(*roles[kind.stopped])
            await asyncio.sleep(cut_s)
            # In this thread, with which they live.
            self._whole.start_metastore()
        while kind.flapping and time.monotonic() < ends - 2 * FLAP_S:
            await asyncio.to_thread(cut)
            await asyncio.sleep(FLAP_S)
            await asyncio.to_thread(networks.heal)
            await asyncio.sleep(FLAP_S)
        await asyncio.to_thread(cut)
        if asked:
            await asyncio.to_thread(self._whole.sql, asked)
        await asyncio.sleep(max(ends - time.monotonic(), 0))
        await asyncio.to_thread(networks.heal)

    async def converge(self, wanted: frozenset[str], prefix: str) -> tuple[float, tuple[str, ...]]:
        """Seconds from now until every partition is shown as done, has ``wanted`` as its voters, and takes a
        put; and which causes were shown in between, as ``Judgement`` says. ``prefix``: of the puts' keys."""
        begun, judgement = time.monotonic(), Judgement()
        async with ZoneClient([self._whole.url], time_limit_s=3) as client:
            keys = _key_of_each_partition(f"{prefix}probe-")
            while True:
                shown = await asyncio.to_thread(self._issues, wanted)
                took_s = time.monotonic() - begun
                serves = shown == {} and await _takes(client, keys)
                if judgement.is_well(Look(shown, serves), took_s):
                    return time.monotonic() - begun, judgement.named
                await asyncio.sleep(0.1)

    def _issues(self, wanted: frozenset[str]) -> dict[str, str] | None:
        """None while the server does not answer."""
        try:
            unready = "" if self._whole.is_whole() else "not every node is registered"
            return issues(unready, self._whole.partitions(ZONE), wanted)
        except (httpx.TransportError, httpx.HTTPStatusError):
            return None

    def _check(self, running: Load, kept: Path) -> None:
        history = running.recorder.history()
        broken = violations(history)
        if broken or running.errors:
            write(kept, history)
            print(f"the history is in {kept}")
        assert not running.errors, running.errors[:3]
        assert not broken, "\n".join(map(str, broken[:3]))


def _place(moment: Moment, view: NodePartitionView, locked: bool, moved: str) -> Place | None:
    """None: ``view`` is not of that moment of a move of ``moved``."""
    if view.stable is None or view.pending is None or view.configuration is None:
        return None
    configuration, record = view.configuration.value, view.records.get(moved)
    member = configuration.members.get(moved)
    learns = member is not None and member.role is MemberRole.LEARNER
    has_come = {
        Moment.AT_REST: False,
        Moment.BEFORE: False,
        Moment.RESERVED: record is not None and record.value.has_member and member is None,
        Moment.COPYING: configuration.stage is Stage.CATCHING_UP and learns,
        Moment.PROMOTING: locked and learns,
        Moment.LEAVING: member is not None and member.leaving,
    }
    if not has_come[moment]:
        return None
    return Place(view.partition.partition, configuration.leader, frozenset(view.stable.value.peers))


def _roles(place: Place, moved: str, leading: str) -> dict[Role, tuple[str, ...]]:
    """Sites. ``leading``: the metastore's leader."""
    followers = tuple(sorted(place.voters - {place.leader}))
    others = tuple(store for store in STORES if store != leading)
    smaller = (place.leader, CONTROLLER, leading)
    return {
        Role.LEADER: (place.leader,),
        Role.FOLLOWERS: followers,
        Role.NEXT: followers[:1],
        Role.JOINER: (moved,),
        Role.LEAVER: (moved,),
        Role.NODES: NODES,
        Role.OTHER_NODES: tuple(node for node in NODES if node != moved),
        Role.STORES: STORES,
        Role.STORE_LEADER: (leading,),
        Role.STORE_FOLLOWERS: others,
        Role.STORE_FOLLOWER: others[:1],
        Role.CONTROLLER: (CONTROLLER,),
        Role.SERVER: (SERVER,),
        Role.CLIENTS: (HERE,),
        Role.SMALLER_HALF: smaller,
        Role.LARGER_HALF: tuple(site for site in SITES if site not in smaller),
    }


def _key_of_each_partition(prefix: str) -> list[str]:
    keys = {partition_of(f"{prefix}{number}", PARTITIONS): f"{prefix}{number}" for number in range(100)}
    return [keys[partition] for partition in range(PARTITIONS)]


async def _takes(client: ZoneClient, keys: list[str]) -> bool:
    try:
        for key in keys:
            await client.put(ZONE, key, "probe")
    except NO_ANSWER:
        return False
    return True


@asynccontextmanager
async def _mirrored(whole: CutInstallation) -> AsyncIterator[Mirrors]:
    metastore = EtcdMetastore(whole.sites.endpoint.split(","))
    mirrors = Mirrors.over(metastore, Keyspace())
    task: asyncio.Task[Any] = asyncio.create_task(mirrors.run())
    try:
        await mirrors.loaded()
        yield mirrors
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await metastore.close()
