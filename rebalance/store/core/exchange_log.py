"""Choice of the exchanges that a server publishes: those that it coordinates, once they are over. One that
lasts long is published while it runs, too."""

from __future__ import annotations

from dataclasses import replace

from rebalance.core.partition_maps.topology_version import DiscoveryEvent, TopologyVersion
from rebalance.exchange.core.exchange_effects import Entered, Finished
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.store.core.exchange_record import EventName, ExchangeRecord
from rebalance.store.core.shared_state import SharedState
from rebalance.store.core.store_effects import PublishExchange

LONG_MS = 500
"""An exchange that is not over after that is published."""
AGAIN_MS = 1_000
"""... and again, at most so often, when something of it changed."""


class ExchangeLog:
    """Every server follows its exchanges, as any may have to coordinate."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._events: dict[TopologyVersion, EventName] = {}
        self._running: ExchangeRecord | None = None
        self._published: ExchangeRecord | None = None
        self._published_ms = 0

    def heard(self, event: DiscoveryEvent) -> None:
        self._events[event.version] = EventName.of(event)

    def entered(self, effect: Entered) -> None:
        running, cause = self._running, self._events.get(effect.version)
        if cause is None:
            return
        if running is None or running.cause != cause:
            running = ExchangeRecord(cause, effect.type, self._shared.name)
            self._published = None
        if not running.phases or running.phases[-1].phase is not effect.phase:
            running = running.at_phase(effect.phase, self._shared.now_ms)
        self._running = running

    def tick(self, worker: ExchangeWorker) -> None:
        now_ms = self._shared.now_ms
        if self._running is None or not worker.is_coordinator or now_ms - self._running.begun_ms < LONG_MS:
            return
        self._running = replace(self._running, awaited=awaited_by(worker))
        is_fresh = self._published is not None and now_ms - self._published_ms < AGAIN_MS
        if not is_fresh and self._running != self._published:
            self._published, self._published_ms = self._running, now_ms
            self._shared.out.append(PublishExchange(self._running))

    def finished(self, effect: Finished, worker: ExchangeWorker) -> None:
        running, self._running = self._running, None
        merged = tuple(self._events[version] for version in effect.merged if version in self._events)
        self._events = {version: item for version, item in self._events.items() if version > effect.version}
        if running is not None and worker.is_coordinator:
            ended = running.at_phase(None, self._shared.now_ms)
            record = replace(ended, awaited=(), merged=merged, version=effect.version)
            self._shared.out.append(PublishExchange(record))


def awaited_by(worker: ExchangeWorker) -> tuple[str, ...]:
    """Servers whose word the running exchange of a coordinator waits for, itself among them."""
    running = worker.running
    if running is None:
        return ()
    match running.phase:
        case Phase.COLLECT:
            return tuple(sorted(worker.awaited))
        case Phase.LATCH:
            return tuple(sorted(running.counters_of_latch(worker.cluster) - running.counted))
        case Phase.COMMIT:
            return ()
        case _:
            return (worker.name,)
