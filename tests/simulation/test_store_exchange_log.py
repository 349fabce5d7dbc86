"""Records that coordinators publish of exchanges."""

from __future__ import annotations

import pytest

from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.exchange.core.exchange_messages import SingleMessage
from rebalance.exchange.core.exchange_states import ExchangeType, Phase
from rebalance.store.core.exchange_log import AGAIN_MS, LONG_MS
from rebalance.store.core.exchange_record import ExchangeRecord
from rebalance.store.core.store_effects import PublishExchange, StoreEffect
from simulator.store.store_world import StoreProcess
from tests.fixtures.store_scene import StoreScene


class Followed(StoreScene):
    """``published``: by whom, and what."""

    published: list[tuple[str, ExchangeRecord]]

    def stepped(self, process: StoreProcess, effects: list[StoreEffect]) -> None:
        super().stepped(process, effects)
        if not hasattr(self, "published"):
            self.published = []
        self.published += [(process.name, each.record) for each in effects if isinstance(each, PublishExchange)]


@pytest.mark.row("PME-025", "PME-064", "PME-067")
def test_an_exchange_that_ends_soon_is_published_once() -> None:
    """PME-067: with the events that were merged into it. PME-025: and its type."""
    scene = Followed("ab", ("ab", "ba"))
    scene.published.clear()
    scene.announce("c")
    scene.announce("d")
    scene.settle()
    ((publisher, record),) = [each for each in scene.published if each[1].cause.trigger is Trigger.NODE_JOINED]
    assert (publisher, record.coordinator, record.cause.node) == ("a", "a", "c")
    assert [(event.trigger, event.node) for event in record.merged] == [(Trigger.NODE_JOINED, "d")]
    assert (str(record.version), record.type) == ("4.0", ExchangeType.ALL)
    assert [phase.phase for phase in record.phases] == [
        *(Phase.INIT, Phase.TOPOLOGY, Phase.RELEASE, Phase.LATCH, Phase.COMMITS),
        *(Phase.PREPARE, Phase.COLLECT, Phase.COMMIT),
    ]
    assert all(item.ended_ms is not None for item in record.phases)


def test_a_long_exchange_is_published_while_it_runs_with_whom_it_waits_for() -> None:
    """PME-064. Not more often than once a second, and only when something of it is different."""
    scene = Followed("abc", ("ab", "ba"))
    scene.published.clear()
    scene.holds(SingleMessage)
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    scene.run(LONG_MS - 100)
    assert not scene.published
    scene.run(600)
    ((publisher, record),) = scene.published
    assert (publisher, str(record.cause.version), record.version) == ("a", version, None)
    assert (record.phases[-1].phase, record.phases[-1].ended_ms) == (Phase.COLLECT, None)
    assert record.awaited == ("b", "c")
    scene.run(3 * AGAIN_MS)
    assert len(scene.published) == 1
    scene.holds(SingleMessage, sender="c")
    scene.exchange()
    scene.run(2 * AGAIN_MS)
    assert [each.awaited for _, each in scene.published] == [("b", "c"), ("c",)]
    scene.release()
    scene.settle()
    assert [each.version is None for _, each in scene.published if str(each.cause.version) == version] == [
        *(True, True),
        False,
    ]
