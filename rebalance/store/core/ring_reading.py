"""Reads of the ring's keys, for servers and controllers alike: results in their order, the lists of a zone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rebalance.core.assignments import Assignments
from rebalance.core.keys import ASSIGNING, Keyspace
from rebalance.core.readable import readable
from rebalance.core.topology_version import TopologyVersion
from rebalance.core.txn import KeyValue
from rebalance.exchange.core.exchange_messages import Lists
from rebalance.exchange.core.result_record import ResultRecord
from rebalance.store.core.ring_codec import decode_chunk, decode_result


def results_after(
    keys: Keyspace, values: Mapping[str, bytes], previous: TopologyVersion
) -> tuple[ResultRecord, ...]:
    """Results that follow that of ``previous``, in order. ``values``: of the keys below ``exchange/results/``,
    at one revision. Raises RecordNotReadableError."""
    first = keys.exchange_result(previous)
    chain: list[ResultRecord] = []
    for key in sorted(values):
        name = key.removeprefix(keys.exchange_results)
        # An exchange that follows a result is of a later version than it.
        if name == key or "/" in name or key < first:
            continue
        head = decode_result(values[key])
        if head.previous != (chain[-1].version if chain else previous):
            continue
        parts = keys.exchange_result_parts(head.exchange, head.parts)
        chunks = [decode_chunk(values[f"{parts}{number:05d}"]) for number in range(head.chunks)]
        chain.append(head.record([row for chunk in chunks for row in chunk]))
    return tuple(chain)


def assigned_lists(keys: Keyspace, items: Iterable[KeyValue]) -> Lists:
    """For each partition of one zone the nodes that shall hold it: ``pending`` where it is present, else
    ``stable``; empty where it has neither. Learners come last, so each leads only when no other copy is left.
    ``items``: of the zone, at one revision. Raises RecordNotReadableError."""
    assigned: dict[str, dict[int, tuple[str, ...]]] = {name: {} for name in ASSIGNING}
    for item in items:
        parsed = keys.parse_partition(item.key)
        if parsed is not None and parsed[1] in assigned:
            assigned[parsed[1]][parsed[0].partition] = readable(item, Assignments.decode).copies
    lists = {**assigned[ASSIGNING[0]], **assigned[ASSIGNING[1]]}
    return tuple(lists.get(partition, ()) for partition in range(max(lists, default=-1) + 1))
