"""``zonectl alerts``: alerts that are pending, fire or have ended; ``silence | silences | unsilence``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.connection import ObjectApi, RowsApi
from app.cli.exits import ExitCode, UsageError
from app.cli.limits import seconds_of
from app.cli.options import ByOption, argument, group, option
from app.cli.output import counted, say
from app.core.alerts import silenced_text

if TYPE_CHECKING:
    from app.contract.health import AlertBody, SilenceBody

RESOLVED = "resolved"
app = group()


@app.callback(invoke_without_command=True)
def alerts(
    api: RowsApi,
    context: typer.Context,
    every: Annotated[bool, option("--all", "Also alerts that were resolved within 15 minutes.")] = False,
    is_over: Annotated[
        bool, option("--ended", "Only alerts that have ended: the last 100, newest first.")
    ] = False,
) -> int:
    """List the alerts that fire or are pending, with the page of the runbook for each.

    A pending alert fires when its condition has held for the time that its page
    says. Every server judges the alerts independently; the rules for Prometheus in monitoring/rules match. An
    alert that cannot be judged now is marked "?" and keeps its state. A silenced alert is listed as such and is
    not sent.

    Exit code 1 when an alert fires or is pending that is not silenced.

    \b
    Examples:
      zonectl alerts
      zonectl alerts --format json | jq -r '.[] | select(.state == "firing").name'
      zonectl alerts --ended
      zonectl alerts silence NodeDown node=n3 --for 2h --reason "new disks"
      zonectl alerts silences
    """
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    if every and is_over:
        raise UsageError("zonectl alerts: choose --all or --ended")
    with api.client() as client:
        listed = client.ask("GET", "alerts", query={"state": RESOLVED} if is_over else {})["alerts"]
    going_on = [alert for alert in listed if alert["state"] != RESOLVED]
    shown = listed if every or is_over else going_on
    if not shown and api.is_table:
        say("no alert has ended" if is_over else "no alert fires or is pending")
    else:
        ends = {"ended": lambda alert: alert["ends_at"] or ""} if is_over else {}
        api.show(
            shown,
            {
                "alert": "name",
                "state": _state,
                "severity": "severity",
                "since": lambda alert: alert["starts_at"] or alert["since"],
                **ends,
                "what": "text",
                "runbook": "runbook",
            },
        )
    return ExitCode.FAILED if any(not alert.get("silence") for alert in going_on) else ExitCode.OK


@app.command()
def silence(
    api: ObjectApi,
    alerts: Annotated[
        list[str],
        argument("ALERT|LABEL=VALUE", "Name of an alert, labels that it has, or both: NodeDown node=n3."),
    ],
    for_time: Annotated[str, option("--for", "Duration, at most 7d, for example 90s, 30m, 2h or 1d.", "TIME")],
    reason: Annotated[str, option("--reason", "Reason shown with the silence, and in the audit log.", "TEXT")],
    by: ByOption = None,
) -> None:
    """Silence alerts for a time: they are not sent. It applies to alerts with this name and all of these
    labels: a name alone silences each alert of the name, a label alone every alert about that zone,
    node or operation. They stay in lists, marked as silenced, with the state that
    they have. They are not sent to the webhook, and count neither in the console's
    badge nor in the exit code of `zonectl alerts`. `zonectl status`, readiness and
    the rules for Prometheus are as without it. A second silence of the same alerts
    gives the first one a new end.

    \b
    Examples:
      zonectl alerts silence NodeDown node=n3 --for 2h --reason "new disks"
      zonectl alerts silence zone=orders --for 30m --reason "load test"
      zonectl alerts silence SparkAway --for 1d --reason "Spark comes on Monday"
    """
    name, labels = _silenced(alerts)
    body = {"alert": name, "labels": labels, "for_s": seconds_of(for_time), "by": by, "reason": reason}
    with api.client() as client:
        begun = client.ask("POST", "alerts", "silences", body=body)
    now = counted(begun["alerts"], "alert") if begun["alerts"] else "no alert"
    api.show_one(
        begun,
        f"silence {begun['silence_id']} of {_subject(begun)} until {begun['until']}; it holds back {now} now",
    )


@app.command()
def silences(api: RowsApi) -> None:
    """List the silences in force, with alerts, end, user and reason.

    \b
    Examples:
      zonectl alerts silences
      zonectl alerts silences --format json | jq -r '.[].silence_id'
    """
    with api.client() as client:
        listed = client.ask("GET", "alerts", "silences")["silences"]
    if not listed and api.is_table:
        say("no alert is silenced")
    else:
        columns = {"until": "until", "by": "by", "reason": "reason"}
        api.show(listed, {"id": "silence_id", "alerts": _subject, "since": "since", **columns})


@app.command()
def unsilence(
    api: ObjectApi,
    silence_id: Annotated[str, argument("ID", "ID of a silence, as listed by `zonectl alerts silences`.")],
    reason: Annotated[str, option("--reason", "Reason recorded in the audit log.", "TEXT")] = "",
) -> None:
    """End a silence early. Alerts that still fire are sent again.

    \b
    Example:
      zonectl alerts unsilence 5a3c0c62d6f1b8e4
    """
    with api.client(reason) as client:
        ended = client.ask("DELETE", "alerts", "silences", silence_id)
    api.show_one(ended, f"silence {silence_id} {'ended' if ended['changed'] else 'did not hold'}")


def alert_lines(alerts: Sequence[AlertBody]) -> Iterator[str]:
    """A line for each alert that fires or is pending, for ``zonectl status``."""
    for alert in alerts:
        if alert["state"] != RESOLVED:
            doubt = "" if alert["known"] else " (unknown now)"
            silence = alert.get("silence")
            held = f" (silenced until {silence['until']}: {silence['reason']})" if silence else ""
            state = "ALERT" if alert["state"] == "firing" else "PENDING ALERT"
            since = alert["starts_at"] or alert["since"]
            yield f"{state} {alert['name']} since {since}: {alert['text']}{doubt}{held}; see {alert['runbook']}"


def _state(alert: AlertBody) -> str:
    silenced = ", silenced" if alert.get("silence") else ""
    return alert["state"] + silenced + ("" if alert["known"] else " ?")


def _silenced(words: Sequence[str]) -> tuple[str | None, Mapping[str, str]]:
    """The name and the labels of the alerts to silence. Raises UsageError."""
    pairs = [word.partition("=") for word in words]
    names = [name for name, sign, _ in pairs if not sign]
    labels = {name: value for name, sign, value in pairs if sign}
    if len(names) > 1 or len(names) + len(labels) < len(words) or not all(labels.values()):
        raise UsageError(f"give one alert and labels as node=n3, each once, not {' '.join(words)}")
    return names[0] if names else None, labels


def _subject(silence: SilenceBody) -> str:
    return silenced_text(silence["alert"], silence["labels"])
