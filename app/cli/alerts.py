"""``zonectl alerts``: what fires, and what is about to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from app.cli.connection import Api, client_command
from app.cli.exits import ExitCode
from app.cli.options import option

if TYPE_CHECKING:
    from app.contract.alerts import AlertBody

RESOLVED = "resolved"


@client_command
def alerts(
    api: Api,
    every: Annotated[bool, option("--all", "Also alerts that were resolved within 15 minutes.")] = False,
) -> int:
    """List the alerts that fire or are pending, with the page of the runbook for each.

    A pending alert fires when its condition has held for the time that its page
    says. Every server judges the alerts by itself; rules for Prometheus in
    monitoring/rules say the same. An alert whose state nobody can tell now is
    marked "?": it stays as it was.

    Exit code 1 when an alert fires or is pending.

    \b
    Examples:
      zonectl alerts
      zonectl alerts --format json | jq -r '.[] | select(.state == "firing").name'
      zonectl alerts --all
    """
    with api.client() as client:
        listed = client.alerts()["alerts"]
    going_on = [alert for alert in listed if alert["state"] != RESOLVED]
    shown = listed if every else going_on
    if not shown and api.is_table:
        from app.cli.say import say

        say("no alert fires or is pending")
    else:
        api.show(
            shown,
            {
                "alert": "name",
                "state": lambda alert: alert["state"] + ("" if alert["known"] else " ?"),
                "severity": "severity",
                "since": lambda alert: alert["starts_at"] or alert["since"],
                "what": "text",
                "runbook": "runbook",
            },
        )
    return ExitCode.FAILED if going_on else ExitCode.OK


def alert_lines(alerts: Sequence[AlertBody]) -> Iterator[str]:
    """A line for each alert that fires or is pending, for ``zonectl status``."""
    for alert in alerts:
        if alert["state"] != RESOLVED:
            doubt = "" if alert["known"] else " (cannot be told now)"
            state = "ALERT" if alert["state"] == "firing" else "PENDING ALERT"
            since = alert["starts_at"] or alert["since"]
            yield f"{state} {alert['name']} since {since}: {alert['text']}{doubt}; see {alert['runbook']}"
