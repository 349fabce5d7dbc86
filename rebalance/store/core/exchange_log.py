"""What a coordinator publishes of its exchanges, for people: cause, phases with their times, whom it waits for.

One record an exchange, written when the exchange is over, and while it lasts only where it lasts long. Nobody
decides anything from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from catalog.core.codec import Codec, listed, optional
from catalog.core.zone import ZoneId
from rebalance.core.topology_version import DiscoveryEvent, TopologyVersion, Trigger
from rebalance.exchange.core.exchange_effects import Entered, Finished
from rebalance.exchange.core.exchange_states import ExchangeType, Phase
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.store.core.ring_codec import VERSION

LONG_MS = 500
"""An exchange that is not over after that is published."""
AGAIN_MS = 1_000
"""... and again, at most so often, when something of it changed."""
EXCHANGES_KEPT = 64


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """``ended_ms`` None: it lasts."""

    phase: Phase
    begun_ms: int
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class EventName:
    """An event of the ring, as it is shown."""

    version: TopologyVersion
    trigger: Trigger
    node: str = ""
    zones: tuple[ZoneId, ...] = ()

    @classmethod
    def of(cls, event: DiscoveryEvent) -> EventName:
        zones = tuple(zone.zone_id for zone in event.zones)
        return cls(event.version, event.trigger, event.node, zones)


@dataclass(frozen=True, slots=True)
class ExchangeRecord:
    """``version``: with which it ended, None while it runs. ``merged``: events that ended with it, besides
    ``cause``. ``awaited``: servers that the coordinator waits for now. Times in milliseconds: of the server's
    clock in the core, of the wall clock once published."""

    cause: EventName
    type: ExchangeType
    coordinator: str
    phases: tuple[PhaseTime, ...] = ()
    awaited: tuple[str, ...] = ()
    merged: tuple[EventName, ...] = ()
    version: TopologyVersion | None = None

    @property
    def begun_ms(self) -> int:
        return self.phases[0].begun_ms

    @property
    def ended_ms(self) -> int | None:
        return self.phases[-1].ended_ms

    def shifted(self, ms: int) -> ExchangeRecord:
        """With all times so much later."""
        phases = tuple(
            PhaseTime(item.phase, item.begun_ms + ms, None if item.ended_ms is None else item.ended_ms + ms)
            for item in self.phases
        )
        return replace(self, phases=phases)

    def at_phase(self, phase: Phase | None, now_ms: int) -> ExchangeRecord:
        """The last phase has ended, and another one begins; None: none does."""
        *before, last = self.phases or (None,)
        ended = () if last is None else (*before, replace(last, ended_ms=now_ms))
        begun = () if phase is None else (PhaseTime(phase, now_ms),)
        return replace(self, phases=(*ended, *begun))


_EVENT: Codec[EventName] = Codec(EventName, omit=("node", "zones"), forms={"version": VERSION})
_RECORD: Codec[ExchangeRecord] = Codec(
    ExchangeRecord,
    omit=("awaited", "merged"),
    forms={
        "cause": _EVENT.form,
        "merged": listed(_EVENT.form),
        "version": optional(VERSION),
    },
)
encode_exchange, decode_exchange = _RECORD.encode, _RECORD.decode
"""``decode`` raises RecordNotReadableError, whatever the bytes are."""


@dataclass(slots=True)
class ExchangeLog:
    """Of one server. Every server follows its exchanges, as any may have to coordinate; ``is_coordinator`` says
    who publishes."""

    name: str
    events: dict[TopologyVersion, EventName] = field(default_factory=dict)
    running: ExchangeRecord | None = None
    published: ExchangeRecord | None = None
    published_ms: int = 0

    def heard(self, event: DiscoveryEvent) -> None:
        self.events[event.version] = EventName.of(event)

    def entered(self, effect: Entered, now_ms: int) -> None:
        running, cause = self.running, self.events.get(effect.version)
        if cause is None:
            return
        if running is None or running.cause != cause:
            running = ExchangeRecord(cause, effect.type, self.name)
            self.published = None
        if not running.phases or running.phases[-1].phase is not effect.phase:
            running = running.at_phase(effect.phase, now_ms)
        self.running = running

    def due(self, now_ms: int, worker: ExchangeWorker) -> ExchangeRecord | None:
        """What is to be published of an exchange that takes long."""
        if self.running is None or not worker.is_coordinator or now_ms - self.running.begun_ms < LONG_MS:
            return None
        self.running = replace(self.running, awaited=awaited_by(worker))
        is_known = self.published is not None and now_ms - self.published_ms < AGAIN_MS
        if is_known or self.running == self.published:
            return None
        self.published, self.published_ms = self.running, now_ms
        return self.running

    def finished(self, effect: Finished, now_ms: int, *, is_coordinator: bool) -> ExchangeRecord | None:
        """What is to be published of one that is over."""
        running, self.running = self.running, None
        merged = tuple(self.events[version] for version in effect.merged if version in self.events)
        self.events = {version: item for version, item in self.events.items() if version > effect.version}
        if running is None or not is_coordinator:
            return None
        ended = replace(running.at_phase(None, now_ms), awaited=())
        return replace(ended, merged=merged, version=effect.version)


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
