"""Alerts, as the server that answers judges them."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.marks import About, OneOf
from rebalance.core.alert_state import AlertState

AlertStateName = Annotated[str, OneOf(AlertState)]


class SilenceBody(TypedDict):
    silence_id: Annotated[str, About("the same for the same alerts", examples=["5a3c0c62d6f1b8e4"])]
    alert: Annotated[str | None, About("name of the alerts that it applies to; null: any")]
    labels: Annotated[dict[str, str], About("labels that an alert must have")]
    since: Annotated[str, About("UTC")]
    until: Annotated[str, About("end of the silence, UTC")]
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
    name: Annotated[str, About("as in the rules for Prometheus", examples=["PartitionWithoutMajority"])]
    state: AlertStateName
    known: Annotated[bool, About("false: the condition cannot be judged now, so the alert keeps its state")]
    severity: Annotated[str, About("page: now; ticket: within a working day")]
    group: Annotated[str, About("alerts of one group that are sent together")]
    labels: Annotated[dict[str, str], About("what it is about: a zone, a node, an operation")]
    text: Annotated[str, About("summary of what is wrong, as last known")]
    since: Annotated[str, About("when its condition began to hold, UTC")]
    starts_at: Annotated[str | None, About("when it began to fire, UTC; null: it has not")]
    ends_at: Annotated[str | None, About("when it was resolved, UTC; null: it was not")]
    fingerprint: Annotated[str, About("the same on every server and after each restart")]
    runbook: Annotated[str, About("the page that says what to do")]
    silence: Annotated[SilenceBody | None, About("the silence that applies to it; null: none")]


class Alerts(TypedDict):
    judged_at: Annotated[str | None, About("UTC; null: not yet")]
    alerts: Annotated[list[AlertBody], About("firing first, then pending, then resolved ones")]
