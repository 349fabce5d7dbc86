"""Events of the ring, its state and results of exchanges, as values of keys and as they are read from them.

``exchange/events/<number>`` is one guarded sequence; ``exchange/ring`` is a snapshot of its state now and then
(``tech-notes/keyspace.md``). Every document is one of ``catalog.core.codec``: JSON with a version ``v``.
Versions are texts as "6.1". Results name thousands of partitions, so theirs are rows without names and come in
chunks.

Servers and controllers read alike: results in their order, the lists of a zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from catalog.core.codec import Codec, Form, listed, natural, sequence, text
from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import ASSIGNING, Keyspace
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.core.partition_maps.topology_version import (
    NO_VERSION,
    Cluster,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
    ZoneSpec,
)
from rebalance.exchange.core.exchange_messages import (
    GoneServer,
    Lists,
    PartitionOutcome,
    ResultRecord,
    ResultState,
)


@dataclass(frozen=True, slots=True)
class RingRecord:
    """``number`` counts from 1 without a gap. ``incarnation``: of the server that joined, left or failed; a
    name is another server with each of them."""

    number: int
    event: DiscoveryEvent
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class RingState:
    """State of the ring after event ``number``. ``incarnations``: by name of each server that is there.
    ``gone``: who went when, in order: results that are older do not know of it. Only the order matters, as the
    last member of an in-sync set stays in it, so a name that went twice with no other between is there once,
    and failed if it did so once."""

    number: int = 0
    cluster: Cluster = field(default_factory=Cluster)
    incarnations: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[GoneServer, ...] = ()

    def after(self, record: RingRecord) -> RingState:
        """Raises ValueError for a record that is not the next."""
        if record.number != self.number + 1:
            raise ValueError(f"event {record.number} of the ring came after event {self.number}")
        event, incarnations, gone = record.event, dict(self.incarnations), self.gone
        if event.trigger is Trigger.NODE_JOINED:
            incarnations[event.node] = record.incarnation
        elif event.trigger in (Trigger.NODE_LEFT, Trigger.NODE_FAILED):
            incarnations.pop(event.node, None)
            again = bool(gone) and gone[-1].name == event.node
            in_order = event.trigger is Trigger.NODE_LEFT and (not again or gone[-1].in_order)
            gone = (*(gone[:-1] if again else gone), GoneServer(event.version, event.node, in_order))
        cluster = self.cluster.after(event)
        return replace(self, number=record.number, cluster=cluster, incarnations=incarnations, gone=gone)

    def since(self, result: TopologyVersion) -> RingState:
        """Return the state without servers whose end the result of that version knows."""
        return replace(self, gone=tuple(each for each in self.gone if each.version > result))


@dataclass(frozen=True, slots=True)
class StoreStart:
    """State that a server reads at one revision of etcd before it joins: the ring, and all results.
    ``format_version`` of its own disk was checked by the shell. ``metastore_epoch``: higher after each time
    that etcd was adopted from a backup. ``finished``: the last exchange that a server of its name has told to
    have finished. ``resting``: see ``ZoneLives``."""

    ring: RingState
    results: ResultState
    metastore_epoch: int = 0
    finished: TopologyVersion = NO_VERSION
    resting: frozenset[ZoneId] = frozenset()


IdealLists = Mapping[ZoneId, tuple[tuple[str, ...], ...]]
"""Nodes that shall hold each partition of each zone, the primary first: ``pending`` if present, else
``stable``."""


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


ROWS = listed(Form(_row, _row_document))

_SPEC: Codec[ZoneSpec] = Codec(ZoneSpec, omit=("life",))
_EVENT: Codec[DiscoveryEvent] = Codec(
    DiscoveryEvent,
    omit=("is_client", "zones", "baseline", "basis", "node", "order", "dead"),
    forms={"zones": listed(_SPEC.form)},
)
_RECORD: Codec[RingRecord] = Codec(RingRecord, omit=("incarnation",), forms={"event": _EVENT.form})
_CLUSTER: Codec[Cluster] = Codec(
    Cluster,
    omit=("resting",),
    forms={
        "zones": Form(
            lambda stored: {spec.zone_id: spec for spec in sequence(_SPEC.value)(stored)},
            lambda zones: [_SPEC.document(spec) for spec in zones.values()],
        ),
        "born": Form(_born, lambda born: [[zone, str(version)] for zone, version in born.items()]),
    },
)
_STATE: Codec[RingState] = Codec(
    RingState,
    forms={"cluster": _CLUSTER.form, "gone": listed(Form(_gone, _gone_document))},
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


_HEAD: Codec[ResultHead] = Codec(ResultHead, omit=("parts", "chunks", "rows"), forms={"rows": ROWS})
_FOLD: Codec[FoldHead] = Codec(FoldHead)
_CHUNK: Codec[_Chunk] = Codec(_Chunk, forms={"rows": ROWS})
_BEAT: Codec[ServerBeat] = Codec(ServerBeat, omit=("cut_from", "ttl_ms"))

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


def result_state(keys: Keyspace, values: Mapping[str, bytes], known: ResultState | None = None) -> ResultState:
    """Read the state of all results: those that are folded, and those that follow. ``values``: of the keys
    below ``exchange/``, at one revision; ``known``: what was read of them before. Raises
    RecordNotReadableError."""
    state = known or ResultState()
    folded = values.get(keys.folded_results)
    head = decode_fold(folded) if folded is not None else None
    if head is not None and head.version > state.version:
        rows = _chunks(values, keys.folded_result_parts(head.parts), head.chunks)
        state = ResultState(head.version, _outcomes(rows))
    for record in results_after(keys, values, state.version):
        state = state.after(record)
    return state


def _outcomes(rows: Iterable[OutcomeRow]) -> dict[ZoneId, tuple[PartitionOutcome, ...]]:
    zones: dict[ZoneId, dict[int, PartitionOutcome]] = {}
    for zone, number, outcome in rows:
        zones.setdefault(zone, {})[number] = outcome
    return {
        zone: tuple(outcomes.get(number, PartitionOutcome()) for number in range(max(outcomes) + 1))
        for zone, outcomes in zones.items()
    }


def result_names(keys: Keyspace, names: Iterable[str]) -> list[str]:
    """Return, in order, those of ``names`` (keys below ``exchange/results/``) that are results and not chunks
    of one."""
    return sorted(name for name in names if "/" not in name.removeprefix(keys.exchange_results))


def results_after(
    keys: Keyspace, values: Mapping[str, bytes], previous: TopologyVersion
) -> tuple[ResultRecord, ...]:
    """Results that follow that of ``previous``, in order; none where those were folded. ``values``: of the keys
    below ``exchange/results/``, at one revision. Raises RecordNotReadableError."""
    first = keys.exchange_result(previous)
    chain: list[ResultRecord] = []
    for key in result_names(keys, (key for key in values if key.startswith(keys.exchange_results))):
        # An exchange that follows a result is of a later version than it.
        if key < first:
            continue
        head = decode_result(values[key])
        if head.previous != (chain[-1].version if chain else previous):
            continue
        parts = keys.exchange_result_parts(head.exchange, head.parts)
        chain.append(head.record(_chunks(values, parts, head.chunks)))
    return tuple(chain)


def _chunks(values: Mapping[str, bytes], parts: str, chunks: int) -> list[OutcomeRow]:
    return [row for number in range(chunks) for row in decode_chunk(values[f"{parts}{number:05d}"])]


def assigned_lists(keys: Keyspace, items: Iterable[KeyValue]) -> Lists:
    """Return, for each partition of one zone, the nodes that shall hold it: ``pending`` where it is present,
    else ``stable``; empty where it has neither. Learners come last, so each leads only when no other copy is
    left. ``items``: of the zone, at one revision. Raises RecordNotReadableError."""
    assigned: dict[str, dict[int, tuple[str, ...]]] = {name: {} for name in ASSIGNING}
    for item in items:
        parsed = keys.parse_partition(item.key)
        if parsed is not None and parsed[1] in assigned:
            assigned[parsed[1]][parsed[0].partition] = readable(item, Assignments.decode).copies
    lists = {**assigned[ASSIGNING[0]], **assigned[ASSIGNING[1]]}
    return tuple(lists.get(partition, ()) for partition in range(max(lists, default=-1) + 1))
