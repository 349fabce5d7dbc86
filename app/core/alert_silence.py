"""Silences: alerts of which nobody is to be told for a time.

A silence is the key ``silences/<id>``, under a lease that nobody keeps alive and with its end in the record:
what a metastore does not delete in time is over all the same. It changes no alert, only who is told of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.core.alert_state import Alert, Labels, fingerprint
from catalog.core.codec import Codec, Record, pairs

FOR_S_MAX = 7 * 86_400
SILENCES_MAX = 100
"""More at once are refused."""


@dataclass(frozen=True, slots=True)
class Silence(Record):
    """Of alerts with this ``name`` (empty: of any) and all of ``labels``; at least one of both is there. Times
    are Unix milliseconds."""

    name: str
    labels: Labels
    since_ms: int
    until_ms: int
    by: str
    reason: str

    @property
    def silence_id(self) -> str:
        """One for the same alerts, so that a silence takes the place of an earlier one of them."""
        return fingerprint(self.name, self.labels)

    @property
    def subject(self) -> str:
        return silenced_text(self.name, dict(self.labels))

    def holds(self, now_ms: int) -> bool:
        return now_ms < self.until_ms

    def covers(self, alert: Alert) -> bool:
        return self.name in ("", alert.name) and set(self.labels) <= set(alert.labels)


Silence.codec = Codec(Silence, forms={"labels": pairs()}, remembered=2 * SILENCES_MAX)


def silenced_text(name: str | None, labels: Mapping[str, str]) -> str:
    """As commands take it: ``NodeDown node=n3``."""
    return " ".join([*([name] if name else ()), *(f"{label}={text}" for label, text in labels.items())])


def silence_of(alert: Alert, silences: Iterable[Silence]) -> Silence | None:
    """The one that lasts longest of those that hold an alert back; None: it is not held back, or is over."""
    covering = () if alert.is_over else (silence for silence in silences if silence.covers(alert))
    return max(covering, key=lambda silence: silence.until_ms, default=None)


def is_told(alert: Alert, silences: Iterable[Silence]) -> bool:
    """Whether receivers are told of an alert that fires or has ended. What a silence covers is held back, but
    for the end of an alert that began before: receivers know it, and would have it open for ever."""
    covering = (silence for silence in silences if silence.covers(alert))
    return all(alert.is_over and alert.starts_ms < silence.since_ms for silence in covering)
