"""Partitions that an exchange is said to leave alone, against the long way."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from hypothesis import given
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import (
    CopyReport,
    CopyState,
    FullMap,
    MapStamp,
    PrimaryStrategy,
)
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.exchange.core.late_affinity import (
    ZoneAffinity,
    agreed_set,
    can_agree,
    late_effective,
    partition_outcome,
)
from rebalance.exchange.core.partition_analysis import ZoneRules, decide_states, difference, settled_partitions

NODES = "abc"
lists = st.permutations(NODES).flatmap(lambda names: st.integers(0, 3).map(lambda n: tuple(names[:n])))
copies = st.builds(
    CopyReport,
    st.sampled_from((CopyState.OWNING, CopyState.OWNING, CopyState.MOVING, CopyState.RENTING)),
    counter=st.sampled_from((0, 4)),
    epoch=st.just(2),
)


class Twist(Enum):
    """Difference from a settled partition."""

    NOTHING = 0
    REPORT = 1
    REPORTS = 2
    IN_SYNC = 3
    FILLING = 4
    EFFECTIVE = 5
    LOST = 6
    PREVIOUS = 7


Drawn = tuple[tuple[str, ...], dict[str, CopyReport], PartitionOutcome, tuple[str, ...]]


@st.composite
def partitions(draw: st.DrawFn) -> Drawn:
    """Ideal list, reports, the last outcome, the effective list before."""
    ideal = draw(lists)
    reports = dict.fromkeys(ideal, CopyReport(CopyState.OWNING, 4, epoch=2))
    outcome, previous = PartitionOutcome(tuple(sorted(ideal)), epoch=2, effective=ideal), ideal
    match draw(st.sampled_from(Twist)):
        case Twist.REPORT:
            reports[draw(st.sampled_from(NODES))] = draw(copies)
        case Twist.REPORTS:
            reports = draw(st.dictionaries(st.sampled_from(NODES), copies))
        case Twist.IN_SYNC:
            outcome = replace(outcome, in_sync=tuple(sorted(draw(lists))))
        case Twist.FILLING:
            outcome = replace(outcome, filling=("c",))
        case Twist.EFFECTIVE:
            outcome = replace(outcome, effective=draw(lists))
        case Twist.LOST:
            outcome = replace(outcome, is_lost=True)
        case Twist.PREVIOUS:
            previous = draw(lists)
        case _:
            pass
    return ideal, reports, outcome, previous


@given(
    partitions(), st.frozensets(st.sampled_from(NODES), max_size=1), st.booleans(), st.booleans(), st.booleans()
)
def test_what_is_settled_stays_as_it_was_the_long_way(
    drawn: Drawn,
    changed: frozenset[str],
    went: bool,
    resets: bool,
    keeps: bool,
) -> None:
    ideal, reports, outcome, previous = drawn
    nodes = {node: {0: reports[node]} if node in reports else {} for node in NODES}
    full = FullMap(ZoneId(1), TopologyVersion(4), "a", MapStamp(1), nodes)
    settled = settled_partitions(full, (ideal,), (outcome,), (previous,), changed)
    joined, gone = (frozenset[str](), tuple(changed)) if went else (changed, ())
    rules = ZoneRules(
        not went, went, False, resets, joined=joined, gone=gone, failed=frozenset(gone), outcomes=(outcome,)
    )
    decided, is_lost = decide_states(reports, ideal, rules, outcome.is_lost, rules.outcome(0))
    states = {node: each.state for node, each in decided.items()}
    strategy = PrimaryStrategy.AVAILABILITY if went else PrimaryStrategy.JOIN
    effective = late_effective(ideal, states, previous, strategy, joined, keeps)
    following = partition_outcome(rules.outcome(0), ideal, effective, decided, 9, joined, is_lost)
    if settled:
        assert settled == {0: reports[ideal[0]].position}
        assert (decided, is_lost, effective, following) == (reports, False, ideal, outcome)
        assert difference(ZoneId(1), 0, reports) is None


def test_a_partition_in_which_nothing_changes_is_settled() -> None:
    """Else there would be nothing to be gained. One whose owners are wanted in another order is not."""
    copy = CopyReport(CopyState.OWNING, 4, epoch=2)
    full = FullMap(ZoneId(1), TopologyVersion(4), "a", MapStamp(1), {"a": {0: copy}, "b": {0: copy}, "c": {}})
    outcome = PartitionOutcome(("a", "b"), epoch=2, effective=("b", "a"))
    ideal = (("b", "a"),)
    assert settled_partitions(full, ideal, (outcome,), ideal, "c") == {0: copy.position}
    assert not settled_partitions(full, ideal, (outcome,), ideal, "a")
    assert not settled_partitions(full, ideal, (outcome,), ideal, "c", {0})
    assert not settled_partitions(full, ideal, (outcome,), (("a", "b"),), "c")
    assert not settled_partitions(full, (("a", "b"),), (outcome,), (("a", "b"),), "c")


@given(st.lists(partitions(), max_size=4), lists, st.booleans())
def test_an_exchange_is_asked_for_where_a_set_would_change(
    drawn: list[Drawn], effective: tuple[str, ...], all_owners: bool
) -> None:
    """Each partition, against the look over the whole zone. ``all_owners`` are in sync, needed or not."""
    zone, version = ZoneId(1), TopologyVersion(4)
    nodes = {
        node: {number: reports[node] for number, (_, reports, _, _) in enumerate(drawn) if node in reports}
        for node in NODES
    }
    full = FullMap(zone, version, "a", MapStamp(1), nodes)
    ideal = tuple(each for each, _, _, _ in drawn)
    # Of one partition another list holds.
    real = tuple(each if number else effective for number, (_, _, _, each) in enumerate(drawn))
    outcomes = [
        replace(outcome, in_sync=tuple(sorted(full.owners(number)))) if all_owners else outcome
        for number, (_, _, outcome, _) in enumerate(drawn)
    ]
    changes = [
        bool(real[number])
        and agreed_set(ideal[number], real[number], full.states(number)) != outcomes[number].in_sync
        for number in range(len(drawn))
    ]
    assert can_agree(ZoneAffinity(ideal, real), full, outcomes, waits=False) is any(changes)
