"""Writes on their way from a primary to the copies that it waits for, and what they set free."""

from __future__ import annotations

from collections import deque

from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.store.core.disk_changes import CutLog, KeepRecords
from rebalance.store.core.disk_queue import LogStored
from rebalance.store.core.log_records import LogRecord, position_at
from rebalance.store.core.server_books import ServerBooks
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

    def __init__(self, books: ServerBooks) -> None:
        self.released: deque[tuple[int, ReadRequest]] = deque()
        self._books = books
        self._held: deque[tuple[str, AppendRecords]] = deque(maxlen=books.limits.held_max)

    # On the primary

    def write(self, copy: ServedCopy, records: tuple[LogRecord, ...], asker: Asker) -> None:
        """New records of a partition that is led here: to the own log and to all that are waited for, at
        once. ``asker`` waits for the last one."""
        books, leading = self._books, copy.leading
        if leading is None:
            raise ValueError(f"{books.name} does not lead {copy.partition}")
        copy.take(records)
        for record in records[:-1]:
            leading.add(record, (), books.now_ms)
        leading.add(records[-1], (asker,), books.now_ms)
        books.pending.add(copy.partition)
        books.disk.add(
            KeepRecords(copy.partition, records), stored=LogStored(copy.partition, records[-1].position)
        )
        message = AppendRecords(copy.partition, books.basis, records, leading.settled)
        for peer in sorted(leading.targets):
            books.send_peer(peer, message)

    def acknowledged(self, sender: str, message: RecordsStored) -> None:
        copy = self._books.copies.get(message.partition)
        if copy is not None and copy.leading is not None and message.basis == self._books.basis:
            copy.leading.acknowledge(sender, message.position)
            self.settle(copy)

    def settle(self, copy: ServedCopy) -> None:
        if copy.leading is None:
            return
        for write in copy.leading.settle(self._books.peers):
            self._answer(write)
            self.released.extend(write.reads)
        copy.settled = copy.leading.settled
        if not copy.leading.pending:
            self._books.pending.discard(copy.partition)

    def removed(self) -> None:
        """The ring removed a server: primaries wait for it no more."""
        for partition in sorted(self._books.pending):
            self.settle(self._books.copies[partition])

    def resend(self, to: str = "") -> None:
        """Send unacknowledged records again: to a server whose connection is new, else to the late ones."""
        books = self._books
        for partition in sorted(books.pending):
            leading = books.copies[partition].leading
            if leading is None or not leading.pending:
                continue
            oldest = leading.pending[0]
            if not to and books.now_ms - oldest.since_ms < books.limits.resend_ms:
                continue
            oldest.since_ms = books.now_ms
            for peer in [to] if to in leading.targets else leading.lagging(books.peers) if not to else ():
                records = leading.missing_at(peer)
                if records:
                    books.send_peer(peer, AppendRecords(partition, books.basis, records, leading.settled))

    def _answer(self, write: PendingWrite) -> None:
        position, version = write.record.position, self._books.basis
        for client, request, repeated in write.askers:
            answer = StoreAnswer(request, AnswerCode.DONE, version, position=position, repeated=repeated)
            self._books.out.append(Reply(client, answer, self._books.life.until_ms, AnswerCode.UNKNOWN))

    # On the other copies

    def append(self, sender: str, message: AppendRecords) -> None:
        """Append the primary's records; those of an older exchange are dropped. Of one that has not ended here:
        it waits. What does not follow is dropped, too: the primary sends it again, from the first that is
        missing."""
        books = self._books
        if message.basis > books.basis:
            self._held.append((sender, message))
            return
        copy = books.copies.get(message.partition)
        if message.basis != books.basis or not books.takes_records or copy is None:
            return
        if books.primary(message.partition) != sender or copy.state not in (CopyState.OWNING, CopyState.MOVING):
            return
        records = copy.follows(message.records)
        if records is None:
            return
        copy.settled = max(copy.settled, message.settled)
        if records:
            copy.take(records)
            keep = KeepRecords(copy.partition, records, tombstones=copy.state is CopyState.MOVING)
            books.disk.add(keep, stored=LogStored(copy.partition, copy.stream))
        elif copy.stored == copy.stream:
            self.tell_stored(copy)

    def stored(self, event: LogStored) -> None:
        """Records are on the disk: the primary counts them, another copy acknowledges them."""
        copy = self._books.copies.get(event.partition)
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
        limits, outcome = self._books.limits, self._books.outcome(copy.partition)
        length = copy.tail.counter - copy.log_start.counter
        keep = limits.log_reserved if outcome is not None and outcome.filling else limits.log_keep
        if copy.state is not CopyState.OWNING or length < 2 * keep:
            return
        until = position_at(copy.epochs, min(copy.tail.counter - keep, copy.settled.counter))
        if until > copy.log_start:
            copy.log_start = until
            self._books.disk.add(CutLog(copy.partition, until, copy.last_ms - limits.id_keep_ms))
            self._books.keep_head(copy)

    def tell_stored(self, copy: ServedCopy) -> None:
        primary = self._books.primary(copy.partition)
        if primary is not None:
            message = RecordsStored(copy.partition, self._books.basis, copy.stored)
            self._books.send_peer(primary, message)

    def go_on(self) -> None:
        """An exchange ended: what came before it did."""
        held = list(self._held)
        self._held.clear()
        for sender, message in held:
            self.append(sender, message)
