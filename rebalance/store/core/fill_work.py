"""The steps by which copies are filled and levelled: requests, what suppliers answer, and what is stored."""

from __future__ import annotations

from dataclasses import replace

from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition
from rebalance.store.core.copy_moves import CopyMoves
from rebalance.store.core.disk_changes import ClearBatch, DropTail, KeepHead, KeepRecords, KeepRows
from rebalance.store.core.disk_queue import StepStored
from rebalance.store.core.filling import Filling, FillStep, request_of, supply
from rebalance.store.core.log_records import LogRecord
from rebalance.store.core.shared_state import SharedState
from rebalance.store.core.store_copy import ServedCopy
from rebalance.store.core.store_messages import SupplyBatch, SupplyRequest, SupplyStage


class FillWork:
    def __init__(self, shared: SharedState, moves: CopyMoves) -> None:
        self._shared = shared
        self._moves = moves

    def go_on(self) -> None:
        """Let every idle copy take its next step; the copies being filled at a time are limited, and none of
        them asks for more while there is no room here."""
        shared = self._shared
        if not shared.filling or not shared.takes_records or not shared.has_finished:
            return
        busy = 0
        for partition in sorted(shared.filling):
            copy = shared.copies[partition]
            filling = copy.filling
            if filling is None or copy.state not in (CopyState.MOVING, CopyState.OWNING):
                shared.filling.discard(partition)
                continue
            if busy >= shared.limits.fills_max and not filling.is_level:
                continue
            busy += not filling.is_level
            self._step(copy, filling)

    def _step(self, copy: ServedCopy, filling: Filling) -> None:
        shared = self._shared
        late = shared.now_ms - filling.asked_ms >= shared.limits.resend_ms
        match filling.step:
            case FillStep.CLEAR:
                if shared.reader.has_older(copy.partition, filling.clear_until):
                    self._store(
                        copy, ClearBatch(copy.partition, filling.clear_until, shared.limits.batch_bytes)
                    )
                    filling.stage = SupplyStage.RELOAD
                else:
                    copy.tail = copy.log_start = NO_RECORD
                    copy.epochs, copy.last_ms = (), 0
                    filling.stage, filling.step = SupplyStage.ROWS, FillStep.ASK
                    self._step(copy, filling)
            case FillStep.TAIL:
                self._rewind(copy, filling, copy.tail)
            case FillStep.ASK if filling.until == copy.tail == NO_RECORD and not filling.is_level:
                filling.step = FillStep.STREAM
                self._reached(copy, filling)
            case FillStep.ASK | FillStep.WAIT if shared.name in shared.no_room and not filling.is_level:
                pass
            case FillStep.ASK:
                self._ask(copy, filling)
            case FillStep.WAIT if late:
                filling.avoided.add(filling.supplier)
                self._ask(copy, filling)
            case FillStep.STREAM:
                self._reached(copy, filling)
            case FillStep.DONE if filling.is_level and late:
                self._tell_level(copy, filling)
            case _:
                pass

    def _ask(self, copy: ServedCopy, filling: Filling) -> None:
        supplier = self._supplier(copy, filling)
        if supplier is None:
            return
        shared = self._shared
        if not filling.is_level and not shared.pace.may_ask(supplier, shared.receivers, shared.now_ms):
            filling.step = FillStep.ASK
            return
        filling.supplier, filling.step, filling.asked_ms = supplier, FillStep.WAIT, shared.now_ms
        request = request_of(filling, copy.partition, shared.basis, copy.tail, copy.epochs)
        shared.send_peer(supplier, request)

    def _supplier(self, copy: ServedCopy, filling: Filling) -> str | None:
        """Choose a supplier: the one that was named or has begun, else any owner that was not asked in vain
        (PME-114)."""
        shared, (zone, number) = self._shared, copy.partition
        outcome = shared.outcome(copy.partition)
        if shared.worker is None or outcome is None or zone not in shared.worker.held.maps:
            return None
        reports = shared.worker.held.maps[zone].reports(number)
        owners = [
            node
            for node in outcome.in_sync
            if node in shared.peers
            and node != shared.name
            and node in reports
            and reports[node].state is CopyState.OWNING
        ]
        fresh = [node for node in owners if node not in filling.avoided]
        if filling.supplier in fresh:
            return filling.supplier
        # Those that have most come first: the others are levelled themselves.
        candidates = fresh or owners
        highest = max((reports[node].position for node in candidates), default=NO_RECORD)
        return min((node for node in candidates if reports[node].position == highest), default=None)

    def supply(self, sender: str, request: SupplyRequest) -> None:
        """Answer, as the supplier, with what is on its disk now."""
        shared = self._shared
        copy = shared.copies.get(request.partition)
        if copy is None or request.basis != shared.basis or not shared.takes_records:
            return
        batch = supply(shared.reader, request.partition, copy.stored_head, request, shared.limits.batch_bytes)
        if batch is not None and batch.stage is SupplyStage.IDS:
            batch = replace(batch, last_ms=shared.last_ms(copy))
        if batch is not None:
            shared.send_peer(sender, batch)

    def supplied(self, sender: str, batch: SupplyBatch) -> None:
        shared = self._shared
        copy = shared.copies.get(batch.partition)
        filling = copy.filling if copy is not None else None
        if copy is None or filling is None or batch.basis != shared.basis or not shared.takes_records:
            return
        if filling.step is not FillStep.WAIT or filling.supplier != sender:
            return
        if _is_late(batch, copy, filling):
            return
        if not filling.is_level:
            shared.pace.took(sender, batch)
        filling.read_at = max(filling.read_at, batch.read_at)
        if batch.stage is SupplyStage.REWIND:
            self._rewind(copy, filling, batch.common)
        elif batch.stage is SupplyStage.RELOAD:
            self._reload(copy, filling)
        elif batch.stage is SupplyStage.LOG:
            self._take_records(copy, filling, batch)
        else:
            self._take_snapshot(copy, filling, batch)

    def _reload(self, copy: ServedCopy, filling: Filling) -> None:
        if filling.is_level:
            filling.avoided.add(filling.supplier)
            filling.step = FillStep.ASK
            return
        copy.is_clean = False
        self._shared.keep_head(copy)
        filling.restart()

    def _rewind(self, copy: ServedCopy, filling: Filling, common: StorePosition) -> None:
        """Drop the copy's own tail, which no owner has: its keys are fetched as the owners have them. From then
        on the copy is not clean until it owns."""
        limit = self._shared.limits
        records = self._records_between(copy, common, filling.clear_until)
        keys = tuple(sorted({item.key for record in records for item in record.changes}))
        if common < copy.log_start or len(keys) > limit.tail_keys_max:
            self._reload(copy, filling)
            return
        copy.rewind(common)
        copy.is_clean = copy.is_clean and not keys
        filling.keys = keys
        self._store(
            copy,
            DropTail(copy.partition, common, filling.clear_until, keys),
            KeepHead(copy.partition, copy.head),
        )

    def _records_between(self, copy: ServedCopy, above: StorePosition, until: StorePosition) -> list[LogRecord]:
        records: list[LogRecord] = []
        after = above
        while batch := self._shared.reader.records(copy.partition, after, self._shared.limits.batch_bytes):
            records += [item for item in batch if item.position <= until]
            after = batch[-1].position
            if after > until:
                break
        return records

    def _take_records(self, copy: ServedCopy, filling: Filling, batch: SupplyBatch) -> None:
        if batch.records and batch.records[0].previous != copy.tail:
            filling.step = FillStep.ASK
            return
        filling.keys = ()
        for record in batch.records:
            copy.extend(record)
        if filling.is_level:
            copy.stream = copy.tail
        changes = (
            KeepRows(copy.partition, batch.rows),
            KeepRecords(copy.partition, batch.records, tombstones=not filling.is_level),
            KeepHead(copy.partition, copy.head),
        )
        filling.stage = SupplyStage.LOG
        self._store(copy, *changes)

    def _take_snapshot(self, copy: ServedCopy, filling: Filling, batch: SupplyBatch) -> None:
        shared = self._shared
        if batch.stage is not filling.stage:
            filling.step = FillStep.ASK
            return
        if batch.stage is SupplyStage.IDS:
            filling.epochs = batch.epochs
            copy.last_ms = max((copy.last_ms, batch.last_ms, *(each.time_ms for each in batch.ids)))
        if batch.next_after is not None:
            filling.after = batch.next_after
            self._store(copy, KeepRows(copy.partition, batch.rows, batch.ids))
            if filling.storing < shared.limits.fill_batches_max:
                # The next batch is read and sent while this one is written.
                filling.step = FillStep.ASK
        elif filling.stage is SupplyStage.ROWS:
            filling.stage, filling.after, filling.step = SupplyStage.IDS, b"", FillStep.ASK
        else:
            filling.is_sent, filling.step = True, FillStep.STORE
            self._snapshot_reached(copy, filling)

    def _snapshot_reached(self, copy: ServedCopy, filling: Filling) -> None:
        if not filling.storing:
            copy.tail = copy.log_start = filling.until
            copy.epochs = filling.epochs or ()
            filling.step = FillStep.STREAM

    def _store(
        self, copy: ServedCopy, *changes: ClearBatch | DropTail | KeepHead | KeepRows | KeepRecords
    ) -> None:
        if copy.filling is not None:
            copy.filling.step = FillStep.STORE
            copy.filling.storing += 1
        step = StepStored(copy.partition, copy.life)
        if any(isinstance(item, KeepHead) for item in changes):
            self._shared.disk.add(*changes, stored=step)
        else:
            self._shared.disk.add_bulk(*changes, stored=step)

    def stored(self, event: StepStored) -> None:
        """Note that what was under way for a copy is on the disk."""
        shared = self._shared
        copy = shared.copies.get(event.partition)
        if copy is None or copy.life != event.life:
            return
        filling = copy.filling
        if filling is None:
            # It owns, or it was cleared: others are told.
            shared.changed = True
            return
        filling.storing = max(0, filling.storing - 1)
        if filling.step is not FillStep.STORE:
            return
        if copy.state is CopyState.RENTING:
            copy.filling = None
        elif filling.is_sent:
            self._snapshot_reached(copy, filling)
        elif filling.stage is SupplyStage.RELOAD:
            filling.step = FillStep.CLEAR
        elif filling.stage is SupplyStage.LOG and copy.tail == filling.until:
            self._log_reached(copy, filling)
        else:
            filling.step = FillStep.ASK

    def _log_reached(self, copy: ServedCopy, filling: Filling) -> None:
        if filling.is_level:
            copy.stored = copy.tail
            filling.step = FillStep.DONE
            self._tell_level(copy, filling)
        elif filling.keys:
            filling.step = FillStep.ASK
        else:
            filling.step = FillStep.STREAM
            self._reached(copy, filling)

    def _tell_level(self, copy: ServedCopy, filling: Filling) -> None:
        filling.asked_ms = self._shared.now_ms
        self._moves.levelled(copy)
        if copy.leading is not None:
            copy.filling = None
            self._shared.filling.discard(copy.partition)

    def _reached(self, copy: ServedCopy, filling: Filling) -> None:
        """All that it was sent is on the disk; what its stream has brought is on the way there, in order."""
        if copy.stream >= filling.read_at:
            filling.step = FillStep.DONE
            self._moves.own(copy)


def _is_late(batch: SupplyBatch, copy: ServedCopy, filling: Filling) -> bool:
    """Recognise an answer to a repeated request whose other answer was taken: each part is taken once, and a
    tail that was dropped is not dropped again, as its keys are to be fetched."""
    if batch.stage in (SupplyStage.ROWS, SupplyStage.IDS):
        # Earlier builds do not say after what.
        return batch.after is not None and (batch.stage, batch.after) != (filling.stage, filling.after)
    if filling.stage is not SupplyStage.LOG:
        return True
    if batch.stage is SupplyStage.LOG:
        return batch.common != copy.tail
    return batch.stage is SupplyStage.REWIND and batch.common >= copy.tail
