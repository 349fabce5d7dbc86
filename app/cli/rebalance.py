"""``zonectl rebalance``: how many partitions may move at once, and pauses."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.names import fold_name
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


def _rate(name: str, what: str) -> Any:
    flag, variable = f"--{name}-bandwidth", f"ZONEKEEPER_{name.upper()}_BANDWIDTH"
    return typer.Option(flag, envvar=variable, metavar="BYTES|none", help=what, show_default="as it is")


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
    keep_copies: Annotated[
        bool | None,
        typer.Option(
            "--keep-copies/--delete-copies",
            envvar="ZONEKEEPER_KEEP_COPIES",
            help="Copies of members that leave stay on disk until `zonectl operations finalise`.",
            show_default="as it is",
        ),
    ] = None,
    copy_attempts: Annotated[
        str | None,
        _cap("copy_attempts", "Attempts at a copy that may fail before its partition is told as failed (3)."),
    ] = None,
    copy_time: Annotated[
        str | None,
        typer.Option(
            "--copy-time",
            envvar="ZONEKEEPER_COPY_TIME",
            metavar="TIME|none",
            help="A copy that takes longer, as 2h, has failed, and is begun again (10d).",
            show_default="as it is",
        ),
    ] = None,
    joiner_timeout: Annotated[
        str | None,
        typer.Option(
            "--joiner-timeout",
            envvar="ZONEKEEPER_JOINER_TIMEOUT",
            metavar="TIME|none",
            help="A move goes on without a node that is to get a copy and is gone for so long (1m).",
            show_default="as it is",
        ),
    ] = None,
    ha_reset: Annotated[
        str | None,
        typer.Option(
            "--ha-reset",
            envvar="ZONEKEEPER_HA_RESET",
            metavar="TIME|none",
            help="HIGH_AVAILABILITY zones found a partition anew that has lost its majority for so long (10s).",
            show_default="as it is",
        ),
    ] = None,
    cluster_bandwidth: Annotated[
        str | None,
        _rate("cluster", "Bytes a second of the copies that begin, as 50MiB, in the whole cluster."),
    ] = None,
    node_bandwidth: Annotated[str | None, _rate("node", "The same, onto and away from each node.")] = None,
    windows: Annotated[
        list[str] | None,
        typer.Option(
            "--window",
            envvar="ZONEKEEPER_WINDOW",
            metavar="HH:MM-HH:MM|none",
            help="Moves begin in these times only, UTC; may be repeated, and begin with days.",
            show_default="as it is",
        ),
    ] = None,
    rebalancing: Annotated[
        bool | None,
        typer.Option(
            "--rebalancing/--no-rebalancing",
            envvar="ZONEKEEPER_REBALANCING",
            help="Whether anything that moves data may be asked for.",
            show_default="as it is",
        ),
    ] = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show the limits of moves, or change those given; `none` takes one away.

    There are none at first: every move of a change begins at once. A move
    that may not begin waits and says what for (`zonectl sql -e "SHOW
    PARTITIONS"`). Limits change while moves run: what moves goes on, and no
    move begins against them.

    A node is a donor when it loses a replica, or when it sends copies and
    nobody loses one; a receiver gets a copy.

    Windows are times of the day, or of some days, in UTC; one may cross
    midnight. What is given takes the place of all windows before. A move that
    has begun when its window closes goes on to its end.

    A bandwidth bounds what begins: a move begins while the copies that began
    lately are within it, by their sizes on disk. One that is larger than a
    second's worth begins all the same, and what comes after it waits longer.

    A partition whose copy has failed as often as --copy-attempts says waits
    with the cause COPY_FAILED, and is tried again every ten seconds; `zonectl
    operations resume` tries it again at once.

    A move goes on without a node that is to get a copy and is gone for longer
    than --joiner-timeout, or than it had copied: the operation ends with the
    cause JOINER_GONE, and is asked for again when the node is back.

    A partition of a HIGH_AVAILABILITY zone is founded anew when the leading
    controller has seen no majority of it for --ha-reset without a break. That
    is as long as the nodes' leases and 4s at least: a node that is cut off
    stops serving within that time. Nodes that do not keep to a shorter time
    yet are named; partitions that lose them wait for the time that they do
    keep to.

    With --keep-copies a node that loses a replica stops its member and keeps
    the data; it takes its room, and counts against the node's member limit,
    until somebody finalises the operation, or the partition comes back and is
    copied afresh.

    With --no-rebalancing statements that move data, drains and reverses are
    refused (REBALANCING_DISABLED); what was asked for before goes on, and so
    does what follows from nodes that come and go. `pause` holds that back,
    too.

    \b
    Examples:
      zonectl rebalance limits
      zonectl rebalance limits --cluster-moves 8 --receiver-moves 2 --reason "nightly load"
      zonectl rebalance limits --cluster-moves none
      zonectl rebalance limits --one-operation --operation-time 10d
      zonectl rebalance limits --window 22:00-04:00 --window "Sat,Sun 00:00-24:00"
      zonectl rebalance limits --window none
      zonectl rebalance limits --no-rebalancing
      zonectl rebalance limits --cluster-bandwidth 100MiB --node-bandwidth 20MiB
      zonectl rebalance limits --copy-attempts 5 --copy-time 2h --keep-copies
      zonectl rebalance limits --joiner-timeout 5m
      zonectl rebalance limits --ha-reset 20
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
        "copy_attempts": copy_attempts,
    }
    times = {
        "operation_s": operation_time,
        "copy_s": copy_time,
        "joiner_s": joiner_timeout,
        "ha_reset_s": ha_reset,
    }
    rates = {"cluster_bytes_s": cluster_bandwidth, "node_bytes_s": node_bandwidth}
    switches = {"one_operation": one_operation, "rebalancing": rebalancing, "keep_copies": keep_copies}
    change = limits_request(given, times, rates, switches, windows)
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

    From this command's answer on no move begins; statements are accepted, and
    what they ask for waits. A pause that is given again begins anew.

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
    change: dict[str, object] = {"pause": asked} if zone is None else {"zone_pauses": {fold_name(zone): asked}}
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
    change: dict[str, object] = {"pause": None} if zone is None else {"zone_pauses": {fold_name(zone): None}}
    change |= told(by, reason)
    with connected(url, data_dir, form) as client:
        found = change_limits(client, change)
    print_limits(found, form)
    return 0
