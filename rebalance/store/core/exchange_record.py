"""An exchange as its coordinator publishes it, for people: cause, phases with their times, whom it waits for.

Nobody decides anything from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.core.codec import Codec, listed
from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import DiscoveryEvent, TopologyVersion, Trigger
from rebalance.exchange.core.exchange_states import ExchangeType, Phase

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
        """Return a copy with all times later by ``ms``."""
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


_EVENT: Codec[EventName] = Codec(EventName, omit=("node", "zones"))
_RECORD: Codec[ExchangeRecord] = Codec(
    ExchangeRecord,
    omit=("awaited", "merged"),
    forms={"cause": _EVENT.form, "merged": listed(_EVENT.form)},
)
encode_exchange, decode_exchange = _RECORD.encode, _RECORD.decode
"""``decode`` raises RecordNotReadableError, whatever the bytes are."""
