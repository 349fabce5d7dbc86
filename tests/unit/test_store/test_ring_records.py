"""The ring's state: who went, in which order."""

from __future__ import annotations

from rebalance.core.partition_maps.topology_version import DiscoveryEvent, TopologyVersion, Trigger
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.store.core.ring_records import RingRecord, RingState, decode_ring, encode_ring

JOINED, FAILED = Trigger.NODE_JOINED, Trigger.NODE_FAILED


def ring(*events: tuple[Trigger, str]) -> RingState:
    state = RingState()
    for number, (trigger, name) in enumerate(events, 1):
        event = DiscoveryEvent(state.cluster.version_after(trigger), trigger, name, order=number)
        state = state.after(RingRecord(number, event, f"{name}-{number}"))
    return state


def test_who_went_first_stays_out_of_the_in_sync_set_when_it_goes_again() -> None:
    """The other one acknowledged writes alone from that first end on, and no result said so yet."""
    both = (JOINED, "a"), (JOINED, "b")
    state = ring(*both, (FAILED, "b"), (JOINED, "b"), (FAILED, "a"), (FAILED, "b"))
    in_sync = PartitionOutcome(("a", "b"))
    assert in_sync.without(each.name for each in state.gone).in_sync == ("a",)


def test_a_server_that_goes_again_and_again_is_there_once() -> None:
    state = ring((JOINED, "a"), *((JOINED, "b"), (FAILED, "b")) * 50)
    assert [each.name for each in state.gone] == ["b"]


def test_who_left_in_order_did_not_fail_unless_it_did_so_before() -> None:
    left = ring((JOINED, "a"), (JOINED, "b"), (Trigger.NODE_LEFT, "b"))
    assert [each.in_order for each in left.gone] == [True]
    state = ring((JOINED, "a"), (JOINED, "b"), (FAILED, "b"), (JOINED, "b"), (Trigger.NODE_LEFT, "b"))
    assert [each.in_order for each in state.gone] == [False]
    assert decode_ring(encode_ring(left)) == left
    assert decode_ring(encode_ring(state)) == state


def test_what_a_result_knows_is_dropped() -> None:
    state = ring((JOINED, "a"), (JOINED, "b"), (FAILED, "b"), (FAILED, "a"))
    assert [each.name for each in state.since(TopologyVersion(3)).gone] == ["a"]
