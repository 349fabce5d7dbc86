"""Stored forms: what is written is read back, an unknown format is refused, and sizes keep their limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from catalog.filters.json_path import JSON_PATH
from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.assignments.guarded_write import decode_trigger, encode_trigger
from rebalance.core.assignments.target import CHUNK_BYTES, StoredTarget, TargetPointer, cut_into_chunks
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    GroupRecord,
    MemberRecord,
    MemberRole,
    MemberState,
    NodeRecord,
    Stage,
)
from rebalance.core.keyspace.txn import Put, Txn, absent, operation_count
from rebalance.core.topology.data_nodes import DataNodes, compute_data_nodes, replica_counts
from rebalance.core.topology.node_presence import Topology

NODE = Node("n1", (("region", "EU"),), ("default", "ssd"), 7)
ZONE = Zone(ZoneId(3), "Größe", 8, 3, 2, ("ssd",))
CONFIGURATION = ConfigurationRecord(
    4, "n1", Stage.JOINT, {"n1": ConfiguredMember("8e9e", MemberRole.VOTER, "http://x:1", leaving=True)}, "why"
)
POINTER = TargetPointer(9, 2, 1, 2, 2, 2, ("n1", "n2"), "spark", "rendezvous")


@pytest.mark.row("I3-007", "I3-008", "I3-009", "I3-010")
@pytest.mark.parametrize(
    "record",
    [
        NodeRecord(NODE, "abc", 12),
        MemberRecord(MemberState.FAILED, "http://x:1", "http://x:2", started=True, reason="disk full"),
        GroupRecord("token", {"n1": "http://x:1"}),
        CONFIGURATION,
        DataNodes(("n1", "n2"), 2, 3),
        POINTER,
        ZoneIntent(5, ZONE, dropped=True),
        Assignments(("n2", "n1"), ("n3",)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_are_read_back_and_unknown_formats_refused(record: Any) -> None:
    """I3-007..010: each documented value says its format; a reader refuses one that it does not know."""
    encode: Callable[[], bytes] = record.encode
    decode: Callable[[bytes], object] = type(record).decode
    assert decode(encode()) == record
    newer = json.loads(encode())
    newer["v"] = 99
    with pytest.raises(ValueError, match="not known"):
        decode(json.dumps(newer).encode())


def test_trigger_is_read_back() -> None:
    assert decode_trigger(encode_trigger(42)) == 42
    with pytest.raises(ValueError, match="not known"):
        decode_trigger(b'{"v":9,"revision":1}')


def test_assignments_compare_as_sets_with_roles() -> None:
    """The preference order is kept, but is no difference."""
    assert Assignments(("a", "b")) == Assignments(("b", "a"))
    assert hash(Assignments(("a", "b"))) == hash(Assignments(("b", "a")))
    assert Assignments(("a", "b")) != Assignments(("a",), ("b",))
    assert Assignments.decode(Assignments(("b", "a")).encode()).primary == "b"
    assert nodes_of(Assignments(("a",), ("c",)), None, Assignments(("b",))) == {"a", "b", "c"}
    for peers, learners in (((), ()), (("a", "a"), ()), (("a",), ("a",))):
        with pytest.raises(ValueError, match=r"peer|role"):
            Assignments(peers, learners)


@pytest.mark.parametrize(
    ("foundings", "generation", "shared"),
    [
        ([(5, 30)], 0, 30),
        ([(5, 30)], 5, 0),
        ([(5, 30), (9, 40)], 0, 30),
        ([(5, 30), (9, 40)], 5, 40),
        ([(5, 40), (9, 30)], 0, 30),
        ([(5, 40), (9, 30)], 4, 30),
        ([(5, 0), (9, 30)], 0, 0),
        ([(5, 0), (9, 30)], 5, 30),
    ],
)
def test_what_two_lives_of_a_group_share(
    foundings: list[tuple[int, int]], generation: int, shared: int
) -> None:
    """A copy that missed a founding has only what each of them kept; an unknown one may have kept nothing."""
    record = GroupRecord("t", {"n1": "a"})
    for founded, revision in foundings:
        record = record.founded_anew(f"t-{founded}", {"n2": "b"}, founded, revision, "etcd")
    assert record.shared_revision(generation) == shared
    assert GroupRecord.decode(record.encode()) == record


@given(st.integers(1, 40), st.integers(1, 7), st.data())
def test_a_target_is_read_back_row_by_row(partitions: int, replicas: int, data: st.DataObject) -> None:
    names = tuple(f"n{n}" for n in range(replicas))
    voters = data.draw(st.integers(1, replicas))
    rows = [data.draw(st.permutations(range(replicas))) for _ in range(partitions)]
    matrix = b"".join(index.to_bytes(4, "little") for row in rows for index in row)
    chunks = cut_into_chunks(matrix, replicas)
    pointer = TargetPointer(1, 1, len(chunks), partitions, replicas, voters, names, "local", "rendezvous")
    read = list(StoredTarget(pointer, chunks).assignments())
    assert [(*each.peers, *each.learners) for each in read] == [tuple(names[i] for i in row) for row in rows]
    assert all(len(each.peers) == voters for each in read)
    with pytest.raises(ValueError, match="incomplete"):
        list(StoredTarget(pointer, chunks[:-1]).assignments())


def test_chunks_end_at_rows_and_stay_below_the_limit() -> None:
    matrix = bytes(4 * 7 * 100_000)
    chunks = cut_into_chunks(matrix, 7)
    assert b"".join(chunks) == matrix
    assert all(len(chunk) % 28 == 0 and len(chunk) <= CHUNK_BYTES for chunk in chunks)


def test_a_single_row_is_that_of_all_rows_in_whichever_chunk_it_is() -> None:
    partitions, replicas = 100_000, 7
    matrix = b"".join(number.to_bytes(4 * replicas, "little") for number in range(partitions))
    chunks = cut_into_chunks(matrix, replicas)
    nodes = tuple(f"n{number}" for number in range(replicas))
    pointer = replace(POINTER, chunks=3, partitions=partitions, replicas=replicas, nodes=nodes)
    stored = StoredTarget(pointer, chunks)
    assert len(chunks) == 3
    assert [stored.row(number) for number in range(partitions)] == stored.rows()


@pytest.mark.row("IEP-012", "IEP-020", "IEP-021")
def test_data_nodes_hold_all_profiles_and_never_lower_the_quorum() -> None:
    """IEP-012, IEP-020, IEP-021: the default follows the replicas possible; departures do not lower it."""
    zone = Zone(ZoneId(1), "Z", 8, 5, None, ("default", "ssd"))
    nodes = [Node(f"n{n}", profiles=("default", "ssd")) for n in range(5)]
    first = compute_data_nodes(
        None, Topology.of([*nodes[:2], Node("x", profiles=("default",))]), ZoneIntent(1, zone), JSON_PATH, 0
    )
    assert first == DataNodes(("n0", "n1"), 2, 5)
    grown = compute_data_nodes(first, Topology.of(nodes), ZoneIntent(1, zone), JSON_PATH, 0)
    assert grown == DataNodes(("n0", "n1", "n2", "n3", "n4"), 3, 5)
    assert compute_data_nodes(grown, Topology.of(nodes[:1]), ZoneIntent(1, zone), JSON_PATH, 0) == grown
    assert replica_counts(ZoneIntent(1, zone), grown) == (5, 5)
    # Four replicas have a default quorum of two: the fourth is a learner.
    four = compute_data_nodes(None, Topology.of(nodes[:4]), ZoneIntent(1, zone), JSON_PATH, 0)
    assert replica_counts(ZoneIntent(1, zone), four) == (4, 3)


def test_keys_are_parsed_back() -> None:
    keys, partition = Keyspace("zk/"), PartitionId(ZoneId(3), 14)
    assert keys.parse_partition(keys.partition(partition).trigger) == (
        partition,
        "assignments/change.trigger.revision",
    )
    assert keys.parse_member(keys.member(partition, "a.b-c_d")) == (partition, "a.b-c_d")
    for key in ("zk/partition/3/x/group", "other/partition/3/1/group", "zk/members/3/1/n1"):
        assert keys.parse_partition(key) is None
    assert keys.parse_member(keys.partition(partition).stable) is None


def test_operations_are_counted_as_etcd_does() -> None:
    """126 inner transactions of two operations pass, 127 do not."""
    inner = Txn((absent("a"),), (Put("a", b""), Put("b", b"")))
    assert operation_count(Txn((), (inner,) * 126)) == 128
    assert operation_count(Txn((), (inner,) * 127)) == 129
