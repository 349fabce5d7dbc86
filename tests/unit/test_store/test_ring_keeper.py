"""The controller's part of the ring: whom it lets in, whom it fails, whom it evicts. TTL is 5 s."""

from __future__ import annotations

from dataclasses import replace

from rebalance.core.partition_maps.topology_version import DiscoveryEvent, Trigger
from rebalance.store.core.ring_keeper import (
    EvictServer,
    FailServer,
    JoinServer,
    RetireHeartbeat,
    RingKeeper,
    RingView,
    SeenHeartbeat,
)
from rebalance.store.core.ring_records import RingRecord, RingState


def ring(*names: str) -> RingState:
    state = RingState()
    for order, name in enumerate(names, 1):
        version = state.cluster.version_after(Trigger.NODE_JOINED)
        event = DiscoveryEvent(version, Trigger.NODE_JOINED, name, order)
        state = state.after(RingRecord(state.number + 1, event, f"{name}-1"))
    return state


def beats(**revisions: int) -> tuple[SeenHeartbeat, ...]:
    return tuple(SeenHeartbeat(name, f"{name}-1", revision) for name, revision in revisions.items())


def test_a_server_that_beats_joins() -> None:
    keeper = RingKeeper(5_000)
    assert keeper.look(0, RingView(ring("a"), beats(a=1, b=2))) == JoinServer(1, "b", "b-1")


def test_only_the_newest_incarnation_joins_and_the_others_are_retired() -> None:
    keeper = RingKeeper(5_000)
    old, new = SeenHeartbeat("b", "b-1", 2), SeenHeartbeat("b", "b-2", 9)
    view = RingView(ring("a"), (*beats(a=1), old, new))
    assert keeper.look(0, view) == JoinServer(1, "b", "b-2")
    view = replace(view, heartbeats=(*beats(a=3), old, replace(new, revision=11)))
    keeper.look(3_000, view)
    view = replace(view, heartbeats=(*beats(a=4), old, replace(new, revision=12)))
    assert keeper.look(5_000, replace(view, evicting={"b": 1})) == RetireHeartbeat("b", "b-1", 2)


def test_who_has_stopped_beating_does_not_join() -> None:
    keeper = RingKeeper(5_000)
    view = RingView(ring("a"), beats(a=1, b=2), evicting={"b": 1})
    assert keeper.look(0, view) is None
    assert keeper.look(2_500, replace(view, evicting={}, heartbeats=beats(a=2, b=2))) is None


def test_a_server_fails_a_ttl_after_its_last_change_was_seen() -> None:
    keeper = RingKeeper(5_000)
    state = ring("a", "b")
    keeper.look(0, RingView(state, beats(a=1, b=2)))
    keeper.look(2_000, RingView(state, beats(a=3, b=4)))
    assert keeper.look(6_999, RingView(state, beats(a=5, b=4))) is None
    # The write compares the revision that was seen, and the ring's last event.
    assert keeper.look(7_000, RingView(state, beats(a=5, b=4))) == FailServer(2, "b", "b-1", 4)


def test_a_server_says_after_how_long_it_fails() -> None:
    """A server serves for nearly as long, whatever the controller would wait. What it has said before holds
    once its heartbeat cannot be read."""
    keeper = RingKeeper(5_000)
    state = ring("a", "b")
    slow = SeenHeartbeat("b", "b-1", 2, ttl_ms=20_000)
    keeper.look(0, RingView(state, (*beats(a=1), slow)))
    assert keeper.look(19_999, RingView(state, (*beats(a=2), slow))) is None
    assert keeper.look(20_000, RingView(state, (*beats(a=3), slow))) == FailServer(2, "b", "b-1", 2)
    unreadable = SeenHeartbeat("b", "b-1", 3)
    assert keeper.look(20_001, RingView(state, (*beats(a=4), unreadable))) is None
    assert keeper.look(40_000, RingView(state, (*beats(a=5), unreadable))) is None
    assert keeper.look(40_001, RingView(state, (*beats(a=6), unreadable))) == FailServer(2, "b", "b-1", 3)


def test_a_new_controller_begins_its_clock_anew() -> None:
    state = ring("a", "b")
    RingKeeper(5_000).look(0, RingView(state, beats(a=1, b=2)))
    successor = RingKeeper(5_000)
    assert successor.look(6_000, RingView(state, beats(a=3, b=2))) is None
    assert successor.look(10_999, RingView(state, beats(a=4, b=2))) is None
    assert successor.look(11_000, RingView(state, beats(a=5, b=2))) == FailServer(2, "b", "b-1", 2)


def test_whom_most_suspect_is_evicted_the_youngest_on_a_tie() -> None:
    state = ring("a", "b", "c")
    view = RingView(state, beats(a=1, b=2, c=3), suspects={("b", "a"), ("c", "a"), ("a", "c")})
    assert RingKeeper(5_000).look(0, view) == EvictServer(3, "a")
    tie = replace(view, suspects={("a", "b"), ("b", "a")})
    assert RingKeeper(5_000).look(0, tie) == EvictServer(3, "b")
    gone = replace(view, suspects={("z", "a"), ("a", "z")})
    assert RingKeeper(5_000).look(0, gone) is None


def test_an_evicted_server_fails_a_ttl_after_the_eviction_and_nobody_else_is_evicted_meanwhile() -> None:
    keeper = RingKeeper(5_000)
    state = ring("a", "b", "c")
    view = RingView(state, beats(a=1, b=2, c=3), evicting={"b": 9}, suspects={("a", "c"), ("c", "a")})
    assert keeper.look(1_000, view) is None
    assert keeper.look(4_000, replace(view, heartbeats=beats(a=4, b=2, c=5))) is None
    assert keeper.look(5_999, replace(view, heartbeats=beats(a=6, b=2, c=7))) is None
    failed = keeper.look(6_000, replace(view, heartbeats=beats(a=8, b=2, c=9)))
    assert failed == FailServer(3, "b", "b-1", 2)


def test_a_server_that_does_not_reach_a_member_stays_out_until_it_does() -> None:
    """The server would be suspected, evicted, and back again; the whole ring would stand still for each of its
    joins."""
    keeper = RingKeeper(5_000)
    cut = SeenHeartbeat("b", "b-1", 2, ("a", "c"))
    assert keeper.look(0, RingView(ring("a"), (*beats(a=1), cut))) is None
    assert keeper.held_out == {"b": "it does not reach a"}
    assert keeper.look(0, RingView(ring("c"), (*beats(c=1), cut))) is None
    # One that is no member any more does not matter.
    assert keeper.look(0, RingView(ring("d"), (*beats(d=1), cut))) == JoinServer(1, "b", "b-1")
    assert keeper.held_out == {}


def test_a_server_that_is_evicted_again_and_again_waits_longer_each_time() -> None:
    """5 s TTL: at once after the first eviction, then 10 s, 20 s, and never more than 60 s."""
    keeper, now_ms, revision = RingKeeper(5_000), 0, 10
    waits = []
    for _ in range(6):
        both, one = ring("a", "b"), ring("a")
        keeper.look(now_ms, RingView(both, beats(a=revision, b=2), evicting={"b": revision}))
        began_ms = now_ms
        while True:
            revision += 1
            view = RingView(one, beats(a=revision, b=revision))
            if keeper.look(now_ms, view) == JoinServer(1, "b", "b-1"):
                break
            assert keeper.held_out["b"].startswith("it was evicted ")
            now_ms += 1_000
        waits.append(now_ms - began_ms)
    assert waits == [0, 10_000, 20_000, 40_000, 60_000, 60_000]


def test_a_server_that_had_ended_when_it_was_evicted_joins_at_once() -> None:
    """The process was killed, and peers missed it before its time was over. The next one waits for nothing."""
    keeper, now_ms = RingKeeper(5_000), 0
    for revision in range(10, 40, 10):
        both, one = ring("a", "b"), ring("a")
        keeper.look(now_ms, RingView(both, beats(a=revision, b=revision)))
        now_ms += 2_000
        keeper.look(now_ms, RingView(both, beats(a=revision + 1, b=revision), evicting={"b": revision + 1}))
        now_ms += 5_000
        view = RingView(one, beats(a=revision + 2, b=revision + 2))
        assert keeper.look(now_ms, view) == JoinServer(1, "b", "b-1")
        assert keeper.held_out == {}
