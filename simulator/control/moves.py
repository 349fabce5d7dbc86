"""Caps, batches and pauses as invariants: what moves is counted anew after each revision.

Only the beginning of a move is limited, so only a beginning can break a limit: a lower cap stops nothing that
moves, and a newer target of what moves already is never held back. Counted is what pending asks for.

Beside them somebody who sets limits while everything else happens, from a random stream of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import Limits, Move, Pause, move_of
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.ports.metastore import KeyEvent, MetastoreUnavailableError
from simulator.control.invariants import ObservedStore
from simulator.control.processes import Environment

CLUSTER = "cluster"

Broken = tuple[str, str]
"""The invariant, and what was found."""


def broken_limits(
    limits: Limits, moving: Counter[str], zone_id: ZoneId, move: Move, batch: int, now_ms: int
) -> Iterator[Broken]:
    """Yield the limits that the beginning of ``move`` breaks. ``moving`` counts the moves of now, by
    ``sides_of``, with this move; ``batch`` moves of the zone have begun since none of it moved, this one among
    them."""
    if paused := limits.pause_cause(zone_id, now_ms):
        yield "no move begins while it is paused", paused
    caps = (limits.cluster_moves, limits.zone_moves, limits.donor_moves, limits.receiver_moves)
    for (whose, names), cap in zip(sides_of(zone_id, move).items(), caps, strict=True):
        for name in names:
            if cap is not None and moving[name] > cap:
                yield f"no more partitions move than the {whose}'s limit", f"{name}: {moving[name]}/{cap}"
    if limits.batch_size is not None and batch > limits.batch_size:
        yield "a batch begins when none of the last moves", f"{batch}/{limits.batch_size}"


def sides_of(zone_id: ZoneId, move: Move) -> dict[str, tuple[str, ...]]:
    """Names for which a move counts: the cluster, its zone, each donor and each receiver."""
    return {
        "cluster": (CLUSTER,),
        "zone": (f"zone {zone_id}",),
        "donor": tuple(f"donor {node}" for node in move.donors),
        "receiver": tuple(f"receiver {node}" for node in move.receivers),
    }


class MovesAuditor:
    """Observes a store and calls ``fail`` with what is broken. ``now_ms`` is the controllers' clock. Nothing of
    the admission's own counting is used.

    ``begun`` counts the moves that have begun, ``instants`` the revisions that changed what moves, ``peak`` the
    most that ever moved at once.
    """

    def __init__(
        self,
        store: ObservedStore,
        keyspace: Keyspace,
        fail: Callable[[str, str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._keyspace = keyspace
        self._fail = fail
        self._now_ms = now_ms
        self._limits = Limits()
        self._moves: dict[PartitionId, Move] = {}
        self._batches: Counter[ZoneId] = Counter()
        self._counts: Counter[str] = Counter()
        self.begun = 0
        self.instants = 0
        self.peak = 0
        store.observe(self.on_revision)

    @property
    def moving(self) -> frozenset[PartitionId]:
        return frozenset(self._moves)

    def on_revision(self, _revision: int, events: tuple[KeyEvent, ...]) -> None:
        touched: dict[PartitionId, None] = {}
        for event in events:
            if event.key == self._keyspace.limits:
                self._on_limits(event)
            elif "/assignments/" in event.key:
                parsed = self._keyspace.parse_partition(event.key)
                if parsed is not None:
                    touched[parsed[0]] = None
        begun = [partition for partition in touched if self._recount(partition)]
        if touched:
            self.instants += 1
            self.peak = max(self.peak, len(self._moves))
            self._on_begun(begun)

    def _on_limits(self, event: KeyEvent) -> None:
        self._limits = Limits.decode(event.current.value if event.current is not None else None)
        # What moves now is the last batch: nothing of the zone begins beside it, whatever the new size is.
        size = self._limits.batch_size or 0
        self._batches = Counter({partition.zone_id: size for partition in self._moves})

    def _recount(self, partition: PartitionId) -> bool:
        """Count the partition's move anew; True if it begins."""
        before = self._moves.pop(partition, None)
        if before is not None:
            self._counts.subtract(_flat(partition.zone_id, before))
        keys = self._keyspace.partition(partition)
        stable, pending = self._store.peek(keys.stable), self._store.peek(keys.pending)
        if stable is None or pending is None:
            return False
        now, target = Assignments.decode(stable.value), Assignments.decode(pending.value)
        move = self._moves[partition] = move_of(now, target)
        self._counts.update(_flat(partition.zone_id, move))
        return before is None

    def _on_begun(self, begun: list[PartitionId]) -> None:
        self.begun += len(begun)
        for zone_id, count in Counter(partition.zone_id for partition in begun).items():
            if self._counts[f"zone {zone_id}"] == count:
                self._batches[zone_id] = 0
            self._batches[zone_id] += count
        now_ms = self._now_ms() if begun else 0
        for partition in begun:
            batch = self._batches[partition.zone_id]
            for invariant, detail in broken_limits(
                self._limits, self._counts, partition.zone_id, self._moves[partition], batch, now_ms
            ):
                self._fail(invariant, f"{partition}: {detail}")


def _flat(zone_id: ZoneId, move: Move) -> list[str]:
    return [name for names in sides_of(zone_id, move).values() for name in names]


GAPS_S = (0.5, 2.0, 6.0)
PAUSE_S_MAX = 12.0
RETRY_S = 0.5


class LimitsSetter:
    """Setter of limits: ``cluster_moves`` at all times; other caps and pauses, also of single zones, come and
    go until ``calm``."""

    def __init__(self, seed: int, environment: Environment, cluster_moves: int) -> None:
        self._rng = random.Random(f"{seed}/limits")
        self._environment = environment
        self._limits = Limits(cluster_moves=cluster_moves)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def calm(self) -> None:
        """The cap of the cluster alone stays."""
        self.end()
        await self._set(self._limits)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        await self._set(self._limits)
        while True:
            await asyncio.sleep(self._rng.choice(GAPS_S) * self._rng.uniform(0.2, 2.0))
            await self._set(self._drawn())

    def _drawn(self) -> Limits:
        rng, cap = self._rng, self._limits.cluster_moves or 1
        caps: dict[str, Any] = {
            name: rng.randint(1, cap)
            for name in ("zone_moves", "donor_moves", "receiver_moves", "batch_size")
            if rng.random() < 0.3
        }
        zones = {
            zone: self._pause() for zone in sorted(self._environment.catalog.intents) if rng.random() < 0.2
        }
        pause = self._pause() if rng.random() < 0.3 else None
        return replace(self._limits, **caps, pause=pause, zone_pauses=zones)

    def _pause(self) -> Pause:
        now_ms = round(1_000 * asyncio.get_running_loop().time())
        return Pause("simulation", "", now_ms, now_ms + self._rng.randint(1, round(1_000 * PAUSE_S_MAX)))

    async def _set(self, limits: Limits) -> None:
        self._environment.trace.note("limits", limits.encode().decode())
        key = self._environment.keyspace.limits
        while True:
            try:
                await self._environment.store.commit(Txn((), (Put(key, limits.encode()),)))
            except MetastoreUnavailableError:
                await asyncio.sleep(RETRY_S)
            else:
                return
