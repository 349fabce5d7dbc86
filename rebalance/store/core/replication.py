"""Writes on their way from a primary to the copies that it waits for, and what they set free."""

from __future__ import annotations

from collections import deque

from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.store.core.disk_changes import CutLog, KeepRecords
from rebalance.store.core.disk_queue import LogStored
from rebalance.store.core.log_records import LogRecord, position_at
from rebalance.store.core.shared_state import SharedState
from rebalance.store.core.store_copy import Asker, PendingWrite, ServedCopy
from rebalance.store.core.store_effects import Reply
from rebalance.store.core.store_messages import (
    AnswerCode,
    AppendRecords,
    ReadRequest,
    RecordsStored,
    StoreAnswer,
)


class Replication:
    """``released``: reads that waited for a write and go on now."""

    def __init__(self, shared: SharedState) -> None:
        self.released: deque[tuple[int, ReadRequest]] = deque()
        self._shared = shared
        self._held: deque[tuple[str, AppendRecords]] = deque(maxlen=shared.limits.held_max)

    # On the primary

    def write(self, copy: ServedCopy, records: tuple[LogRecord, ...], asker: Asker) -> None:
        """New records of a partition that is led here: to the own log and to all that are waited for, at
        once. ``asker`` waits for the last one."""
        shared, leading = self._shared, copy.leading
        if leading is None:
            raise ValueError(f"{shared.name} does not lead {copy.partition}")
        copy.take(records)
        for record in records[:-1]:
            leading.add(record, (), shared.now_ms)
        leading.add(records[-1], (asker,), shared.now_ms)
        shared.pending.add(copy.partition)
        shared.disk.add(
            KeepRecords(copy.partition, records), stored=LogStored(copy.partition, records[-1].position)
        )
        message = AppendRecords(copy.partition, shared.basis, records, leading.settled)
        for peer in sorted(leading.targets):
            shared.send_peer(peer, message)

    def acknowledged(self, sender: str, message: RecordsStored) -> None:
        copy = self._shared.copies.get(message.partition)
        if copy is not None and copy.leading is not None and message.basis == self._shared.basis:
            copy.leading.acknowledge(sender, message.position)
            self.settle(copy)

    def settle(self, copy: ServedCopy) -> None:
        if copy.leading is None:
            return
        for write in copy.leading.settle(self._shared.peers):
            self._answer(write)
            self.released.extend(write.reads)
        copy.settled = copy.leading.settled
        if not copy.leading.pending:
            self._shared.pending.discard(copy.partition)

    def removed(self) -> None:
        """The ring removed a server: primaries wait for it no more."""
        for partition in sorted(self._shared.pending):
            self.settle(self._shared.copies[partition])

    def resend(self, to: str = "") -> None:
        """Send unacknowledged records again: to a server whose connection is new, else to the late ones."""
        shared = self._shared
        for partition in sorted(shared.pending):
            leading = shared.copies[partition].leading
            if leading is None or not leading.pending:
                continue
            oldest = leading.pending[0]
            if not to and shared.now_ms - oldest.since_ms < shared.limits.resend_ms:
                continue
            oldest.since_ms = shared.now_ms
            for peer in [to] if to in leading.targets else leading.lagging(shared.peers) if not to else ():
                records = leading.missing_at(peer)
                if records:
                    shared.send_peer(peer, AppendRecords(partition, shared.basis, records, leading.settled))

    def _answer(self, write: PendingWrite) -> None:
        position, version = write.record.position, self._shared.basis
        for client, request, repeated in write.askers:
            answer = StoreAnswer(request, AnswerCode.DONE, version, position=position, repeated=repeated)
            self._shared.out.append(Reply(client, answer, self._shared.life.until_ms, AnswerCode.UNKNOWN))

    # On the other copies

    def append(self, sender: str, message: AppendRecords) -> None:
        """Append the primary's records; those of an older exchange are dropped. Of one that has not ended here:
        it waits. What does not follow is dropped, too: the primary sends it again, from the first that is
        missing."""
        shared = self._shared
        if message.basis > shared.basis:
            self._held.append((sender, message))
            return
        copy = shared.copies.get(message.partition)
        if message.basis != shared.basis or not shared.takes_records or copy is None:
            return
        if shared.primary(message.partition) != sender or copy.state not in (
            CopyState.OWNING,
            CopyState.MOVING,
        ):
            return
        records = copy.follows(message.records)
        if records is None:
            return
        copy.settled = max(copy.settled, message.settled)
        if records:
            copy.take(records)
            keep = KeepRecords(copy.partition, records, tombstones=copy.state is CopyState.MOVING)
            shared.disk.add(keep, stored=LogStored(copy.partition, copy.stream))
        elif copy.stored == copy.stream:
            self.tell_stored(copy)

    def stored(self, event: LogStored) -> None:
        """Records are on the disk: the primary counts them, another copy acknowledges them."""
        copy = self._shared.copies.get(event.partition)
        if copy is None or event.position <= copy.stored:
            return
        copy.stored = event.position
        self._cut(copy)
        if copy.leading is not None:
            copy.leading.stored = event.position
            self.settle(copy)
        else:
            self.tell_stored(copy)

    def _cut(self, copy: ServedCopy) -> None:
        """Drop the oldest records of a long log; never one that some owner may not have. While a copy is filled
        they are reserved, up to a limit (PME-054)."""
        limits, outcome = self._shared.limits, self._shared.outcome(copy.partition)
        length = copy.tail.counter - copy.log_start.counter
        keep = limits.log_reserved if outcome is not None and outcome.filling else limits.log_keep
        if copy.state is not CopyState.OWNING or length < 2 * keep:
            return
        until = position_at(copy.epochs, min(copy.tail.counter - keep, copy.settled.counter))
        if until > copy.log_start:
            copy.log_start = until
            self._shared.disk.add(CutLog(copy.partition, until, copy.last_ms - limits.id_keep_ms))
            self._shared.keep_head(copy)

    def tell_stored(self, copy: ServedCopy) -> None:
        primary = self._shared.primary(copy.partition)
        if primary is not None:
            message = RecordsStored(copy.partition, self._shared.basis, copy.stored)
            self._shared.send_peer(primary, message)

    def go_on(self) -> None:
        """An exchange ended: what came before it did."""
        held = list(self._held)
        self._held.clear()
        for sender, message in held:
            self.append(sender, message)
