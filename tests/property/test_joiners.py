"""Giving joiners up, over tiny alphabets: what pending becomes, what is guarded, what never happens (M1)."""

from __future__ import annotations

from itertools import permutations

import hypothesis.strategies as st
from hypothesis import given

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.change_lock import PendingLock
from rebalance.core.assignments.guarded_write import Observed, Outcome, encode_trigger
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import GivenUpRecord
from rebalance.core.keyspace.txn import Delete, KeyValue, Put, unchanged
from rebalance.core.moves.joiners import decide_on_joiners_gone, joiners_of, target_without

P0 = PartitionId(ZoneId(1), 0)
KEYS = Keyspace().partition(P0)
GIVEN_UP = Keyspace().given_up(P0)
NODES = "abcdef"
ROLES = [names for size in range(1, 5) for names in permutations(NODES, size)]


@st.composite
def assignments(draw: st.DrawFn, strategies: bool = False) -> Assignments:
    names = draw(st.sampled_from(ROLES))
    voters = draw(st.integers(1, len(names)))
    strategy = draw(st.sampled_from(list(Strategy))) if strategies else Strategy.QUEUE
    return Assignments(names[:voters], names[voters:], strategy=strategy)


@st.composite
def observations(draw: st.DrawFn) -> Observed:
    def item(key: str, value: bytes) -> KeyValue:
        return KeyValue(key, value, 1, draw(st.integers(2, 99)), 1)

    def maybe(key: str, value: bytes) -> KeyValue | None:
        return item(key, value) if draw(st.booleans()) else None

    return Observed(
        KEYS,
        item(KEYS.stable, draw(assignments()).encode()),
        item(KEYS.pending, draw(assignments(strategies=True)).encode()),
        maybe(KEYS.planned, draw(assignments()).encode()),
        maybe(KEYS.trigger, encode_trigger(7)),
        maybe(KEYS.lock, PendingLock(5, "j", 1).encode()),
    )


GONE = st.sets(st.sampled_from(NODES))


@given(assignments(), assignments(strategies=True), GONE, GONE)
def test_a_target_without_joiners(
    stable: Assignments, pending: Assignments, gone: set[str], holding: set[str]
) -> None:
    """No gone joiner is left, nothing comes from elsewhere, voters never fall below the smaller of both sets,
    those that hold a copy come first, and what is back at stable is stable in its own order."""
    target = target_without(stable, pending, gone, holding)
    given_up = {name for name in joiners_of(stable, pending) if name in gone}
    assert not given_up & set(target.peers)
    assert set(pending.peers) - given_up <= set(target.peers) <= set(stable.peers) | set(pending.peers)
    assert len(target.peers) >= min(len(stable.peers), len(pending.peers))
    assert len(target.peers) <= len(pending.peers)
    assert target.strategy is pending.strategy
    leaving = set(stable.peers) - set(pending.peers)
    kept = leaving & set(target.peers)
    assert not (leaving & holding - kept) or kept <= holding
    assert len(kept) == min(len(given_up), len(leaving))
    assert set(target.learners) <= set(pending.learners) | (given_up & set(stable.learners))
    assert target != stable or target.peers == stable.peers
    if not given_up:
        assert target in (pending, stable)


@given(observations(), GONE)
def test_what_is_written(observed: Observed, gone: set[str]) -> None:
    """Every key that was read is guarded; planned takes over whole; pending is replaced and never deleted; the
    lock goes; stable and the trigger stay."""
    decision = decide_on_joiners_gone(observed, dict.fromkeys(gone, ""), given_up_key=GIVEN_UP)
    stable, pending = _decoded(observed.stable), _decoded(observed.pending)
    names = {name for name in joiners_of(stable, pending) if name in gone}
    if not names:
        assert decision.outcome is Outcome.NO_JOINER_IS_GONE
        assert decision.transaction is None
        return
    assert decision.transaction is not None
    read = (observed.stable, observed.pending, observed.planned, observed.trigger, observed.lock)
    wanted = (KEYS.stable, KEYS.pending, KEYS.planned, KEYS.trigger, KEYS.lock)
    guards = {unchanged(key, item.mod_revision if item else 0) for key, item in zip(wanted, read, strict=True)}
    assert guards <= set(decision.transaction.compares)
    puts = {each.key: each.value for each in decision.transaction.success if isinstance(each, Put)}
    deleted = {each.key for each in decision.transaction.success if isinstance(each, Delete)}
    assert (KEYS.lock in deleted) is (observed.lock is not None)
    assert not {KEYS.stable, KEYS.trigger} & (puts.keys() | deleted)
    assert KEYS.pending not in deleted
    if observed.planned is not None:
        assert puts == {KEYS.pending: observed.planned.value}
        assert KEYS.planned in deleted
    else:
        assert Assignments.decode(puts[KEYS.pending]) == target_without(stable, pending, names)
        record = GivenUpRecord.decode(puts[GIVEN_UP])
        assert set(record.names()) == names
        assert record.event == (7 if observed.trigger else 0)
        assert unchanged(GIVEN_UP, 0) in decision.transaction.compares


def _decoded(item: KeyValue | None) -> Assignments:
    assert item is not None
    return Assignments.decode(item.value)
