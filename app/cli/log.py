"""``zonectl log``: the log levels of the processes of an installation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from app.cli.connection import ObjectApi, RowsApi
from app.cli.limits import seconds_of
from app.cli.options import AuditNote, ReasonOption, argument, group, option
from app.core.log_levels import LineLevel

app = group("Show and change the log levels of all processes.")


ModuleArgument = Annotated[str, argument("MODULE", "Module, with all modules inside it: rebalance.nodes.")]


@app.command()
def levels(api: RowsApi) -> None:
    """List the modules whose level is changed, and the defaults.

    \b
    Examples:
      zonectl log levels
      zonectl log levels --format json
    """
    with api.client() as client:
        body = client.ask("GET", "log-levels")
    changes = {change["module"]: change for change in body["changes"]}
    rows = [{"module": name, "level": level, "until": None} for name, level in body["defaults"].items()]
    rows = [row for row in rows if row["module"] not in changes]
    rows += [{"module": "others", "level": body["others"], "until": None}]
    api.show(
        [*changes.values(), *rows],
        {
            "module": "module",
            "level": "level",
            "until": lambda row: row["until"] or "",
            "by": lambda row: row.get("by") or "",
            "reason": lambda row: row.get("reason") or "",
        },
    )


@app.command()
def level(
    api: ObjectApi,
    module: ModuleArgument,
    name: Annotated[LineLevel, argument("LEVEL", "Lowest level to write.")],
    note: AuditNote,
    for_time: Annotated[
        str, option("--for", "Time after which the default holds again, for example 90s or 2d.", "TIME")
    ] = "1h",
) -> None:
    """Change the log level of a module in every process, for a time.

    Servers, controllers, nodes and store servers follow within a second, without a
    restart. Libraries (uvicorn, alembic) do not take debug, at which they write
    credentials.

    \b
    Examples:
      zonectl log level rebalance.nodes debug
      zonectl log level app.edge debug --for 10m --reason "slow requests"
    """
    body = {"level": name.value, "for_s": seconds_of(for_time), **asdict(note)}
    with api.client() as client:
        change = client.ask("PUT", "log-levels", module, body=body)
    api.show_one(change, f"{change['module']}: {change['level']} until {change['until']}")


@app.command()
def reset(api: ObjectApi, module: ModuleArgument, reason: ReasonOption = "") -> None:
    """Set the log level of a module back to its default.

    \b
    Examples:
      zonectl log reset rebalance.nodes
    """
    with api.client(reason) as client:
        done = client.ask("DELETE", "log-levels", module)
    api.show_one(done, f"{done['module']}: default level" + ("" if done["changed"] else ", as before"))
