"""The life of an alert, pending while its condition is young, firing and resolved; and silences, which keep
alerts from being told for a time.

A pure state machine over findings. A server judges with it again and again; the one that sends alerts stores
its last judgements in the metastore, so that a restart changes no ``starts_ms``.

An unknown condition changes nothing: its alerts go on firing, none begins to fire and none is resolved.

A silence is the key ``silences/<id>``, under a lease that is not renewed, and with its end in the record: one
that the metastore does not delete in time is over all the same. It changes no alert, only whether it is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from catalog.core.codec import Codec, Extensible, Record, listed, pairs

RESOLVED_KEPT_MS = 900_000
"""A resolved alert is shown and sent for so long: one message that gets lost does no harm."""
ENDED_MAX = 100
INSTANCES_MAX = 500
"""Alerts that are kept, those that fire first. More of them say nothing more."""

Labels = tuple[tuple[str, str], ...]
"""Labels that distinguish the alerts of one name, sorted by label: a zone, a node, an operation."""
Findings = Mapping[Labels, str]
"""Findings that hold now, each with a sentence for people. Empty: the condition does not hold."""


class AlertState(Enum):
    """PENDING: the condition holds, not for long enough. FIRING: it has. RESOLVED: it fired, and holds no
    more."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Alert(Extensible):
    """Times are Unix milliseconds. ``since_ms``: when the condition began to hold. ``starts_ms``: when it began
    to fire, 0 while it is pending. ``ends_ms``: when it was resolved, else 0. ``is_known`` False: it is not
    known now whether it still holds."""

    name: str
    labels: Labels
    state: AlertState
    since_ms: int
    text: str
    starts_ms: int = 0
    ends_ms: int = 0
    is_known: bool = True

    @property
    def key(self) -> tuple[str, Labels]:
        return self.name, self.labels

    @property
    def fingerprint(self) -> str:
        """The same for one alert on every server and after each restart."""
        return fingerprint(self.name, self.labels)

    @property
    def is_over(self) -> bool:
        return self.state is AlertState.RESOLVED


Alerts = Mapping[tuple[str, Labels], Alert]


def fingerprint(name: str, labels: Labels) -> str:
    """16 hexadecimal digits."""
    parts = [name, *(f"{label}={value}" for label, value in labels)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class AlertRecord(Record):
    """Alerts as the server that sends them has judged them, for servers that start later."""

    alerts: tuple[Alert, ...] = ()

    @property
    def by_key(self) -> Alerts:
        return {alert.key: alert for alert in self.alerts}


_ALERT = Codec(Alert, omit=("ends_ms", "is_known"), required=("starts_ms",), forms={"labels": pairs()})
AlertRecord.codec = Codec(AlertRecord, required=("alerts",), forms={"alerts": listed(_ALERT.form)})


def judge(
    before: Alerts, found: Mapping[str, Findings | None], for_ms: Callable[[str], int], now_ms: int
) -> dict[tuple[str, Labels], Alert]:
    """The alerts after another look. ``found``: by name; None: unknown. ``for_ms``: how long a condition holds
    before its alert fires. Names that are not in ``found`` are gone from the table, and so are their alerts.

    Invariants: ``starts_ms`` changes only when a resolved alert fires again; nothing is resolved while unknown.
    """
    after: dict[tuple[str, Labels], Alert] = {}
    for key, alert in before.items():
        if key[0] in found:
            kept = _next(alert, found[key[0]], for_ms(key[0]), now_ms)
            if kept is not None:
                after[key] = kept
    for name, findings in found.items():
        for labels, text in (findings or {}).items():
            if (name, labels) not in after:
                begun = Alert(name, labels, AlertState.PENDING, now_ms, text)
                after[begun.key] = _aged(begun, for_ms(name), now_ms)
    if len(after) <= INSTANCES_MAX:
        return after
    return {alert.key: alert for alert in shown_order(after.values())[:INSTANCES_MAX]}


def _next(alert: Alert, findings: Findings | None, for_ms: int, now_ms: int) -> Alert | None:
    """None: it is forgotten."""
    if findings is None:
        # Time in which nobody can tell counts for nothing.
        since_ms = now_ms if alert.state is AlertState.PENDING else alert.since_ms
        return replace(alert, since_ms=since_ms, is_known=False)
    text = findings.get(alert.labels)
    if text is not None:
        if alert.is_over:
            alert = Alert(alert.name, alert.labels, AlertState.PENDING, now_ms, text)
        return _aged(replace(alert, text=text, is_known=True), for_ms, now_ms)
    if alert.state is AlertState.FIRING:
        return replace(alert, state=AlertState.RESOLVED, ends_ms=now_ms, is_known=True)
    is_shown = alert.is_over and now_ms - alert.ends_ms < RESOLVED_KEPT_MS
    return replace(alert, is_known=True) if is_shown else None


def _aged(alert: Alert, for_ms: int, now_ms: int) -> Alert:
    if alert.state is AlertState.PENDING and now_ms - alert.since_ms >= for_ms:
        return replace(alert, state=AlertState.FIRING, starts_ms=now_ms)
    return alert


_ORDER = {AlertState.FIRING: 0, AlertState.PENDING: 1, AlertState.RESOLVED: 2}


def shown_order(alerts: Iterable[Alert]) -> list[Alert]:
    """Sort alerts: firing, pending and resolved ones, the earliest of each first."""
    return sorted(alerts, key=lambda alert: (_ORDER[alert.state], alert.starts_ms or alert.since_ms, alert.key))


def ended(kept: Iterable[Alert], alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """The last that were resolved, the newest first: those of ``kept`` and of ``alerts``, each end once."""
    ends = {(alert.key, alert.ends_ms): alert for alert in (*alerts, *kept) if alert.is_over}
    newest = sorted(ends.values(), key=lambda alert: (-alert.ends_ms, alert.key))
    return tuple(newest[:ENDED_MAX])


def adopted(own: Alerts, stored: Alerts, *, is_first: bool) -> dict[tuple[str, Labels], Alert]:
    """``own`` with what another server, or this one before it was restarted, knows of the same alerts: the
    earlier begin. ``is_first``: nothing was judged yet, so everything that is stored is taken."""
    merged = dict(stored) if is_first else {}
    for key, alert in own.items():
        other = stored.get(key)
        merged[key] = alert if other is None else _earlier(alert, other)
    return merged


def _earlier(own: Alert, other: Alert) -> Alert:
    if own.state is not other.state or own.is_over:
        return own
    return replace(
        own, since_ms=min(own.since_ms, other.since_ms), starts_ms=min(own.starts_ms, other.starts_ms)
    )


FOR_S_MAX = 7 * 86_400
SILENCES_MAX = 100
"""More at once are refused."""


@dataclass(frozen=True, slots=True)
class Silence(Record):
    """Silence of the alerts with this ``name`` (empty: with any) and all of ``labels``; at least one of both is
    given. Times are Unix milliseconds."""

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
    """Return the text by which commands name silenced alerts: ``NodeDown node=n3``."""
    return " ".join([*([name] if name else ()), *(f"{label}={text}" for label, text in labels.items())])


def silence_of(alert: Alert, silences: Iterable[Silence]) -> Silence | None:
    """The one that lasts longest of those that hold an alert back; None: it is not held back, or is over."""
    covering = () if alert.is_over else (silence for silence in silences if silence.covers(alert))
    return max(covering, key=lambda silence: silence.until_ms, default=None)


def is_told(alert: Alert, silences: Iterable[Silence]) -> bool:
    """Check that an alert that fires or has ended is sent to receivers. Alerts that a silence covers are held
    back, except the end of an alert that began before: receivers know it, and would have it open for ever."""
    covering = (silence for silence in silences if silence.covers(alert))
    return all(alert.is_over and alert.starts_ms < silence.since_ms for silence in covering)
