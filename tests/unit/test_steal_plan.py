"""Plans of stealing: primary and secondary moves, batches, units, and what ``--show-plan`` shows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.stealing.core.steal_cluster import (
    ClusterFormatError,
    ClusterMetadata,
    StoreDefinition,
    StoreKind,
    decode_stores,
)
from simulator.stealing.core.steal_plan import (
    PrimaryMove,
    StealUnit,
    batches,
    by_stealer,
    describe,
    needs_copy,
    of_kind,
    plan,
    plan_batch,
    primary_moves,
    transition,
)

ONE = StoreDefinition("one", 1)
TWO = StoreDefinition("two", 2)
STATIC = StoreDefinition("static", 2, StoreKind.READ_ONLY)
THREE_NODES = ClusterMetadata.of({0: (0, 3), 1: (1, 4), 2: (2, 5)})


def moved(**nodes: tuple[int, ...]) -> ClusterMetadata:
    return ClusterMetadata.of({int(name[1:]): partitions for name, partitions in nodes.items()})


@pytest.mark.row("VOL-002", "VOL-015", "VOL-016", "VOL-019")
def test_new_nodes_are_stealers() -> None:
    """VOL-015, VOL-016, VOL-002: node 3 is new and gets 1 and 5; it steals exactly those. VOL-019: from nodes 1
    and 2, the donors."""
    target = moved(n0=(0, 3), n1=(4,), n2=(2,), n3=(1, 5))
    (batch,) = plan(THREE_NODES, target, [ONE], batch_size=10)
    assert batch.before.partitions_of(3) == ()
    assert batch.units == (StealUnit(3, 1, (("one", (1,)),)), StealUnit(3, 2, (("one", (5,)),)))


@pytest.mark.row("VOL-004", "VOL-017")
def test_existing_nodes_are_stealers() -> None:
    """VOL-004, VOL-017: only partition 4 goes, from node 1 to node 0, which has been there before."""
    target = moved(n0=(0, 3, 4), n1=(1,), n2=(2, 5))
    (batch,) = plan(THREE_NODES, target, [ONE], batch_size=1)
    assert batch.units == (StealUnit(0, 1, (("one", (4,)),)),)


@pytest.mark.row("VOL-003")
def test_a_node_is_emptied() -> None:
    """VOL-003: it stays in the metadata, with nothing; every partition of it has a new owner."""
    target = moved(n0=(0, 3, 2), n1=(1, 4, 5), n2=())
    planned = plan(THREE_NODES, target, [ONE], batch_size=1)
    assert planned[-1].after == target
    assert {(unit.stealer, unit.donor, unit.partitions) for each in planned for unit in each.units} == {
        (0, 2, (2,)),
        (1, 2, (5,)),
    }


@pytest.mark.row("VOL-018")
def test_secondary_moves() -> None:
    """VOL-018: partition 2 goes from node 2 to node 1. It is also where partition 1 finds its second replica:
    that one goes from node 2 to node 0, which gets no primary partition."""
    target = moved(n0=(0, 3), n1=(1, 2, 4), n2=(5,))
    (batch,) = plan(THREE_NODES, target, [TWO], batch_size=1)
    assert [each.partition for each in batch.moves] == [2]
    assert by_stealer(batch.units) == {
        0: (StealUnit(0, 2, (("two", (1,)),)),),
        1: (StealUnit(1, 2, (("two", (2,)),)),),
    }


@pytest.mark.row("VOL-032", "VOL-060")
def test_a_unit_is_one_stealer_and_one_donor() -> None:
    """VOL-060: all stores that go from one to the other are in one unit. VOL-032: the plan is a map of the
    stealer to its donors and their partitions."""
    target = moved(n0=(0, 3), n1=(1, 4), n2=(), n3=(2, 5))
    (batch,) = plan(THREE_NODES, target, [ONE, StoreDefinition("other", 1)], batch_size=2)
    assert by_stealer(batch.units) == {3: (StealUnit(3, 2, (("one", (2, 5)), ("other", (2, 5)))),)}


@pytest.mark.row("VOL-030")
def test_every_primary_partition_to_move() -> None:
    """VOL-030."""
    target = moved(n0=(1, 3), n1=(0, 4), n2=(2, 5))
    assert primary_moves(THREE_NODES, target) == (PrimaryMove(0, 0, 1), PrimaryMove(1, 1, 0))
    assert primary_moves(THREE_NODES, THREE_NODES) == ()


@pytest.mark.row("VOL-023")
@pytest.mark.parametrize(("size", "sizes"), [(1, [1, 1, 1, 1, 1]), (2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_batches(size: int, sizes: list[int]) -> None:
    """VOL-023: of the size that was asked for."""
    moves = tuple(PrimaryMove(number, 0, 1) for number in range(5))
    assert [len(each) for each in batches(moves, size)] == sizes
    assert tuple(each for batch in batches(moves, size) for each in batch) == moves


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="batch size 0; at least one"):
        batches((), 0)


@pytest.mark.row("VOL-031", "VOL-090")
def test_each_batch_has_its_transition_metadata() -> None:
    """VOL-031, VOL-090: it has the moves of its batch and of those before, and no others."""
    target = moved(n0=(0,), n1=(1,), n2=(2, 5), n3=(3, 4))
    first, second = plan(THREE_NODES, target, [ONE], batch_size=1)
    assert first.after == moved(n0=(0,), n1=(1, 4), n2=(2, 5), n3=(3,))
    assert second.before == first.after
    assert second.after == target


@pytest.mark.row("VOL-101")
def test_replicas_that_exist_need_no_copy() -> None:
    """VOL-101: node 1 has a replica of partition 0 already when it becomes its owner, and none of partition 2.
    Without the option it copies both."""
    before, after = moved(n0=(0,), n1=(1,), n2=(2,)), moved(n0=(), n1=(0, 1), n2=(2,))
    unit = next(each for each in plan_batch(before, after, [TWO]) if each.stealer == 1)
    assert needs_copy(unit, TWO, before, optimized=True) == (2,)
    assert needs_copy(unit, TWO, before, optimized=False) == (0, 2)


@pytest.mark.row("VOL-033")
def test_units_of_one_kind() -> None:
    """VOL-033: a rebalance state of read-only stores names no others."""
    target = moved(n0=(0, 3), n1=(1, 4), n2=(2,), n3=(5,))
    units = plan_batch(THREE_NODES.with_nodes([3]), target, [ONE, STATIC])
    assert {name for unit in of_kind(units, [ONE, STATIC], StoreKind.READ_ONLY) for name in unit.names} == {
        "static"
    }
    assert of_kind(units, [ONE], StoreKind.READ_ONLY) == ()


@pytest.mark.row("VOL-012", "VOL-021", "VOL-087")
def test_a_plan_from_three_texts() -> None:
    """VOL-012, VOL-021: cluster, stores and target as files have them; no cluster is needed. VOL-087: what will
    move is shown as stealer, donor and partitions."""
    current = ClusterMetadata.decode('{"nodes": {"0": [0, 1], "1": [2, 3]}}')
    target = ClusterMetadata.decode('{"nodes": {"0": [0], "1": [2], "2": [1, 3]}}')
    stores = decode_stores('[{"name": "users", "replication": 1}]')
    assert describe(plan(current, target, stores, 1)).splitlines() == [
        "batch 1: primary partitions [1]",
        "  stealer 2 <- donor 0: users [1]",
        "batch 2: primary partitions [3]",
        "  stealer 2 <- donor 1: users [3]",
    ]
    assert describe(plan(target, target, stores, 1)).startswith("nothing moves")
    assert ClusterMetadata.decode(target.encode()) == target


@pytest.mark.row("VOL-011", "VOL-012")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"nodes": {"0": [0], "1": [0]}}', "partition 0 is owned by node 0 and 1"),
        ('{"nodes": {"0": [0, 2]}}', r"\[1\] have no owner"),
        ('{"nodes": {"a": [0]}}', "cluster metadata is"),
        ("<cluster/>", "found '<cluster/>'"),
    ],
)
def test_cluster_texts_that_are_refused(text: str, message: str) -> None:
    """VOL-011: a partition belongs to one node, whole. VOL-012."""
    with pytest.raises(ClusterFormatError, match=message):
        ClusterMetadata.decode(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"name": "a"}]', "stores are"),
        ('[{"name": "a", "replication": 0}]', "store a: replication 0"),
        ('[{"name": "a", "replication": 1, "kind": "mixed"}]', "read-only"),
    ],
)
def test_stores_texts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ClusterFormatError, match=message):
        decode_stores(text)


@st.composite
def changes(draw: st.DrawFn) -> tuple[ClusterMetadata, ClusterMetadata, int]:
    """Two metadata of one number of partitions, each with three owners at least, and a batch size."""
    count = draw(st.integers(3, 8))
    lists = st.lists(st.integers(0, 4), min_size=count, max_size=count).filter(lambda each: len(set(each)) > 2)
    nodes = (0, 1, 2, 3, 4)
    owners = [ClusterMetadata(nodes, tuple(draw(lists))) for _ in range(2)]
    return owners[0], owners[1], draw(st.integers(1, count))


@pytest.mark.row("VOL-011", "VOL-018")
@settings(deadline=None)
@given(changes())
def test_what_a_plan_moves(change: tuple[ClusterMetadata, ClusterMetadata, int]) -> None:
    """VOL-011, VOL-018: every node that is new among the replicas of a partition steals it, each from another
    one of those that go; what stays in its place does nothing. Only new ones need a copy."""
    before, after, _ = change
    units = plan_batch(before, after, [TWO])
    moves = [(unit.stealer, unit.donor, each) for unit in units for each in unit.partitions_of("two")]
    assert len({(stealer, partition) for stealer, _, partition in moves}) == len(moves)
    for number in range(len(before.owners)):
        old, new = before.replicas(number, 2), after.replicas(number, 2)
        donors = {stealer: donor for stealer, donor, partition in moves if partition == number}
        gained = set(new) - set(old)
        assert {donors[node] for node in gained} == set(old) - set(new)
        assert donors.keys() == {node for node, was in zip(new, old, strict=True) if node != was}
        assert gained == {
            unit.stealer for unit in units if number in needs_copy(unit, TWO, before, optimized=True)
        }


@pytest.mark.row("VOL-023", "VOL-031", "VOL-088")
@settings(deadline=None)
@given(changes())
def test_batches_lead_to_the_target(change: tuple[ClusterMetadata, ClusterMetadata, int]) -> None:
    """VOL-023, VOL-031, VOL-088: each batch begins where the one before ended, moves at most its size, and the
    last one ends at the target."""
    before, after, size = change
    planned = plan(before, after, [ONE], size)
    assert [each.before for each in planned] == [before, *(each.after for each in planned)][: len(planned)]
    assert all(1 <= len(each.moves) <= size for each in planned)
    assert all(transition(each.before, each.moves) == each.after for each in planned)
    assert (planned[-1].after if planned else before) == after
