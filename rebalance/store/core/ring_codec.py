"""Events of the ring, its state and results of exchanges as values of keys (``tech-notes/keyspace.md``).

Every document is one of ``catalog.core.codec``: JSON with a version ``v``. Versions are texts as "6.1". Results
name thousands of partitions, so theirs are rows without names and come in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.core.codec import Codec, Form, listed, natural, optional, sequence, text
from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.store_positions import StorePosition
from rebalance.core.partition_maps.topology_version import Cluster, DiscoveryEvent, TopologyVersion, ZoneSpec
from rebalance.exchange.core.result_record import GoneServer, PartitionOutcome, ResultRecord
from rebalance.store.core.ring_records import RingRecord, RingState

CHUNK_ROWS = 2_000
"""Partitions in one value: some 200 KB."""

OutcomeRow = tuple[ZoneId, int, PartitionOutcome]
"""Zone, partition, and what is so there."""


def _version(stored: Any) -> TopologyVersion:
    return TopologyVersion.parse(text(stored))


def _names(stored: Any) -> tuple[str, ...]:
    return tuple(map(text, sequence(text)(stored)))


def _pair(stored: Any) -> tuple[Any, Any]:
    if type(stored) is not list or len(stored) != 2:
        raise ValueError(f"not a pair: {stored!r:.80}")
    return stored[0], stored[1]


def _gone(stored: Any) -> GoneServer:
    """Two entries, and a third one where it left in order."""
    if type(stored) is list and len(stored) == 3 and stored[2] is True:
        return GoneServer(_version(stored[0]), text(stored[1]), in_order=True)
    version, name = _pair(stored)
    return GoneServer(_version(version), text(name))


def _gone_document(gone: GoneServer) -> list[Any]:
    return [str(gone.version), gone.name, *([True] if gone.in_order else [])]


def _born(stored: Any) -> dict[ZoneId, TopologyVersion]:
    return {ZoneId(natural(zone)): _version(version) for zone, version in sequence(_pair)(stored)}


def _zone_ids(stored: Any) -> frozenset[ZoneId]:
    return frozenset(ZoneId(natural(zone)) for zone in sequence(natural)(stored))


def _row(stored: Any) -> OutcomeRow:
    if type(stored) is not list or len(stored) != 9:
        raise ValueError(f"not a row of an outcome: {stored!r:.80}")
    zone, partition, in_sync, filling, epoch, counter, primary_epoch, effective, is_lost = stored
    if type(is_lost) is not bool:
        raise ValueError(f"neither true nor false: {is_lost!r:.80}")
    position = StorePosition(natural(epoch), natural(counter))
    outcome = PartitionOutcome(
        _names(in_sync), _names(filling), position, natural(primary_epoch), _names(effective), is_lost
    )
    return ZoneId(natural(zone)), natural(partition), outcome


def _row_document(row: OutcomeRow) -> list[Any]:
    zone, partition, outcome = row
    lists = (list(outcome.in_sync), list(outcome.filling), *outcome.position)
    return [zone, partition, *lists, outcome.epoch, list(outcome.effective), outcome.is_lost]


VERSION = Form(_version, str)
NAMES = Form(lambda stored: frozenset(_names(stored)), sorted)
ROWS = listed(Form(_row, _row_document))

_SPEC: Codec[ZoneSpec] = Codec(ZoneSpec, omit=("life",))
_EVENT: Codec[DiscoveryEvent] = Codec(
    DiscoveryEvent,
    omit=("is_client", "zones", "baseline", "basis", "node", "order", "dead"),
    forms={
        "zones": listed(_SPEC.form),
        "version": VERSION,
        "baseline": optional(NAMES),
        "basis": optional(VERSION),
        "dead": NAMES,
    },
)
_RECORD: Codec[RingRecord] = Codec(RingRecord, omit=("incarnation",), forms={"event": _EVENT.form})
_CLUSTER: Codec[Cluster] = Codec(
    Cluster,
    omit=("resting",),
    forms={
        "version": VERSION,
        "baseline": optional(NAMES),
        "zones": Form(
            lambda stored: {spec.zone_id: spec for spec in sequence(_SPEC.value)(stored)},
            lambda zones: [_SPEC.document(spec) for spec in zones.values()],
        ),
        "born": Form(_born, lambda born: [[zone, str(version)] for zone, version in born.items()]),
        "resting": Form(_zone_ids, sorted),
    },
)
_STATE: Codec[RingState] = Codec(
    RingState,
    forms={
        "cluster": _CLUSTER.form,
        "gone": listed(Form(_gone, _gone_document)),
    },
)


@dataclass(frozen=True, slots=True)
class ResultHead:
    """The value of ``exchange/results/<exchange>``, whose creation commits the result. ``rows``: where they are
    few; else they are in ``chunks`` values below ``parts``, which is a name of the writer's own."""

    exchange: TopologyVersion
    version: TopologyVersion
    previous: TopologyVersion
    parts: str = ""
    chunks: int = 0
    rows: tuple[OutcomeRow, ...] = ()

    def record(self, rows: Sequence[OutcomeRow]) -> ResultRecord:
        """``rows``: of all chunks."""
        changed: dict[ZoneId, dict[int, PartitionOutcome]] = {}
        for zone, partition, outcome in (*self.rows, *rows):
            changed.setdefault(zone, {})[partition] = outcome
        return ResultRecord(self.exchange, self.version, self.previous, changed)


@dataclass(frozen=True, slots=True)
class FoldHead:
    """The value of ``exchange/folded_results``: what all results up to that of ``version`` say is in ``chunks``
    values below ``parts``."""

    version: TopologyVersion
    parts: str
    chunks: int


@dataclass(frozen=True, slots=True)
class ServerBeat:
    """The value of ``exchange/servers/<name>/<incarnation>``: where it listens, the last exchange that it
    finished, before it joins the members that it does not reach, and after how long without a heartbeat it is
    failed (0: as the controller has it)."""

    host: str
    port: int
    finished: TopologyVersion
    cut_from: tuple[str, ...] = ()
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Chunk:
    rows: tuple[OutcomeRow, ...] = field(default=())


_VERSIONS = {"exchange": VERSION, "version": VERSION, "previous": VERSION, "rows": ROWS}
_HEAD: Codec[ResultHead] = Codec(ResultHead, omit=("parts", "chunks", "rows"), forms=_VERSIONS)
_FOLD: Codec[FoldHead] = Codec(FoldHead, forms={"version": VERSION})
_CHUNK: Codec[_Chunk] = Codec(_Chunk, forms={"rows": ROWS})
_BEAT: Codec[ServerBeat] = Codec(ServerBeat, omit=("cut_from", "ttl_ms"), forms={"finished": VERSION})

# Each ``decode`` raises RecordNotReadableError, whatever the bytes are.
encode_event, decode_event = _RECORD.encode, _RECORD.decode
encode_ring, decode_ring = _STATE.encode, _STATE.decode
encode_result, decode_result = _HEAD.encode, _HEAD.decode
encode_fold, decode_fold = _FOLD.encode, _FOLD.decode
encode_beat, decode_beat = _BEAT.encode, _BEAT.decode


def encode_chunk(rows: Sequence[OutcomeRow]) -> bytes:
    return _CHUNK.encode(_Chunk(tuple(rows)))


def decode_chunk(value: bytes) -> tuple[OutcomeRow, ...]:
    return _CHUNK.decode(value).rows


def outcome_chunks(
    changed: Mapping[ZoneId, Mapping[int, PartitionOutcome]],
) -> Iterator[tuple[OutcomeRow, ...]]:
    """Split a result's outcome rows, up to ``CHUNK_ROWS`` each."""
    rows = [
        (zone, partition, outcome)
        for zone, outcomes in changed.items()
        for partition, outcome in outcomes.items()
    ]
    for first in range(0, len(rows), CHUNK_ROWS):
        yield tuple(rows[first : first + CHUNK_ROWS])
