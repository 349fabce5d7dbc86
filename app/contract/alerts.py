"""Alerts, as the server that answers judges them."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.columns import Moment, Named
from app.contract.marks import About, OneOf
from app.core.alert_state import AlertState

AlertStateName = Annotated[str, OneOf(AlertState)]


class SilenceBody(TypedDict):
    silence_id: Annotated[str, About("the same for the same alerts", examples=["5a3c0c62d6f1b8e4"])]
    alert: Annotated[str | None, Named("name of the alerts that it applies to; null: any", of="name")]
    labels: Annotated[dict[str, str], About("labels that an alert must have")]
    since: Annotated[Moment, Named(of="since_ms")]
    until: Annotated[Moment, Named("end of the silence, UTC", of="until_ms")]
    by: str
    reason: str


class SilenceBegun(SilenceBody):
    alerts: Annotated[int, About("firing and pending alerts that it applies to now")]


class SilenceEnded(TypedDict):
    silence_id: str
    changed: Annotated[bool, About("false: the silence did not exist or had ended")]


class SilenceList(TypedDict):
    silences: Annotated[list[SilenceBody], About("silences in force, ordered by end")]


class AlertBody(TypedDict):
    name: Annotated[
        str, Named("as in the rules for Prometheus", "ALERT_NAME", example="PartitionWithoutMajority")
    ]
    state: Annotated[AlertStateName, Named(sql="STATE")]
    known: Annotated[
        bool,
        Named(
            "false: the condition cannot be judged now, so the alert keeps its state", "IS_KNOWN", "is_known"
        ),
    ]
    severity: Annotated[str, Named("page: now; ticket: within a working day", "SEVERITY")]
    group: Annotated[str, Named("alerts of one group that are sent together", "ALERT_GROUP")]
    labels: Annotated[dict[str, str], Named("what it is about: a zone, a node, an operation", "LABELS")]
    text: Annotated[str, Named("summary of what is wrong, as last known", "DESCRIPTION")]
    since: Annotated[Moment, Named("when its condition began to hold, UTC", "ACTIVE_SINCE", "since_ms")]
    starts_at: Annotated[Moment | None, Named("when it began to fire, UTC; null: it has not", "STARTS_AT")]
    ends_at: Annotated[Moment | None, Named("when it was resolved, UTC; null: it was not", "ENDS_AT")]
    fingerprint: Annotated[str, Named("the same on every server and after each restart", "FINGERPRINT")]
    runbook: Annotated[str, Named("the page that says what to do", "RUNBOOK")]
    silence: Annotated[SilenceBody | None, About("the silence that applies to it; null: none")]


class Alerts(TypedDict):
    judged_at: Annotated[str | None, About("UTC; null: not yet")]
    alerts: Annotated[list[AlertBody], About("firing first, then pending, then resolved ones")]
