"""``zonectl rebalance``: how many partitions may move at once, and pauses."""

from __future__ import annotations

from typing import Annotated, Any

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

app = typer.Typer(
    no_args_is_help=True, help="How many partitions may move at once; pause moves, and let them go on."
)

ZoneOption = Annotated[
    str | None,
    typer.Option(
        "--zone",
        envvar="ZONEKEEPER_ZONE",
        metavar="ZONE",
        help="Only this zone.",
        show_default="the whole cluster",
    ),
]


def _cap(name: str, what: str) -> Any:
    flag, variable = f"--{name.replace('_', '-')}", f"ZONEKEEPER_{name.upper()}"
    return typer.Option(flag, envvar=variable, metavar="N|none", help=what, show_default="as it is")


@app.command()
def limits(
    cluster_moves: Annotated[
        str | None, _cap("cluster_moves", "Partitions that move at once, in the whole cluster.")
    ] = None,
    zone_moves: Annotated[str | None, _cap("zone_moves", "The same, in each zone.")] = None,
    donor_moves: Annotated[str | None, _cap("donor_moves", "The same, away from each node.")] = None,
    receiver_moves: Annotated[str | None, _cap("receiver_moves", "The same, onto each node.")] = None,
    batch_size: Annotated[
        str | None,
        _cap("batch_size", "A zone's moves begin so many at a time, the next when none is left."),
    ] = None,
    one_operation: Annotated[
        bool | None,
        typer.Option(
            "--one-operation/--any-operations",
            envvar="ZONEKEEPER_ONE_OPERATION",
            help="Moves of one operation at a time; those of the next wait for its end.",
            show_default="as it is",
        ),
    ] = None,
    operation_time: Annotated[
        str | None,
        typer.Option(
            "--operation-time",
            envvar="ZONEKEEPER_OPERATION_TIME",
            metavar="TIME|none",
            help="An operation that takes longer, as 10d, has FAILED: nothing more of it begins.",
            show_default="as it is",
        ),
    ] = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show the limits of moves, or change those that are given; `none` takes one away.

    There are none at first: every move of a change begins at once. A move that may
    not begin waits and says what for (`zonectl sql -e "SHOW PARTITIONS"`). Limits
    change while moves run: what moves goes on, and no move begins against them.

    A node is a donor when it loses a replica, or when it sends copies and nobody
    loses one; a receiver gets a copy.

    \b
    Examples:
      zonectl rebalance limits
      zonectl rebalance limits --cluster-moves 8 --receiver-moves 2 --reason "nightly load"
      zonectl rebalance limits --cluster-moves none
      zonectl rebalance limits --one-operation --operation-time 10d
      zonectl rebalance limits --format json | jq .pause
    """
    from app.cli.connection import connected
    from app.cli.rebalance_run import change_limits, limits_request, one_object, told
    from app.cli.rebalance_view import print_limits

    one_object(form)
    given = {
        "cluster_moves": cluster_moves,
        "zone_moves": zone_moves,
        "donor_moves": donor_moves,
        "receiver_moves": receiver_moves,
        "batch_size": batch_size,
    }
    change = limits_request(given, one_operation, operation_time)
    if change:
        change |= told(by, reason)
    with connected(url, data_dir, form) as client:
        found = change_limits(client, change)
    print_limits(found, form)
    return 0


@app.command()
def pause(
    zone: ZoneOption = None,
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
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Begin no move until `resume`, or for a time. What moves goes on to its end.

    From this command's answer on no move begins; statements are accepted, and what
    they ask for waits. A pause that is given again begins anew.

    \b
    Examples:
      zonectl rebalance pause --reason "new disks in n3" --for 30m
      zonectl rebalance pause --zone orders --by "night shift"
      zonectl rebalance resume
    """
    from app.cli.connection import connected
    from app.cli.rebalance_run import change_limits, one_object, pause_request
    from app.cli.rebalance_view import print_limits

    one_object(form)
    asked = pause_request(by, reason, time_limit)
    change: dict[str, object] = {"pause": asked} if zone is None else {"zone_pauses": {zone: asked}}
    with connected(url, data_dir, form) as client:
        found = change_limits(client, change)
    print_limits(found, form)
    return 0


@app.command()
def resume(
    zone: ZoneOption = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """End a pause: the cluster's, or that of one zone. What waited begins, within the limits.

    A zone that has a pause of its own stays paused when the cluster's ends.

    \b
    Examples:
      zonectl rebalance resume --reason "the disks are in"
      zonectl rebalance resume --zone orders
    """
    from app.cli.connection import connected
    from app.cli.rebalance_run import change_limits, one_object, told
    from app.cli.rebalance_view import print_limits

    one_object(form)
    change: dict[str, object] = {"pause": None} if zone is None else {"zone_pauses": {zone: None}}
    change |= told(by, reason)
    with connected(url, data_dir, form) as client:
        found = change_limits(client, change)
    print_limits(found, form)
    return 0
