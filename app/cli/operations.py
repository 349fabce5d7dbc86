"""``zonectl operations``: every change that moves data, how far it is, and what can be done about it."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.options import (
    DEFAULT_DATA_DIR,
    ByOption,
    DataDirOption,
    FormatOption,
    OutputFormat,
    ReasonOption,
    UrlOption,
)

app = typer.Typer(no_args_is_help=False)

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The operation, as `zonectl operations` names it: 3-1834.")
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        "-p",
        envvar="ZONEKEEPER_PARTITION",
        metavar="N",
        help="Only this partition; may be repeated.",
        show_default="all",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", envvar="ZONEKEEPER_JSON", help="The same as --format json.")
]


def _form(form: OutputFormat, as_json: bool) -> OutputFormat:
    return OutputFormat.JSON if as_json else form


@app.callback(invoke_without_command=True)
def operations(
    context: typer.Context,
    zone: Annotated[
        str | None, typer.Option("--zone", envvar="ZONEKEEPER_ZONE", metavar="ZONE", help="Only of this zone.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            envvar="ZONEKEEPER_STATE",
            metavar="STATE",
            help="Only in this state, as RUNNING or DONE; several times for several.",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            envvar="ZONEKEEPER_KIND",
            metavar="KIND",
            help="Only of this kind, as ALTER_ZONE or DRAIN; several times for several.",
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option("--count", envvar="ZONEKEEPER_COUNT", min=1, max=1000, help="So many, the newest."),
    ] = 20,
    as_json: JsonOption = False,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """List the changes that move data, the newest first; or look at one, wait, and intervene.

    A CREATE or ALTER, a node that comes or goes, a drain and a reset are
    operations. Each names who asked, how far it is, and what it waits for.

    \b
    Examples:
      zonectl operations
      zonectl operations --zone orders --state RUNNING --state PAUSED
      zonectl operations show 3-1834
      zonectl operations wait 3-1834 --timeout 600
      zonectl operations pause 3-1834 --reason "backup" --for 30m
      zonectl operations --json | jq -r '.[].operation_id'
    """
    if context.invoked_subcommand is not None:
        return 0
    from app.cli.operations_run import list_operations

    return list_operations(zone, state or [], kind or [], count, url, data_dir, _form(form, as_json))


@app.command()
def show(
    name: IdArgument,
    as_json: JsonOption = False,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show one operation: who asked and why, how far it is, what waits for what, and who gives what to whom.

    \b
    Examples:
      zonectl operations show 3-1834
      zonectl operations show 3-1834 --json | jq .plan.units
    """
    from app.cli.operations_run import show_operation

    return show_operation(name, url, data_dir, _form(form, as_json))


@app.command()
def wait(
    name: IdArgument,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            envvar="ZONEKEEPER_TIMEOUT",
            min=0,
            metavar="S",
            help="Give up after S seconds (exit code 4); the operation goes on.",
            show_default="no limit",
        ),
    ] = None,
    as_json: JsonOption = False,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Stay until nothing of an operation is left, and show how far it is meanwhile.

    A server that restarts is waited for. Exit code 0: it is DONE; 1: it has ended
    otherwise (CANCELLED, FAILED, SUPERSEDED, REVERSED); 4: the time is over.

    \b
    Examples:
      zonectl operations wait 3-1834
      zonectl operations wait 3-1834 --timeout 600 --json | jq -r .state
    """
    from app.cli.operations_run import wait_for_operation

    return wait_for_operation(name, timeout, url, data_dir, _form(form, as_json))


@app.command()
def pause(
    name: IdArgument,
    reason: ReasonOption = "",
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--for",
            envvar="ZONEKEEPER_FOR",
            metavar="TIME",
            help="The pause ends by itself after so long, as 90s, 10m, 1h30m or 2d.",
            show_default="until `resume`",
        ),
    ] = None,
    by: ByOption = None,
    as_json: JsonOption = False,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Begin nothing more of an operation until `resume`, or for a time. What moves goes on to its end.

    It is a pause of the operation's zone: a later operation of that zone waits too.

    \b
    Examples:
      zonectl operations pause 3-1834 --reason "backup" --for 30m
      zonectl operations resume 3-1834
    """
    from app.cli.operations_run import act, pause_body

    return act("pause", name, pause_body(by, reason, time_limit), url, data_dir, _form(form, as_json))


@app.command()
def resume(
    name: IdArgument,
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """End the pause of an operation's zone. That of the cluster is ended by `zonectl rebalance resume`.

    Partitions that wait with the cause COPY_FAILED are tried again at once.

    \b
    Example:
      zonectl operations resume 3-1834
    """
    from app.cli.operations_run import act, action_body

    return act("resume", name, action_body(by, reason), url, data_dir, _form(form, as_json))


@app.command()
def cancel(
    name: IdArgument,
    partition: PartitionOption = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Give up an operation: partitions stay where they are, or go back.

    A partition that has begun goes back as long as no voter of before was removed;
    else it goes on to its end. The answer names the partitions of each kind. The
    zone keeps its parameters, so its next change, or a node that comes or goes,
    moves the rest; `reverse` takes the change itself back. With --partition only
    these are given up, and the operation goes on with the others.

    \b
    Examples:
      zonectl operations cancel 3-1834 --reason "wrong zone"
      zonectl operations cancel 3-1834 --partition 7 --partition 8
      zonectl operations wait 3-1834
    """
    from app.cli.operations_run import act, action_body

    if partition:
        body = {**action_body(by, reason), "partitions": partition}
        return act("partitions/cancel", name, body, url, data_dir, _form(form, as_json))
    return act("cancel", name, action_body(by, reason), url, data_dir, _form(form, as_json))


@app.command()
def finalise(
    name: IdArgument,
    reason: ReasonOption = "",
    by: ByOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", envvar="ZONEKEEPER_DRY_RUN", help="Only say how many would be deleted."),
    ] = False,
    as_json: JsonOption = False,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Delete the copies that nodes have kept of members which left by an operation.

    They are kept where `zonectl rebalance limits --keep-copies` says so.
    Those of earlier operations of the zone go, too. It is refused while the
    operation is not over: copies go last. Nodes that are down delete theirs
    when they are back.

    \b
    Examples:
      zonectl operations wait 3-1834 && zonectl operations finalise 3-1834
      zonectl operations finalise 3-1834 --dry-run
      zonectl operations finalise 3-1834 --json | jq .copies
    """
    from app.cli.operations_run import action_body
    from app.cli.operations_run import finalise as finalise_operation

    body = action_body(by, reason)
    return finalise_operation(name, body, url, data_dir, _form(form, as_json), dry_run=dry_run)


@app.command()
def reverse(
    name: IdArgument,
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Go back to the assignment before an operation, by an operation of its own.

    The zone gets its parameters of before, as a new catalog version, and every
    replica goes back to where it was. Only the newest operation of a zone can be
    reversed, running or over; not when nodes of before are gone, or copies were
    given up by a reset.

    \b
    Examples:
      zonectl operations reverse 3-1834 --reason "too slow"
      zonectl operations wait "$(zonectl operations reverse 3-1834 --json | jq -r .operation_id)"
    """
    from app.cli.operations_run import act, action_body

    return act("reverse", name, action_body(by, reason), url, data_dir, _form(form, as_json))
