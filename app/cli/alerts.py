"""``zonectl alerts``: what fires, and what is about to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from app.cli.connection import Api, client_command
from app.cli.exits import ExitCode
from app.cli.options import option

if TYPE_CHECKING:
    from app.contract.alerts import AlertBody


@client_command
def alerts(
    api: Api,
    every: Annotated[
        bool, option("--all", "Also alerts that are pending, and those resolved within 15 minutes.")
    ] = False,
) -> int:
    """List the alerts that fire, with the page of the runbook for each.

    Every server judges the alerts by itself; rules for Prometheus in
    monitoring/rules say the same. An alert whose state nobody can tell now is
    marked "?": it stays as it was.

    Exit code 1 when an alert fires.

    \b
    Examples:
      zonectl alerts
      zonectl alerts --all --format json | jq -r '.[].name'
    """
    with api.client() as client:
        listed = client.alerts()["alerts"]
    firing = [alert for alert in listed if alert["state"] == "firing"]
    shown = listed if every else firing
    if not shown and api.is_table:
        from app.cli.say import say

        say("no alert fires")
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
    return ExitCode.FAILED if firing else ExitCode.OK


def firing_lines(alerts: Sequence[AlertBody]) -> Iterator[str]:
    """A line for each alert that fires, for ``zonectl status``."""
    for alert in alerts:
        if alert["state"] == "firing":
            doubt = "" if alert["known"] else " (cannot be told now)"
            yield f"ALERT {alert['name']}: {alert['text']}{doubt}; see {alert['runbook']}"
