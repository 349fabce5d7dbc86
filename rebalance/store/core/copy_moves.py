"""Moves of this server's copies: changes made by full messages, filling, levelling, clearing and giving up.

A copy has one step under way at a time: a request, or something on its way to the disk. ``life`` makes void
what was begun before an exchange gave the copy another order. Lost partitions are served with what is left of
them where the zone's policy says so (PME-095).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from catalog.core.zone import LossPolicy, ZoneId
from rebalance.core.partition_maps.partition_map import (
    NO_RECORD,
    CopyReport,
    CopyState,
    SingleMap,
    StorePosition,
    changed_state,
    epoch_of,
)
from rebalance.core.partition_maps.topology_version import TopologyVersion, ZoneSpec
from rebalance.exchange.core.exchange_messages import CopyId, FullMessage, Outcomes, PartitionOutcome
from rebalance.exchange.core.held_maps import HeldMaps
from rebalance.exchange.core.late_affinity import surplus_partitions, waited_for
from rebalance.store.core.disk_changes import ClearBatch, DropCopy, DropTail, DropTombstones, KeepHead
from rebalance.store.core.disk_queue import StepStored
from rebalance.store.core.filling import Filling, FillStep
from rebalance.store.core.log_records import PartitionKey
from rebalance.store.core.shared_state import SharedState
from rebalance.store.core.store_copy import Leading, ServedCopy
from rebalance.store.core.store_messages import CopyLevelled, LevelSeen, RefillAnswer, SupplyStage

SERVES_LOST = (LossPolicy.READ_ONLY_ALL, LossPolicy.READ_WRITE_ALL)


def stand_in(policy: LossPolicy, reports: Mapping[str, CopyReport]) -> str | None:
    """The server whose copy is complete up to the highest position, the first by name; None: nobody serves.
    ``reports``: of a lost partition in a full map, so every server comes to the same until the next.

    It serves alone, and is no owner: the in-sync set stays what it was, so that a member that comes back is
    preferred when the partition is reset.
    """
    left = [
        node
        for node, report in reports.items()
        # A copy that must be cleared says that it is not empty, and complete up to nothing.
        if report.state is CopyState.LOST and (report.counter or not report.size)
    ]
    if policy not in SERVES_LOST or not left:
        return None
    highest = max(reports[node].position for node in left)
    return min(node for node in left if reports[node].position == highest)


REFILLS_MAX = 3
"""Exchanges in which a copy asks to be filled anew. A coordinator of an earlier build does not see it."""


class CopyMoves:
    """``sequence`` grows with every change of a state."""

    def __init__(self, shared: SharedState) -> None:
        self.sequence = 0
        self._shared = shared
        self._renting = {key for key, copy in shared.copies.items() if copy.state is CopyState.RENTING}
        self._outcomes: Outcomes = {}
        self._judged: HeldMaps | None = None

    def own_unheard(self, outcomes: Outcomes, has_missed: Callable[[int], bool]) -> None:
        """Take over, before the join, what the server missed. Partitions that became this server's, empty, by a
        result that it did not live to hear: nobody can have written there, so they are its own as if it had.
        ``has_missed``: of a result's epoch, whether this disk was there before it and never finished it."""
        name = self._shared.name
        for zone, partitions in outcomes.items():
            for number, outcome in enumerate(partitions):
                is_empty = outcome.position == NO_RECORD and has_missed(outcome.epoch)
                if not is_empty or name not in outcome.in_sync:
                    continue
                copy = self._shared.copies.get((zone, number)) or self._create((zone, number))
                if copy.state is CopyState.MOVING and copy.is_clean and copy.tail == NO_RECORD:
                    self._found(copy)
                    copy.state = CopyState.OWNING
                    self._shared.keep_head(copy)

    # In an exchange

    def prepare(
        self,
        partitions: Mapping[ZoneId, frozenset[int]],
        zones: Iterable[ZoneId],
        is_resting: Callable[[ZoneId], bool] = lambda zone: False,
    ) -> None:
        """Create what is missing; drop what belongs to no zone any more, unless that ``is_resting``, and marks
        without data (PME-059)."""
        shared, existing = self._shared, frozenset(zones)
        for key, copy in list(shared.copies.items()):
            is_dropped = key[0] not in existing and not is_resting(key[0])
            if is_dropped or copy.state is CopyState.EVICTED:
                self._forget(copy)
        for zone, numbers in partitions.items():
            for number in sorted(numbers):
                present = shared.copies.get((zone, number))
                if present is None or present.state is CopyState.RENTING:
                    self._create((zone, number))

    def single_maps(
        self, version: TopologyVersion, zones: Iterable[ZoneId]
    ) -> tuple[Mapping[ZoneId, SingleMap], Mapping[PartitionKey, StorePosition]]:
        """Describe this server's copies, and the history that its logs can supply (PME-055)."""
        reports: dict[ZoneId, dict[int, CopyReport]] = {zone: {} for zone in zones}
        history = {}
        for key, copy in self._shared.copies.items():
            if key[0] in reports:
                reports[key[0]][key[1]] = copy.report
                if copy.state is CopyState.OWNING:
                    history[key] = copy.log_start
        maps = {
            zone: SingleMap(zone, self._shared.name, version, self.sequence, copies)
            for zone, copies in reports.items()
        }
        return maps, history

    def apply(self, message: FullMessage, zones: Mapping[ZoneId, ZoneSpec]) -> None:
        """The states of this server's copies are those of the message now, and so are their roles. Files of a
        zone that it leaves out are at rest."""
        shared = self._shared
        for copy in shared.copies.values():
            copy.leading = None
            if copy.partition[0] not in message.maps:
                self._end_filling(copy)
        shared.stand_ins = {
            (zone, number): server
            for zone, numbers in message.lost.items()
            if zone in message.maps and zone in zones
            for number in numbers
            if (server := stand_in(zones[zone].policy, message.maps[zone].reports(number))) is not None
        }
        for zone, full in message.maps.items():
            for number, report in full.nodes.get(shared.name, {}).items():
                key = (zone, number)
                copy = shared.copies.get(key) or self._create(key)
                outcome = message.outcomes[zone][number]
                actual = message.positions.get(key, NO_RECORD)
                known = self._outcomes.get(zone, ())
                same_stream = number < len(known) and known[number].epoch == outcome.epoch
                self._apply_state(copy, report.state, outcome, actual, message, same_stream)
                if copy.state is CopyState.OWNING and shared.name in outcome.in_sync and outcome.effective:
                    self._level(copy, outcome, actual, message)
                elif shared.stand_ins.get(key) == shared.name:
                    self._stand_in(copy, epoch_of(message.version))
        self._outcomes = {zone: message.outcomes[zone] for zone in message.maps}
        shared.pending.clear()

    def ask_refill(self, partition: PartitionKey) -> RefillAnswer:
        """The copy stays what it is until a committed result has it out of its in-sync set."""
        shared, worker = self._shared, self._shared.worker
        copy, outcome = shared.copies.get(partition), shared.outcome(partition)
        affinity = worker.held.affinities.get(partition[0]) if worker is not None else None
        if copy is None or outcome is None or affinity is None or copy.state is not CopyState.OWNING:
            return RefillAnswer.NO_COPY
        if shared.name not in affinity.ideal[partition[1]] or shared.name not in outcome.in_sync:
            return RefillAnswer.NO_COPY
        if not shared.peers.keys() & set(outcome.in_sync) - {shared.name}:
            return RefillAnswer.LAST_COPY
        copy.refills = REFILLS_MAX
        return RefillAnswer.ASKED

    def finished(self) -> bool:
        """Note the end of an exchange; True if a copy still asks to be filled anew."""
        asking = [copy for copy in self._shared.copies.values() if copy.refills]
        for copy in asking:
            copy.refills -= 1
        return any(copy.refills for copy in asking)

    def _stand_in(self, copy: ServedCopy, epoch: int) -> None:
        """Serve what is left of a lost partition here; what is written goes nowhere else."""
        self._found(copy)
        copy.leading = Leading(epoch, frozenset(), stored=copy.tail, settled=copy.tail)
        copy.leading.since_ms = self._shared.now_ms

    def _apply_state(
        self,
        copy: ServedCopy,
        state: CopyState,
        outcome: PartitionOutcome,
        actual: StorePosition,
        message: FullMessage,
        same_stream: bool,
    ) -> None:
        before, copy.epoch = copy.state, outcome.epoch
        is_asked = copy.refills > 0
        if state is not CopyState.OWNING:
            copy.refills = 0
        if state is not before:
            changed_state(before, state)
            copy.state = state
            self.sequence += 1
        zone, number = copy.partition
        if state is CopyState.MOVING and not message.maps[zone].owners(number).intersection(
            outcome.effective[:1]
        ):
            # What it has is kept: it may be all that is left of a partition. And where the primary went before
            # anybody heard of the result, nobody knows how far its log was.
            self._end_filling(copy)
            self._shared.keep_head(copy)
            return
        if state is CopyState.MOVING:
            unbroken = copy.filling is not None and not copy.filling.is_level and copy.stream == actual
            if before is CopyState.MOVING and same_stream and unbroken:
                return
            if is_asked and before is CopyState.OWNING:
                # At once and whole, as damaged data may have any position.
                copy.empty()
                self._shared.disk.add(DropCopy(copy.partition))
            self._order(copy, outcome, actual, message)
            self._shared.keep_head(copy)
            return
        self._end_filling(copy)
        if state is CopyState.OWNING and before is not CopyState.OWNING:
            self._found(copy)
        if state is not before:
            self._shared.keep_head(copy)

    def _end_filling(self, copy: ServedCopy) -> None:
        copy.filling, copy.life = None, copy.life + 1
        self._shared.filling.discard(copy.partition)
        self._shared.disk.drop_bulk(copy.partition)

    def _found(self, copy: ServedCopy) -> None:
        """Make a copy the owner because the exchange says so: a new partition, or what is left of a lost one.
        What lies beyond its own log goes, as other owners do not have it."""
        disk = self._shared.disk
        if not copy.is_clean:
            disk.add(ClearBatch(copy.partition, _EVERYTHING, _EVERYTHING.counter))
            copy.tail = copy.log_start = NO_RECORD
            copy.epochs, copy.is_clean = (), True
        elif self._has_leftovers(copy):
            leftovers = self._shared.reader.records(copy.partition, copy.tail, _EVERYTHING.counter)
            keys = tuple(sorted({item.key for record in leftovers for item in record.changes}))
            disk.add(DropTail(copy.partition, copy.tail, _EVERYTHING, keys))
        copy.stream = copy.stored = copy.tail

    def _has_leftovers(self, copy: ServedCopy) -> bool:
        """Records of an earlier stream, after a gap."""
        return bool(self._shared.reader.records(copy.partition, copy.tail, 1))

    def _order(
        self, copy: ServedCopy, outcome: PartitionOutcome, actual: StorePosition, message: FullMessage
    ) -> None:
        """Fill it up to ``actual``, where its stream begins now."""
        name = self._shared.name
        # Above every record of older epochs, and below the first write of the stream.
        clear_until = StorePosition(outcome.epoch, actual.counter)
        filling = Filling(actual, clear_until)
        copy_id = CopyId(*copy.partition, name)
        supplier = message.suppliers.get(copy_id)
        copy.stream = copy.stored = actual
        self._end_filling(copy)
        copy.filling = filling
        if supplier is not None and copy.is_clean:
            filling.supplier = supplier.node
            if self._has_leftovers(copy):
                filling.step = FillStep.TAIL
        elif copy_id in message.reload or not copy.is_clean or copy.tail != NO_RECORD:
            copy.is_clean = False
            filling.restart()
        elif actual != NO_RECORD:
            copy.is_clean = False
            filling.stage = SupplyStage.ROWS
        self._shared.filling.add(copy.partition)

    def _level(
        self, copy: ServedCopy, outcome: PartitionOutcome, highest: StorePosition, message: FullMessage
    ) -> None:
        """A partition is served once all its owners have the highest position found among them; they stay
        owners meanwhile."""
        shared, (zone, number) = self._shared, copy.partition
        behind: set[str] = set()
        if highest != NO_RECORD:
            reports = message.maps[zone].reports(number)
            behind = {node for node in outcome.in_sync if node in reports and reports[node].position < highest}
        if shared.name == outcome.effective[0]:
            targets = waited_for(outcome) & shared.peers.keys() - {shared.name}
            copy.leading = Leading(outcome.epoch, targets, behind, copy.tail, settled=copy.tail)
            copy.leading.since_ms = shared.now_ms
            shared.levelling.add(copy.partition)
        if copy.tail < highest:
            copy.filling = Filling(highest, highest, is_level=True)
            shared.filling.add(copy.partition)

    # Levelling

    def levelled(self, copy: ServedCopy) -> None:
        """Note that this owner has the highest position, on its disk."""
        shared = self._shared
        primary = shared.primary(copy.partition)
        if copy.leading is not None:
            copy.leading.unlevelled.discard(shared.name)
            copy.leading.stored = copy.leading.settled = copy.tail
            shared.wakes = True
        elif primary is not None:
            shared.send_peer(primary, CopyLevelled(copy.partition, shared.basis, copy.tail))

    def peer_levelled(self, sender: str, message: CopyLevelled) -> None:
        shared = self._shared
        copy = shared.copies.get(message.partition)
        if message.basis != shared.basis or copy is None or copy.leading is None:
            return
        copy.leading.unlevelled.discard(sender)
        shared.wakes = True
        shared.send_peer(sender, LevelSeen(message.partition, message.basis))

    def level_seen(self, message: LevelSeen) -> None:
        copy = self._shared.copies.get(message.partition)
        level = copy.filling if copy is not None else None
        if copy is not None and level is not None and level.is_level and message.basis == self._shared.basis:
            copy.filling = None
            self._shared.filling.discard(copy.partition)

    # Giving up

    def rent(self) -> bool:
        """Copies that nobody needs become RENTING; only between exchanges, as one may need them, and only those
        that a committed result has in no set any more."""
        shared, worker = self._shared, self._shared.worker
        if worker is None or not worker.is_idle or not shared.has_finished:
            return False
        held, rented = worker.held, False
        if held is self._judged:
            return False
        self._judged = held
        for zone, full in held.maps.items():
            own = {copy.partition[1]: copy.state for copy in shared.copies_of(zone)}
            outcomes = held.results.outcomes.get(zone, ()) if held.results is not None else ()
            for number in surplus_partitions(full, held.affinities[zone], shared.name, own, outcomes):
                copy = shared.copies[zone, number]
                self._end_filling(copy)
                copy.state, copy.is_clean = CopyState.RENTING, False
                shared.keep_head(copy)
                self._renting.add(copy.partition)
                self.sequence += 1
                rented = True
        return rented

    def clear_rented(self) -> None:
        """The next batch of each renting copy; those without data become EVICTED (PME-124)."""
        shared = self._shared
        for partition in sorted(self._renting):
            copy = shared.copies.get(partition)
            if copy is None or copy.state is not CopyState.RENTING:
                self._renting.discard(partition)
            elif partition[0] not in self._outcomes:
                continue
            elif copy.filling is None:
                if shared.reader.has_older(partition, _EVERYTHING):
                    copy.filling = Filling(
                        NO_RECORD, _EVERYTHING, step=FillStep.STORE, stage=SupplyStage.RELOAD
                    )
                    batch = ClearBatch(partition, _EVERYTHING, shared.limits.batch_bytes)
                    shared.disk.add_bulk(batch, stored=StepStored(partition, copy.life))
                elif shared.takes_records:
                    copy.state = CopyState.EVICTED
                    copy.empty()
                    # A transaction that is under way may still bring what it was filled with.
                    shared.disk.add(DropCopy(partition), KeepHead(partition, copy.head))
                    self.sequence += 1
                    shared.changed = True
                    self._renting.discard(partition)

    def own(self, copy: ServedCopy) -> None:
        """Filled, and its stream is at least where its rows are: asked of the disk, told when it is there."""
        copy.joined_up()
        copy.settled = copy.tail
        self.sequence += 1
        shared = self._shared
        shared.filling.discard(copy.partition)
        shared.disk.add(
            KeepHead(copy.partition, copy.head),
            DropTombstones(copy.partition, copy.tail),
            stored=StepStored(copy.partition, copy.life),
        )

    def _create(self, key: PartitionKey) -> ServedCopy:
        """A copy to be filled, where there is none or one that was on its way out (PME-113)."""
        copy = self._shared.copies.get(key)
        if copy is None:
            copy = self._shared.copies[key] = ServedCopy(key, CopyState.MOVING)
        else:
            was_renting = copy.state is CopyState.RENTING
            self._end_filling(copy)
            copy.state, copy.is_clean = CopyState.MOVING, not was_renting
            self._renting.discard(key)
        self.sequence += 1
        self._shared.keep_head(copy)
        return copy

    def _forget(self, copy: ServedCopy) -> None:
        shared = self._shared
        del shared.copies[copy.partition]
        shared.filling.discard(copy.partition)
        shared.pending.discard(copy.partition)
        self._renting.discard(copy.partition)
        shared.disk.add(DropCopy(copy.partition))


_EVERYTHING = StorePosition((1 << 63) - 1, (1 << 63) - 1)
