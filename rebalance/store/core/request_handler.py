"""Requests of clients: which are refused, which wait, and which are carried out on which version.

Nothing is held while a request waits: an exchange that ends lets all of them begin anew (PME-040, PME-042).
One that nobody waits for any more is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from enum import Enum

from rebalance.core.partition_maps.partition_map import NO_RECORD, StorePosition
from rebalance.core.recovery.loss_policy import Access, why_refused
from rebalance.store.core.log_records import LogRecord, PartitionKey, WriteId, abandoned_mark
from rebalance.store.core.replication import Replication
from rebalance.store.core.shared_state import SharedState
from rebalance.store.core.store_copy import Leading, ServedCopy
from rebalance.store.core.store_effects import Reply
from rebalance.store.core.store_messages import AnswerCode, ReadRequest, StoreAnswer, WriteRequest

Request = ReadRequest | WriteRequest


class RequestTurn(Enum):
    WAIT = "WAIT"  # for an exchange, or for the levelling of the partition


class RequestHandler:
    def __init__(self, shared: SharedState, replication: Replication) -> None:
        self._shared = shared
        self._replication = replication
        self._waiting: deque[tuple[int, Request, int]] = deque()
        """Waiting requests, each with the time until which its client waits."""

    def take(self, client: int, request: Request, until_ms: int = 0) -> None:
        """``until_ms``: of a request that has waited here; 0: it comes just now."""
        now_ms = self._shared.now_ms
        until_ms = until_ms or (now_ms + request.left_ms if request.left_ms > 0 else _ANY_TIME_MS)
        if until_ms < now_ms:
            return
        turn = self._judged(request)
        if turn is RequestTurn.WAIT:
            if len(self._waiting) >= self._shared.limits.waiting_max:
                self._waiting = deque(item for item in self._waiting if item[2] >= now_ms)
            if len(self._waiting) < self._shared.limits.waiting_max:
                self._waiting.append((client, request, until_ms))
            else:
                self._refuse(client, request, AnswerCode.TOO_MANY, "too many requests wait for an exchange")
            return
        if isinstance(turn, tuple):
            self._refuse(client, request, *turn)
            return
        if isinstance(request, ReadRequest):
            self._read(client, request, turn)
        else:
            self._write(client, request, turn)

    def go_on(self) -> None:
        """Continue the requests that waited for something that has ended."""
        waiting, self._waiting = self._waiting, deque()
        while waiting:
            self.take(*waiting.popleft())
        while self._replication.released:
            self.take(*self._replication.released.popleft())

    def gone(self, client: int) -> None:
        self._waiting = deque(item for item in self._waiting if item[0] != client)

    def _judged(self, request: Request) -> ServedCopy | RequestTurn | tuple[AnswerCode, str]:
        """The copy that carries it out, which is led here; or why not."""
        shared, key = self._shared, (request.zone, request.partition)
        if not shared.life.serves(shared.now_ms):
            return AnswerCode.NOT_SERVING, f"{shared.name} has no confirmed heartbeat"
        if shared.leaving:
            return AnswerCode.NOT_SERVING, f"{shared.name} is about to leave"
        if shared.worker is None:
            return AnswerCode.NOT_SERVING, f"{shared.name} has not joined the ring"
        if not shared.has_finished:
            return RequestTurn.WAIT
        cluster, held = shared.worker.cluster, shared.worker.held
        zone = cluster.zones.get(request.zone)
        if zone is None:
            return AnswerCode.NO_ZONE, f"zone {request.zone} does not exist"
        if request.zone not in cluster.open_zones:
            return AnswerCode.RESTING, f"zone {request.zone} is deactivated"
        if request.partition >= zone.partitions:
            return AnswerCode.NO_ZONE, f"zone {request.zone} has partitions 0 to {zone.partitions - 1}"
        if not shared.takes_writes:
            return RequestTurn.WAIT
        access = Access.READ if isinstance(request, ReadRequest) else Access.WRITE
        lost = held.lost.get(request.zone, frozenset())
        refusal = why_refused(zone.policy, access, request.partition, lost)
        if refusal:
            return AnswerCode.LOST, refusal
        if request.zone not in held.maps:
            return RequestTurn.WAIT
        copy, primary = shared.copies.get(key), shared.primary(key)
        if primary is None:
            outcome = shared.outcome(key)
            members = ", ".join(outcome.in_sync) if outcome is not None else ""
            if request.partition in lost:
                detail = f"partition {request.partition} is lost, and no whole copy is left of it"
                return AnswerCode.LOST, f"{detail}; in-sync copies were on {members or 'no server'}"
            return AnswerCode.WAITING_FOR_OWNERS, f"in-sync copies are on {members or 'no server'}"
        if primary != shared.name or copy is None or copy.leading is None:
            return AnswerCode.NOT_PRIMARY, f"{primary} leads partition {request.partition}"
        return RequestTurn.WAIT if copy.leading.unlevelled else copy

    def _refuse(
        self, client: int, request: Request, code: AnswerCode, detail: str, *, abandoned: bool = False
    ) -> None:
        """Refuse a request of which nothing was done, so no clock matters."""
        shared = self._shared
        primary = shared.primary((request.zone, request.partition)) or ""
        answer = StoreAnswer(
            request.request, code, shared.basis, primary=primary, detail=detail, abandoned=abandoned
        )
        shared.out.append(Reply(client, answer, _ANY_TIME_MS, code))

    def _read(self, client: int, request: ReadRequest, copy: ServedCopy) -> None:
        """Answer a read with what all waited-for copies have; a key with a pending write waits for it."""
        shared = self._shared
        pending = copy.leading.by_key.get(request.key) if copy.leading is not None else None
        if pending is not None:
            if len(pending.reads) < shared.limits.pending_max:
                pending.reads.append((client, request))
            else:
                self._refuse(client, request, AnswerCode.TOO_MANY, "too many reads wait for a write of the key")
            return
        row = shared.reader.row(copy.partition, request.key)
        answer = StoreAnswer(
            request.request,
            AnswerCode.DONE,
            shared.basis,
            value=row.value if row is not None else None,
            position=row.position if row is not None else NO_RECORD,
        )
        shared.out.append(Reply(client, answer, shared.life.until_ms, AnswerCode.NOT_SERVING))

    def _write(self, client: int, request: WriteRequest, copy: ServedCopy) -> None:
        shared, leading = self._shared, copy.leading
        if leading is None:
            return
        pending = leading.by_id.get(request.write)
        if pending is not None:
            if abandoned_mark(request.write) in leading.by_id:
                self._refuse(client, request, AnswerCode.UNKNOWN, "a later write is about to abandon it")
            elif len(pending.askers) < shared.limits.pending_max:
                pending.askers.append((client, request.request, True))
            else:
                self._refuse(client, request, AnswerCode.UNKNOWN, "too many repeats wait for the write")
            return
        stored = shared.reader.write_id(copy.partition, request.write)
        if stored is not None:
            if shared.reader.write_id(copy.partition, abandoned_mark(request.write)) is not None:
                detail = f"write {request.write} was abandoned by a later one"
                self._refuse(client, request, AnswerCode.CONFLICT, detail, abandoned=True)
                return
            done = StoreAnswer(
                request.request, AnswerCode.DONE, shared.basis, position=stored.position, repeated=True
            )
            shared.out.append(Reply(client, done, shared.life.until_ms, AnswerCode.UNKNOWN))
            return
        refusal = self._refusal(request, copy.partition, leading)
        if refusal is not None:
            self._refuse(client, request, *refusal)
            return
        records = self._records(request, copy, leading)
        self._replication.write(copy, records, (client, request.request, False))

    def _records(self, request: WriteRequest, copy: ServedCopy, leading: Leading) -> tuple[LogRecord, ...]:
        """The write's own is the last; before it, without changes, those that take the ids of what it abandons.
        So a copy that has the write has them, and an earlier build knows what they are."""
        shared = self._shared
        if leading.base_ms is None:
            leading.base_ms = shared.last_ms(copy)
        time_ms = leading.base_ms + shared.now_ms - leading.since_ms
        taken: list[WriteId] = []
        for write in dict.fromkeys(request.abandons):
            if write == request.write:
                continue
            if write not in leading.by_id and shared.reader.write_id(copy.partition, write) is None:
                taken += [write, abandoned_mark(write)]
        records: list[LogRecord] = []
        previous = copy.tail
        for write in (*taken, request.write):
            position = StorePosition(leading.epoch, previous.counter + 1)
            changes = request.changes if write == request.write else ()
            records.append(LogRecord(write, position, previous, time_ms, changes))
            previous = position
        return tuple(records)

    def _refusal(
        self, request: WriteRequest, key: PartitionKey, leading: Leading
    ) -> tuple[AnswerCode, str] | None:
        shared, limits = self._shared, self._shared.limits
        largest = max((len(item.value or b"") for item in request.changes), default=0)
        size = sum(len(item.key) + len(item.value or b"") for item in request.changes)
        if largest > limits.value_bytes_max or size > limits.transaction_bytes_max:
            return AnswerCode.TOO_LARGE, f"a value has at most {limits.value_bytes_max} bytes"
        full = shared.no_room & {shared.name, *leading.targets}
        if full:
            return AnswerCode.NO_ROOM, f"{full_disks(full)}; reads go on, and writes will by themselves"
        if len(leading.pending) >= limits.pending_max:
            return AnswerCode.TOO_MANY, f"partition {key[1]} has {limits.pending_max} pending writes"
        if request.reads and request.age_ms > limits.transaction_age_ms:
            return AnswerCode.TOO_OLD, f"a transaction ends within {limits.transaction_age_ms} ms"
        for item in request.reads:
            row = shared.reader.row(key, item.key)
            position = row.position if row is not None and row.value is not None else NO_RECORD
            if position != item.position or item.key in leading.by_key:
                return AnswerCode.CONFLICT, "a key that the transaction read has changed"
        return None


def full_disks(nodes: Collection[str]) -> str:
    """Name the full disks and what to do, for people."""
    names = ", ".join(sorted(nodes))
    return f"no room on the disk of {names}: free space there, or drain the node with `zonectl node drain`"


_ANY_TIME_MS = 1 << 62
