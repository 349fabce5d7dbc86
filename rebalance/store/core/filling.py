"""State of filling or levelling a copy: the step under way, the server asked, and a supplier's answers.

The receiver keeps the bandwidth limits of moves, which set the pace of filling copies. Every server may receive
a node's rate, and its part of the cluster's. From one supplier it takes no more than an equal part of a node's
rate, so that all who ask one supplier together take no more than that. Parts are those of the servers that have
copies to be filled by the last exchange: a server that joins alone takes all of a rate. So limits are never
passed by more than what is on its way. They are not reached where some of these servers have been filled
already, until the next exchange, or ask different suppliers. Levelling waits for none of them: a partition is
not served meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from rebalance.core.admission.move_admission import ByteRates, TokenBuckets
from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.store.core.disk_changes import StoreReader
from rebalance.store.core.log_records import CopyHead, EpochTable, PartitionKey, last_common
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
    is_rows = request.stage is SupplyStage.ROWS
    stage = SupplyStage.ROWS if is_rows else SupplyStage.IDS
    batch = SupplyBatch(
        partition, request.basis, stage, common=NO_RECORD, read_at=head.tail, after=request.after
    )
    if is_rows:
        rows = reader.rows(partition, request.after, limit_bytes)
        return replace(batch, rows=rows, next_after=rows[-1].key if rows else None)
    ids = reader.ids(partition, request.after, limit_bytes)
    following = ids[-1].write.encode() if ids else None
    return replace(batch, ids=ids, epochs=epochs_until(head.epochs, request.until), next_after=following)


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


@dataclass(slots=True)
class FillPace:
    """``rates``: those of the limits. Times in milliseconds, of the server's clock."""

    rates: ByteRates = field(default_factory=ByteRates)
    _buckets: TokenBuckets = field(default_factory=TokenBuckets)

    def may_ask(self, supplier: str, receivers: int, now_ms: int) -> bool:
        """``receivers``: how many servers copies are filled on, this one among them."""
        if not self.rates.is_limiting:
            return True
        own = self._own(max(1, receivers))
        self._buckets = self._buckets.at(now_ms, own)
        return not (self._buckets.cluster_cause(own) or self._buckets.node_cause(supplier, own))

    def took(self, supplier: str, batch: SupplyBatch) -> None:
        if self.rates.is_limiting:
            size = sum(record.size for record in batch.records) + sum(row.size for row in batch.rows)
            # One receiver, which is us: what we receive is the cluster of this bucket.
            self._buckets.take((supplier,), ("",), size)

    def _own(self, receivers: int) -> ByteRates:
        node, cluster = self.rates.node_bytes_s, self.rates.cluster_bytes_s
        parts = [rate for rate in (node, cluster and max(1, cluster // receivers)) if rate]
        return ByteRates(min(parts), node and max(1, node // receivers))
