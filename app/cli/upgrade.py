"""``zonectl upgrade``: the upgrade from one version to the next, process by process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from app.cli.connection import ObjectApi
from app.cli.exits import ExitCode
from app.cli.options import ReasonOption, YesOption, group
from app.cli.output import confirm, say

if TYPE_CHECKING:
    from app.contract.maintenance import StepBody, UpgradeBody

app = group("Upgrade to the next version, and finalise the upgrade.")
COMMIT_SHOWN = 12


@app.command()
def status(api: ObjectApi) -> int:
    """Show which versions run, and which release level is in force.

    While two versions run side by side, what is written is what both can read.
    FINALISED: the level of the newest version is in force. READY: it can be
    finalised. MIXED: an older version runs, or did within the last 10 minutes.
    Exit code 1 when a process runs that is below the level in force.

    \b
    Examples:
      zonectl upgrade status
      zonectl upgrade status --format json | jq -r .state
    """
    with api.client() as client:
        body = client.ask("GET", "upgrade")
    api.show_one(body, *_lines(body))
    return ExitCode.FAILED if body["refused"] else ExitCode.OK


@app.command()
def plan(api: ObjectApi) -> None:
    """Show which process to replace next.

    Servers come first, as they bring the catalog's schema, then controllers, then
    nodes. One at a time: stop it, start the new version with the same options,
    and look again. A node may go when no zone loses a majority without it. Until
    the level is finalised each step can be taken back in the same way.

    \b
    Examples:
      zonectl upgrade plan
      zonectl upgrade plan --format json | jq -r '.steps[] | select(.may_go).process'
    """
    with api.client() as client:
        body = client.ask("GET", "upgrade")
    steps = [_step(step) for step in body["steps"]]
    api.show_one(body, *(steps or [f"every process runs {body['version']}"]), _what_next(body))


@app.command()
def finalise(
    api: ObjectApi,
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> None:
    """Bring the release level of the newest version into force.

    Refused while a process of an older version runs or did within the last 10 minutes; the message names it.
    From then on formats of the new level are written, older versions are refused, and THERE IS NO WAY BACK to
    them but a restore of both stores. If the level is in force, nothing is done.

    \b
    Examples:
      zonectl upgrade status
      zonectl upgrade finalise
      zonectl upgrade finalise --yes --format json
    """
    with api.client(reason) as client:
        body = client.ask("GET", "upgrade")
        if body["state"] != "FINALISED" and not yes:
            say(
                f"level {body['level_in_force']} is in force, {body['version']} is of {body['level']}",
                out=sys.stderr,
            )
            confirm(f"Give up the way back to versions of level {body['level_in_force']}?", "see what runs")
        done = client.ask("POST", "upgrade", "finalise", body={}, timeout_s=600)
    verb = "is in force now" if done["finalised"] else "was in force: nothing was done"
    api.show_one(done, f"release level {done['level_in_force']} {verb}")


def _lines(body: UpgradeBody) -> Iterator[str]:
    levels = f"release level {body['level_in_force']} is in force, the server is of level {body['level']}"
    yield f"{body['state']}: {levels}"
    for process in body["processes"]:
        commit = f" ({process['commit'][:COMMIT_SHOWN]})" if process["commit"] else ""
        version = process["version"] or "version not known"
        yield f"{process['role']} {process['name']}: {version}{commit}, release level {process['level']}"
    for line in body["refused"]:
        yield f"may not run: {line}"
    for line in body["hindrances"]:
        yield f"not finalised: {line}"
    for line in body["strays"]:
        yield f"members of groups in a store zone: {line}"
    for line in body["inactive"]:
        yield f"not before level {body['level']}: {line}"


def _step(step: StepBody) -> str:
    when = "next" if step["may_go"] else "then"
    why_not = f", {step['why_not']}" if step["why_not"] else ""
    return f"{when}: {step['role']} {step['process']} ({step['version'] or 'version not known'}){why_not}"


def _what_next(body: UpgradeBody) -> str:
    if body["state"] == "FINALISED":
        return f"release level {body['level_in_force']} is in force: there is nothing to finalise"
    if body["hindrances"]:
        return f"then: `zonectl upgrade finalise` (level {body['level']})"
    return f"next: `zonectl upgrade finalise` (level {body['level']})"
