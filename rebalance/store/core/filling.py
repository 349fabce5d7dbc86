"""State of filling or levelling a copy: the step under way, the server asked, and a supplier's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from rebalance.core.partition_maps.affinity import CopyState
from rebalance.core.partition_maps.store_positions import NO_RECORD, StorePosition
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.store.core.disk_changes import StoreReader
from rebalance.store.core.log_records import (
    CopyHead,
    EpochTable,
    PartitionKey,
    StoredRow,
    last_common,
)
from rebalance.store.core.store_messages import SupplyBatch, SupplyRequest, SupplyStage


class FillStep(Enum):
    """Next step of a copy, or what it waits for."""

    CLEAR = "CLEAR"  # removes what is older than its stream
    TAIL = "TAIL"  # drops records of an earlier stream, after a gap
    ASK = "ASK"  # sends the next request
    WAIT = "WAIT"  # for the answer
    STORE = "STORE"  # for the disk: for all that is on its way there, or for the first of many batches
    STREAM = "STREAM"  # for its stream to come as far as the rows that it was sent
    DONE = "DONE"  # its last step is on the way to the disk


@dataclass(slots=True)
class Filling:
    """``until``: the position that it has to reach: where the stream of a MOVING copy begins, or the highest of
    the owners. ``clear_until``: everything up to it is of another life: the primary's epoch makes it higher
    than all records of older epochs. ``keys``: of a tail that was dropped. ``storing``: how many of its steps
    are on the way to the disk. ``is_sent``: a snapshot was sent to its end."""

    until: StorePosition
    clear_until: StorePosition
    is_level: bool = False
    step: FillStep = FillStep.ASK
    stage: SupplyStage = SupplyStage.LOG
    supplier: str = ""
    after: bytes = b""
    keys: tuple[bytes, ...] = ()
    epochs: EpochTable | None = None
    read_at: StorePosition = NO_RECORD
    asked_ms: int = 0
    storing: int = 0
    is_sent: bool = False
    avoided: set[str] = field(default_factory=set)

    def restart(self) -> None:
        """Start again from the beginning, by snapshot."""
        self.step, self.stage, self.after, self.keys = FillStep.CLEAR, SupplyStage.ROWS, b"", ()


def supply(
    reader: StoreReader, partition: PartitionKey, head: CopyHead, request: SupplyRequest, limit_bytes: int
) -> SupplyBatch | None:
    """The answer of an owner with this head, which is on its disk. None: not now, ask somebody else.

    Records are never supplied across a gap, nor beyond ``until``, as what comes after it reaches the asker by
    its stream.
    """
    if head.state is not CopyState.OWNING or not head.holds(request.until):
        return None
    if request.stage is SupplyStage.LOG:
        return _log(reader, partition, head, request, limit_bytes)
    rows: tuple[StoredRow, ...] = ()
    if request.stage is SupplyStage.ROWS:
        rows = reader.rows(partition, request.after, limit_bytes)
        following = rows[-1].key if rows else None
        return SupplyBatch(
            partition,
            request.basis,
            stage=SupplyStage.ROWS,
            common=NO_RECORD,
            rows=rows,
            read_at=head.tail,
            after=request.after,
            next_after=following,
        )
    ids = reader.ids(partition, request.after, limit_bytes)
    return SupplyBatch(
        partition,
        request.basis,
        stage=SupplyStage.IDS,
        common=NO_RECORD,
        ids=ids,
        epochs=epochs_until(head.epochs, request.until),
        read_at=head.tail,
        after=request.after,
        next_after=ids[-1].write.encode() if ids else None,
    )


def _log(
    reader: StoreReader, partition: PartitionKey, head: CopyHead, request: SupplyRequest, limit_bytes: int
) -> SupplyBatch:
    epochs = epochs_until(head.epochs, request.until)
    common = last_common(epochs, request.until, request.epochs, request.tail)
    if common < head.log_start or (request.level and common != request.tail):
        return SupplyBatch(partition, request.basis, SupplyStage.RELOAD, common)
    if common != request.tail:
        return SupplyBatch(partition, request.basis, SupplyStage.REWIND, common)
    records = tuple(
        item for item in reader.records(partition, common, limit_bytes) if item.position <= request.until
    )
    rows = (reader.row(partition, key) for key in request.keys)
    reached = records[-1].position if records else common
    return SupplyBatch(
        partition,
        request.basis,
        stage=SupplyStage.LOG,
        common=common,
        records=records,
        rows=tuple(item for item in rows if item is not None),
        read_at=head.tail if request.keys else NO_RECORD,
        next_after=None if reached == request.until else b"",
    )


def epochs_until(epochs: EpochTable, position: StorePosition) -> EpochTable:
    return tuple(item for item in epochs if item.after < position.counter)


def request_of(
    filling: Filling, partition: PartitionKey, basis: TopologyVersion, tail: StorePosition, epochs: EpochTable
) -> SupplyRequest:
    return SupplyRequest(
        partition,
        basis,
        filling.is_level,
        filling.until,
        tail,
        epochs,
        filling.stage,
        after=filling.after,
        keys=filling.keys,
    )
