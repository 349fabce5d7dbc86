"""Target of a HIGH_AVAILABILITY zone: (calculated and alive) or (stable and calculated)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.admission.bulk_write import BulkDecisions, ZoneKeys
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import Observed, decide_on_trigger
from rebalance.core.assignments.target import StoredTarget, TargetPointer, available_target
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import KeyValue

NAMES = "abcde"


@st.composite
def assignments(draw: st.DrawFn) -> Assignments:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    voters = draw(st.integers(1, len(names)))
    return Assignments(tuple(names[:voters]), tuple(names[voters:]))


GONE = st.frozensets(st.sampled_from(NAMES))


@settings(deadline=None)
@given(assignments(), st.none() | assignments(), GONE)
def test_the_living_and_those_that_hold(
    target: Assignments, stable: Assignments | None, gone: frozenset[str]
) -> None:
    """S224, S225, S231: nobody outside of the target, nobody dead who holds nothing, nobody living is left out;
    roles and order stay, unless no voter would be left."""
    held = stable.nodes if stable is not None else frozenset()
    found = available_target(target, stable, gone)
    wanted = {node for node in target.nodes if node not in gone or node in held}
    assert found.nodes == (wanted or target.nodes)
    order = [node for node in (*target.peers, *target.learners) if node in found.nodes]
    assert [*found.peers, *found.learners] == order
    if wanted & set(target.peers):
        assert set(found.peers) == wanted & set(target.peers)
    else:
        assert len(found.peers) >= 1
    if not gone:
        assert found == target


@settings(deadline=None)
@given(assignments(), st.none() | assignments(), GONE)
def test_many_at_once_decide_as_one(
    target: Assignments, stable: Assignments | None, gone: frozenset[str]
) -> None:
    """The writes of a whole zone ask for the same as ``decide_on_trigger`` with the available target."""
    order = (*target.peers, *target.learners)
    pointer = TargetPointer(
        9, 1, 1, 1, len(order), len(target.peers), order, "local", "rendezvous", gone=tuple(sorted(gone))
    )
    row = b"".join(index.to_bytes(4, "little") for index in range(len(order)))
    decisions = BulkDecisions(StoredTarget(pointer, (row,)))
    keyspace = Keyspace()
    partition = PartitionId(ZoneId(1), 0)
    keys = keyspace.partition(partition)
    stored = KeyValue(keys.stable, stable.encode(), 1, 1, 1) if stable is not None else None
    zone = ZoneKeys(keyspace.zone_partitions(ZoneId(1)), 5)
    zone.add([stored] if stored is not None else [])
    observed = Observed(keys, stored)
    found = decisions.decide(zone, 0) or decisions.decide_alone(observed, 0)
    expected = decide_on_trigger(observed, available_target(target, stable, gone), 9)
    assert found.outcome is expected.outcome
    assert found.transaction is not None
    assert expected.transaction is not None
    written = {each.key: each.value for each in found.transaction.success if hasattr(each, "value")}
    assert (
        written.items()
        <= {each.key: each.value for each in expected.transaction.success if hasattr(each, "value")}.items()
    )
