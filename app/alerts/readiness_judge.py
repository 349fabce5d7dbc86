"""Judgement of what is out of order in an installation: a pure function of the facts that alerts use.

Readiness, ``zonectl status``, ``zonectl doctor`` and the console's Overview show what it finds. Each condition
of an alert is reported from its first moment on, and for as long as its alert fires.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.alerts.alert_rows import LEVEL_ROWS, STALE_S, AlertRow, Severity
from app.alerts.conditions import InstallationFacts
from app.alerts.shown_alerts import is_seen
from app.contract.health import Degraded, InstallationPart
from app.core.alerts import Alert, Alerts, AlertState, Labels
from app.views.answer_state import OK
from catalog.core.zone import Zone
from rebalance.core.admission.move_admission import utc
from rebalance.core.causes.cause import Cause, cause_of

HELD_BY = frozenset((Cause.FOREIGN_DIRECTORY, Cause.NODE_REMOVED, Cause.STORE_DAMAGED))
"""Causes for which a node's process waits until a person acts."""
OF_LOST, OF_SHORT = "PartitionWithoutMajority", "ReplicasMissing"
ALERTS_OF = {Cause.PARTITION_LOST: OF_LOST, Cause.QUORUM_EXCEEDS_DATA_NODES: OF_SHORT}
"""Causes of zones without an alert of their own: the one that counts them among others."""
LATE_S = 30.0
"""Seconds of waiting from which a zone is reported: a placement on Spark takes seconds, the start of Spark up
to twenty."""


@dataclass(frozen=True, slots=True)
class DegradedCause:
    """``detail``: what is known of ``cause``. ``since_ms``: Unix; None: not known. ``alert``: the one that
    fires for it or is about to; empty: none."""

    part: InstallationPart
    cause: Cause
    detail: str
    severity: Severity = Severity.TICKET
    labels: Labels = ()
    since_ms: int | None = None
    alert: str = ""

    @property
    def body(self) -> Degraded:
        return {
            "part": self.part.value,
            "cause": self.cause.text(self.detail),
            "severity": "page" if self.severity is Severity.PAGE else "ticket",
            "labels": dict(self.labels),
            "since": utc(self.since_ms) if self.since_ms is not None else None,
            "alert": self.alert or None,
        }


def with_state(body: Mapping[str, Any], degraded: list[Degraded]) -> dict[str, Any]:
    """The body of ``/readyz`` with what is out of order."""
    state = "not ready" if not body["ready"] else "degraded" if degraded else "ready"
    return {"state": "", **body, "degraded": degraded} | {"state": state}


def of_zones(body: Mapping[str, Any], zones: Collection[Zone]) -> dict[str, Any]:
    """Reduce the body of ``/readyz`` to these zones, as if there were no others."""
    ids = {zone.name: zone.zone_id for zone in zones}
    lost, queue = [each for each in body["lost_partitions"] if each["zone"] in ids], body["queue"]
    if queue["zone_id"] not in ids.values():
        queue = {**queue, "zone_id": None, "zone_oldest_seconds": 0.0}
    degraded = [each for each in body["degraded"] if is_seen(each["labels"], ids, ids.values())]
    return with_state({**body, "lost_partitions": lost, "queue": queue}, degraded)


def judge(facts: InstallationFacts, alerts: Iterable[Alert] = ()) -> tuple[DegradedCause, ...]:
    """Causes for which the installation is degraded; empty: all is well. ``alerts``: as they were judged last.
    A cause that cannot be seen because the metastore is silent is not named beside it, unless its alert
    fires."""
    going_on = {alert.key: alert for alert in alerts if not alert.is_over}
    # Partitions by zone that are told once, with the cause that is theirs.
    causes, apart = {}, {OF_LOST: facts.lost, OF_SHORT: facts.below_quorum or {}}
    rest = _without(facts, apart)
    for row in LEVEL_ROWS:
        for labels, text in _texts(row, rest, going_on.values(), apart.get(row.name, {})).items():
            alert = going_on.get((row.name, labels))
            since_ms, name = (alert.since_ms, row.name) if alert is not None else (None, "")
            causes[row.cause, labels] = DegradedCause(
                row.part, row.cause, text, row.severity, labels, since_ms, name
            )
    others = (other for other in _without_alert(facts) if (other.cause, other.labels) not in causes)
    return (*causes.values(), *(_dated(other, going_on) for other in others))


def _without(facts: InstallationFacts, apart: Mapping[str, Mapping[str, int]]) -> InstallationFacts:
    def rest(counts: Mapping[str, int] | None, alert: str) -> dict[str, int] | None:
        if counts is None:
            return None
        return {zone: max(count - apart[alert].get(zone, 0), 0) for zone, count in counts.items()}

    return replace(
        facts,
        without_majority=rest(facts.without_majority, OF_LOST),
        replicas_missing=rest(facts.replicas_missing, OF_SHORT),
    )


def _dated(cause: DegradedCause, going_on: Alerts) -> DegradedCause:
    alert = going_on.get((ALERTS_OF.get(cause.cause, ""), cause.labels))
    return replace(cause, since_ms=alert.since_ms, alert=alert.name) if alert is not None else cause


def _texts(
    row: AlertRow, facts: InstallationFacts, alerts: Iterable[Alert], apart: Collection[str]
) -> dict[Labels, str]:
    """Texts by labels: of what holds now, and of what fires, even if it is unknown whether that still holds.
    Zones of ``apart`` are left out, because other causes report them."""
    firing = {
        alert.labels: alert.text
        for alert in alerts
        if alert.name == row.name and alert.state is AlertState.FIRING
    }
    if row.is_ordinary or (row.of_mirror and facts.metastore != OK):
        return firing
    firing = {labels: text for labels, text in firing.items() if dict(labels).get("zone") not in apart}
    return {**firing, **(row.findings(facts) or {})}


def _without_alert(facts: InstallationFacts) -> Iterator[DegradedCause]:
    """Yield what is out of order beside the conditions of alerts."""
    if facts.not_agreed:
        yield DegradedCause(InstallationPart.METASTORE, Cause.METASTORE_UNAVAILABLE, facts.not_agreed)
    if facts.metastore == OK:
        yield from _of_mirror(facts)
    if facts.waiting is not None and facts.waiting[1] >= LATE_S:
        zone, waits_s = facts.waiting
        waits = f"zone {zone} has waited for its placement for {waits_s:.0f} s"
        yield replace(_of_zone(zone, Cause.ZONE_LATE, waits), part=InstallationPart.QUEUE)
    for process, task, cause in facts.tasks:
        if (word := cause_of(cause)) in HELD_BY:
            detail = cause.removeprefix(f"{word.name}: ")
            yield DegradedCause(InstallationPart.NODES, word, detail)
            continue
        yield DegradedCause(InstallationPart.BACKGROUND, Cause.TASK_ENDED, f"{process}, {task}: {cause}")


def _of_zone(zone: str, cause: Cause, text: str) -> DegradedCause:
    return DegradedCause(InstallationPart.ZONES, cause, text, labels=(("zone", zone),))


def _of_mirror(facts: InstallationFacts) -> Iterator[DegradedCause]:
    if facts.mirror_age_s > STALE_S and not facts.not_agreed:
        old = f"what this server knows of the metastore is {facts.mirror_age_s:.0f} s old"
        yield DegradedCause(InstallationPart.METASTORE, Cause.METASTORE_UNAVAILABLE, old)
    if facts.is_settling:
        settling = "it answers again; what ended while it was silent is told within seconds"
        yield DegradedCause(InstallationPart.METASTORE, Cause.METASTORE_UNAVAILABLE, settling)
    if facts.controller is not None and facts.spark == "down":
        why = f"{facts.spark_message}; placements are computed without it"
        yield DegradedCause(InstallationPart.SPARK, Cause.SPARK_DOWN, why)
    if not facts.nodes:
        yield DegradedCause(InstallationPart.NODES, Cause.NO_NODE, "no node is alive", Severity.PAGE)
    if not facts.is_counted:
        counted = "partitions have not been counted yet since the server started"
        yield DegradedCause(InstallationPart.ZONES, Cause.NOT_COUNTED, counted)
    for zone, count in facts.lost.items():
        text = f"{count} partition{' has' if count == 1 else 's have'} no in-sync copy left in zone {zone}"
        yield replace(_of_zone(zone, Cause.PARTITION_LOST, text), severity=Severity.PAGE)
    for zone, count in (facts.below_quorum or {}).items():
        text = f"{count} partition{'' if count == 1 else 's'} with fewer voters than QUORUM SIZE in zone {zone}"
        yield _of_zone(zone, Cause.QUORUM_EXCEEDS_DATA_NODES, text)
    for zone, unserved in (facts.unserved or {}).items():
        # Those that had a majority and lost it are an alert.
        if (count := unserved - (facts.without_majority or {}).get(zone, 0)) > 0:
            text = f"{count} partition{' takes' if count == 1 else 's take'} no writes yet in zone {zone}"
            yield _of_zone(zone, Cause.LEADER_UNKNOWN, text)
    for unreadable in facts.unreadable:
        detail = unreadable.removeprefix(f"{Cause.RECORD_NOT_READABLE.name}: ")
        yield DegradedCause(InstallationPart.METASTORE, Cause.RECORD_NOT_READABLE, detail)
