"""Events of the ring on one server, and the ideal lists that they name."""

from __future__ import annotations

from typing import Any

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import DiscoveryEvent, Trigger, ZoneSpec
from rebalance.store.core.ring_queue import RingQueue
from rebalance.store.core.ring_records import RingRecord, RingState


def hear(queue: RingQueue, trigger: Trigger, **more: Any) -> None:
    event = DiscoveryEvent(queue.state.cluster.version_after(trigger), trigger, **more)
    queue.heard(RingRecord(queue.state.number + 1, event))


def read(queue: RingQueue) -> None:
    assert queue.ready() == []
    assert queue.reading is not None
    queue.targets_read(queue.reading.ticket, {zone: (("a",),) for zone, _ in queue.reading.zones})
    assert len(queue.ready()) == 1


def test_lists_of_older_revisions_are_forgotten_when_an_exchange_ends() -> None:
    queue = RingQueue(RingState())
    old, new = (ZoneSpec(ZoneId(1), 1, 1, targets=revision) for revision in (5, 9))
    hear(queue, Trigger.ZONE_START, zones=(old,))
    read(queue)
    before = queue.state.cluster
    hear(queue, Trigger.TARGET_SET, zones=(new,))
    read(queue)
    queue.finished(before)
    assert queue.lists_of(old, ("a",)) == queue.lists_of(new, ("a",)) == (("a",),)
    queue.finished(queue.state.cluster)
    assert queue.lists_of(old, ("a",)) == ((),)
    assert queue.lists_of(new, ("a",)) == (("a",),)


def test_lists_name_servers_that_are_there() -> None:
    queue = RingQueue(RingState())
    zone = ZoneSpec(ZoneId(1), 3, 2, targets=5)
    hear(queue, Trigger.ZONE_START, zones=(zone,))
    assert queue.ready() == []
    assert queue.reading is not None
    queue.targets_read(queue.reading.ticket, {zone.zone_id: (("a", "b"), ("b", "c"))})
    assert queue.lists_of(zone, ("a", "b", "c")) == (("a", "b"), ("b", "c"), ())
    assert queue.lists_of(zone, ("a", "c")) == (("a",), ("c",), ())
    assert queue.lists_of(zone, ("a", "b", "c")) == (("a", "b"), ("b", "c"), ())
