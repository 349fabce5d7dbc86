"""Reads of the ring's keys, for servers and controllers alike: results in their order, the lists of a zone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import ASSIGNING, Keyspace
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_messages import Lists
from rebalance.exchange.core.result_record import PartitionOutcome, ResultRecord, ResultState
from rebalance.store.core.ring_codec import OutcomeRow, decode_chunk, decode_fold, decode_result


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
