"""Alerts, as the server that answers judges them."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.marks import About, OneOf
from rebalance.core.alert_state import AlertState


class AlertBody(TypedDict):
    name: Annotated[str, About("as in the rules for Prometheus", examples=["PartitionWithoutMajority"])]
    state: Annotated[str, OneOf(AlertState)]
    known: Annotated[bool, About("false: nobody can tell now whether it still holds, so it stays as it was")]
    severity: Annotated[str, About("page: now; ticket: within a working day")]
    group: Annotated[str, About("alerts of one group that are sent together")]
    labels: Annotated[dict[str, str], About("what it is about: a zone, a node, an operation")]
    text: Annotated[str, About("what is so now, or was when it was last known")]
    since: Annotated[str, About("when its condition began to hold, UTC")]
    starts_at: Annotated[str | None, About("when it began to fire, UTC; null: it has not")]
    ends_at: Annotated[str | None, About("when it was resolved, UTC; null: it was not")]
    fingerprint: Annotated[str, About("the same on every server and after each restart")]
    runbook: Annotated[str, About("the page that says what to do")]


class Alerts(TypedDict):
    judged_at: Annotated[str | None, About("UTC; null: not yet")]
    alerts: Annotated[list[AlertBody], About("what fires first; then pending, then resolved ones")]
