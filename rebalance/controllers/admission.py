"""Admission of moves: under limits, begins those that wait as others end; without limits it does nothing (core:
``admission``).

A zone's writer hands over the partitions whose move would begin (``hold``) and writes all others itself. Every
request that begins moves is guarded by the limits as read and, under limits, by the last admission: of two
controllers that count the same room one fails, and a lower limit or a pause holds from that
revision on. Level-triggered: what waits is found again by the next leading controller, what moves is counted
from keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass

import structlog

from catalog.core.zone import ZoneId
from rebalance.controllers.clock import Clock, sleep_unless
from rebalance.controllers.moving import MovingPartitions, NodeNumbers, WaitingLine
from rebalance.controllers.partitions import PARTITIONS_PER_REQUEST
from rebalance.controllers.targets import NamedTarget
from rebalance.core.admission.bulk_write import BulkDecisions
from rebalance.core.admission.move_admission import (
    AdmissionRecord,
    Limits,
    Move,
    Rooms,
    TokenBuckets,
    admit,
    without_members,
)
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import Outcome
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read
from rebalance.core.keyspace.txn import Compare, Get, Put, Txn, TxnResult, as_read, unchanged
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

MERGE_S = 0.05
"""Moves that end together are looked at together."""
RETRY_S = 0.5

Changed = Callable[[ZoneId], None]
"""The zone must be written anew."""


@dataclass(eq=False)
class MoveAdmission:
    """``follow`` keeps ``limits``, in every controller; ``run`` admits, in the one that leads.

    ``member_limits`` answers with those of the living nodes. ``rewrite`` is called with zones that must be
    written anew: limits ended, or their target was replaced while they waited. ``first`` answers with the zone
    and id of the operation that goes first where only one may, ``stored`` with the zones that store servers
    keep, whose copies are no members.
    """

    metastore: Metastore
    keyspace: Keyspace
    clock: Clock
    member_limits: Callable[[], Mapping[str, int]] = dict
    rewrite: Changed = lambda zone_id: None
    first: Callable[[], tuple[ZoneId, str] | None] = lambda: None
    stored: Callable[[], Collection[ZoneId]] = tuple

    def __post_init__(self) -> None:
        self.limits_key = KeyspaceMirror(self.metastore, self.keyspace.limits)
        """``run`` keeps the limits current, and tells who listens of changes."""
        self.limits_key.listen(self._on_limits)
        self._limits = Limits()
        self._lines: dict[ZoneId, WaitingLine] = {}
        self._nodes = NodeNumbers()
        self._wake = asyncio.Event()
        self._unreadable = UnreadableLog()
        self._new: set[ZoneId] = set()

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def limits_guard(self) -> Compare:
        """Guard of everything that begins a move: the limits are those that were read."""
        item = self.limits_key.get(self.keyspace.limits)
        return as_read(self.keyspace.limits, item)

    @property
    def is_holding(self) -> bool:
        """Check that moves may have to wait now: a zone's writer begins none then."""
        return self._limits.holds(self.clock.now_ms())

    def hold(
        self, zone_id: ZoneId, named: NamedTarget, decisions: BulkDecisions, moves: Mapping[int, Move]
    ) -> None:
        """Hold the zone's waiting moves, in place of what waited before."""
        self.drop(zone_id)
        if zone_id in self.stored():
            moves = {number: without_members(move) for number, move in moves.items()}
        if moves:
            self._lines[zone_id] = WaitingLine(zone_id, named, decisions, moves, self._nodes)
            self._new.add(zone_id)
            self._wake.set()

    def drop(self, zone_id: ZoneId) -> None:
        """Drop what waits of the zone."""
        self._lines.pop(zone_id, None)

    def look_again(self) -> None:
        """Look again, as nodes have changed: there may be room now."""
        self._wake.set()

    def on_stored(self, zone_ids: Collection[ZoneId]) -> None:
        """``stored`` has changed by these: what of them waits is looked at again."""
        for zone_id in zone_ids:
            if zone_id in self._lines:
                self.rewrite(zone_id)
        self._wake.set()

    def forget(self) -> None:
        """Forget all that waits: every zone is written anew."""
        self._lines.clear()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._wake.clear()
            if self.is_holding:
                await self._run_under_limits()
            self._release()
            await self._wake.wait()

    def _on_limits(self, _changed: frozenset[str]) -> None:
        limits = Limits.of(self.limits_key.get(self.keyspace.limits))
        if limits.unreadable and limits != self._limits:
            log.error("no move begins", reason=limits.unreadable)
        elif limits != self._limits:
            log.info("limits of moves", limits=limits.encode().decode())
        self._limits = limits
        self._wake.set()

    def _release(self) -> None:
        """Release all that waits, as no limits hold: the writers begin everything themselves."""
        lines, self._lines = self._lines, {}
        for zone_id in lines:
            self.rewrite(zone_id)

    async def _run_under_limits(self) -> None:
        moving = MovingPartitions(self.metastore, self.keyspace)
        moving.mirror.listen(self._on_partitions)
        async with asyncio.TaskGroup() as tasks:
            mirror = tasks.create_task(moving.mirror.run())
            await moving.mirror.loaded()
            while self.is_holding:
                self._wake.clear()
                try:
                    await self._admit(moving)
                except MetastoreError as error:
                    log.info("nothing admitted", error=str(error))
                    asyncio.get_running_loop().call_later(RETRY_S, self._wake.set)
                await sleep_unless(self.clock, self._next_look_ms(moving), self._wake)
                await asyncio.sleep(MERGE_S)
            mirror.cancel()

    def _next_look_ms(self, moving: MovingPartitions) -> int | None:
        """Return when there may be room without that anything else happens."""
        now_ms, rates = self.clock.now_ms(), self._limits.rates
        ends = [self._limits.next_end_ms(now_ms)]
        if self._lines and rates.is_limiting:
            ends.append(moving.buckets.at(now_ms, rates).next_open_ms(rates))
        return min((end for end in ends if end is not None), default=None)

    def _on_partitions(self, changed: frozenset[str]) -> None:
        if any("/assignments/" in key or key == self.keyspace.admissions for key in changed):
            self._wake.set()

    async def _admit(self, moving: MovingPartitions) -> None:
        """One admission over all zones, from one revision of the partitions and one of the limits."""
        self._look_again(moving, await moving.count())
        item = moving.mirror.get(self.keyspace.admissions)
        if isinstance(self._unreadable.read("admissions", item, AdmissionRecord.decode), Unreadable):
            # Nobody knows what it has begun, and nobody may write over it. The mirror wakes us.
            return
        due = {zone_id: sorted(line.due) for zone_id, line in self._lines.items() if line.due}
        buckets = moving.buckets.at(self.clock.now_ms(), self._limits.rates)
        work = _Admission(
            self.metastore,
            self.keyspace,
            moving,
            self.limits_guard,
            buckets if self._limits.rates.is_limiting else None,
            begins=not due,
        )
        if due:
            # It loads nodes, so that room is counted afterwards.
            self._wake.set()
        for zone_id, numbers in (due or self._admitted(moving)).items():
            line = self._lines.get(zone_id)
            if line is not None and not await work.write(line, numbers):
                if work.is_replaced:
                    self._give_back(line)
                else:
                    return

    def _admitted(self, moving: MovingPartitions) -> dict[ZoneId, list[int]]:
        now_ms = self.clock.now_ms()
        rooms = Rooms(
            self._limits,
            moving.loads_without(self.stored()),
            self.member_limits(),
            now_ms,
            self.first(),
            moving.buckets,
            moving.size,
        )
        return admit({zone_id: line.candidates(rooms) for zone_id, line in self._lines.items()}, rooms)

    def _look_again(self, moving: MovingPartitions, changed: frozenset[PartitionId]) -> None:
        """Partitions that changed while they waited; in a new line, those that move already."""
        new, self._new = self._new, set()
        mended, moving.mended = moving.mended, set()
        for zone_id in {partition.zone_id for partition in mended}:
            self.rewrite(zone_id)
        for partition in {*changed, *(other for other in moving.partitions if other.zone_id in new)}:
            line, number = self._lines.get(partition.zone_id), partition.partition
            if line is None or number not in line:
                continue
            if partition in moving.unreadable:
                # It must not take the room of others. Its zone is written anew when it can be read again.
                self._unreadable.waits(partition, moving.unreadable[partition])
                line.remove(number)
                continue
            self._unreadable.goes_on(partition)
            seen = moving.observed(partition)
            decision = line.decisions.decide_alone(seen, number)
            if decision.outcome is Outcome.PENDING_KEY_UPDATED and seen.stable is not None:
                move = line.decisions.move(seen.stable.value, number)
                is_stored = line.zone_id in self.stored()
                line.update(number, without_members(move) if is_stored else move)
                line.due.discard(number)
            else:
                line.remove(number)
                if decision.transaction is not None:
                    line.due.add(number)

    def _give_back(self, line: WaitingLine) -> None:
        """Give a line back whose target, or the epoch, is another one by now."""
        if self._lines.get(line.zone_id) is line:
            self.drop(line.zone_id)
            self.rewrite(line.zone_id)


@dataclass(eq=False)
class _Admission:
    """The writes of one admission. Without ``begins`` no move begins: what wants to is looked at again. Each
    request takes the bytes of what it begins out of ``buckets``; None: no rate holds."""

    metastore: Metastore
    keyspace: Keyspace
    moving: MovingPartitions
    limits_guard: Compare
    buckets: TokenBuckets | None
    _: KW_ONLY
    begins: bool

    def __post_init__(self) -> None:
        self._revision = self.moving.admissions_revision
        self.is_replaced = False
        """True if the last line was refused because its target, or the epoch, is another one by now."""

    async def write(self, line: WaitingLine, numbers: list[int]) -> bool:
        """Write what the line's target asks for. False: it was refused; unless ``is_replaced``, because of the
        limits or of another admission, and the mirror that brings those wakes us."""
        writes = [write for number in numbers for write in self._decided(line, number)]
        for start in range(0, len(writes), PARTITIONS_PER_REQUEST):
            if not await self._commit(line, writes[start : start + PARTITIONS_PER_REQUEST]):
                return False
        if writes:
            log.info("moves admitted", zone=line.zone_id, partitions=len(writes), waiting=len(line))
        return True

    def _record(self, line: WaitingLine, writes: list[tuple[int, Txn]]) -> bytes:
        """Return the record of an admission that makes these writes. One whose write fails after all has taken
        its bytes, too."""
        last = self.moving.admission
        unknown = last.unknown if isinstance(last, AdmissionRecord) else None
        if self.buckets is None:
            return AdmissionRecord(len(writes), unknown=unknown).encode()
        for number, _ in writes if self.begins else ():
            seen = self.moving.observed(PartitionId(line.zone_id, number)).stable
            if isinstance(read(seen, Assignments.decode), Assignments) and seen is not None:
                move = line.decisions.move(seen.value, number)
                self.buckets.take(move.donors, move.receivers, self.moving.size(line.zone_id, number))
        return AdmissionRecord(len(writes), self.buckets, unknown=unknown).encode()

    def _decided(self, line: WaitingLine, number: int) -> Iterator[tuple[int, Txn]]:
        seen = self.moving.observed(PartitionId(line.zone_id, number))
        try:
            decision = line.decisions.decide_alone(seen, number)
        except RecordNotReadableError:
            # Since it was counted: it is about to be looked at again.
            return
        if decision.transaction is None:
            line.remove(number)
        elif self.begins or decision.outcome is not Outcome.PENDING_KEY_UPDATED:
            yield number, decision.transaction

    async def _commit(self, line: WaitingLine, writes: list[tuple[int, Txn]]) -> bool:
        keys = self.keyspace
        pointer = unchanged(keys.target_pointer(line.zone_id), line.named.pointer_revision)
        mine = (self.limits_guard, unchanged(keys.admissions, self._revision))
        count = Put(keys.admissions, self._record(line, writes))
        looked_at = (Get(keys.limits), Get(keys.admissions))
        guards = (pointer, *line.named.fences, *mine)
        result = await self.metastore.commit(Txn(guards, (count, *(write for _, write in writes)), looked_at))
        if not result.succeeded:
            now = tuple(item.mod_revision if item else 0 for item in map(result.only, (0, 1)))
            self.is_replaced = now == tuple(guard.operand for guard in mine)
            return False
        self._revision = result.revision
        for (number, _), response in zip(writes, result.responses[1:], strict=True):
            # Of the others a change is on its way to the mirror.
            if isinstance(response, TxnResult) and response.succeeded:
                line.remove(number)
        return True
