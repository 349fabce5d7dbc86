"""``zonectl rebalance``: limits of moves, and pauses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from app.cli.connection import ObjectApi
from app.cli.names import fold_name
from app.cli.options import AuditNote, ForOption, group
from rebalance.core.admission.limit_options import LIMIT_OPTIONS, LimitKind, LimitOption

app = group("Limit how many partitions move at once; pause and resume moves.")

METAVARS = {
    LimitKind.CAP: "N|none",
    LimitKind.COUNT: "N|none",
    LimitKind.SECONDS: "TIME|none",
    LimitKind.RATE: "BYTES|none",
    LimitKind.WINDOWS: "HH:MM-HH:MM|none",
}
TYPES: dict[LimitKind, Any] = {LimitKind.SWITCH: bool | None, LimitKind.WINDOWS: list[str] | None}

ZoneOption = Annotated[
    str | None,
    typer.Option(
        "--zone",
        metavar="ZONE",
        help="Zone to pause or resume.",
        show_default="the whole cluster",
    ),
]


def limit_flag(option: LimitOption) -> Any:
    """The annotation of a command's parameter for one row of the table, with bounds and default in its help."""
    accepted = f"{option.accepted}; " if option.accepted else ""
    may_repeat = "; may be repeated" if option.kind is LimitKind.WINDOWS else ""
    flag = typer.Option(
        option.flag,
        metavar=METAVARS.get(option.kind),
        help=f"{option.sentence} ({accepted}default: {option.otherwise}){may_repeat}.",
        show_default=False,
    )
    return Annotated[TYPES.get(option.kind, str | None), flag]


def with_limits(command: Callable[..., int]) -> Callable[..., int]:
    """Make a command whose ``**given`` are flags, one for each row of the table of limits; None: not given."""
    signature = inspect.signature(command, eval_str=True)
    others = [
        parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD
    ]
    flags = [
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=limit_flag(option)
        )
        for option in LIMIT_OPTIONS
    ]
    others = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in others]
    vars(command)["__signature__"] = signature.replace(parameters=[*flags, *others])
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in (*flags, *others)}
    return command


@app.command()
@with_limits
def limits(api: ObjectApi, note: AuditNote, **given: Any) -> int:
    """Show the limits of moves, or change the ones given; `none` removes a limit.

    Limits that are not given stay unchanged.

    No limit is set at first: every move of a change begins at once. A move
    that may not begin waits, and `zonectl sql -e "SHOW PARTITIONS"` shows the
    cause. Limits can be changed while partitions move: running moves go on,
    and new ones begin within the limits.

    A node is the source of a move when it loses a replica, or when it sends
    copies and no node loses one; the target is the node that gets a copy.

    Windows are times of day in UTC, optionally on given days; a window may
    cross midnight. The windows given replace all earlier ones. A move that is
    running when its window closes goes on to its end.

    A bandwidth limits which moves begin: a move begins while the copies that
    began recently are within it, by their sizes on disk. A copy larger than
    one second's worth begins all the same, and the ones after it wait longer.

    A partition whose copy has failed --copy-attempts times waits with the cause
    COPY_FAILED and is tried again every ten seconds; `zonectl operations
    resume` tries it again at once.

    A move goes on without a target that has been gone for longer than
    --joiner-timeout, and for longer than it had been copying. The operation
    ends with the cause JOINER_GONE, and is requested again when the node is
    back.

    A partition of a HIGH_AVAILABILITY zone is founded anew when the leading
    controller has seen no majority of it for --ha-reset without interruption.
    The minimum is the nodes' lease plus 4s: a node that is cut off stops
    serving within that time. Nodes that do not keep to a shorter time yet are
    listed; partitions that lose them wait for the time those nodes keep to.

    With --keep-copies a node that loses a replica stops its member and keeps
    the data. The copy takes disk space and counts against the node's member
    limit until the operation is finalised, or the partition comes back to the
    node and is copied afresh.

    With --no-rebalancing statements that move data, drains and reverses are
    refused (REBALANCING_DISABLED). Earlier requests go on, and so does what
    follows from nodes that join and leave; `pause` holds those back, too.

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
    from app.cli.limits import limits_request, show_limits

    change = limits_request(given)
    return show_limits(api, change | note.given() if change else {})


@app.command()
def pause(api: ObjectApi, note: AuditNote, zone: ZoneOption = None, time_limit: ForOption = None) -> int:
    """Start no more moves until `resume`, or for a time. Running moves finish.

    No move starts once this command has answered. Statements are accepted, and
    the moves they cause wait. Pausing again replaces the pause.

    \b
    Examples:
      zonectl rebalance pause --reason "new disks in n3" --for 30m
      zonectl rebalance pause --zone orders --by "night shift"
      zonectl rebalance resume
    """
    from app.cli.limits import pause_request, paused, show_limits

    return show_limits(api, paused(zone and fold_name(zone), pause_request(note, time_limit)))


@app.command()
def resume(api: ObjectApi, note: AuditNote, zone: ZoneOption = None) -> int:
    """End the pause of the cluster or of one zone. Waiting moves begin, within the limits.

    A zone with a pause of its own stays paused when the cluster's pause ends.

    \b
    Examples:
      zonectl rebalance resume --reason "the disks are in"
      zonectl rebalance resume --zone orders
    """
    from app.cli.limits import paused, show_limits

    return show_limits(api, paused(zone and fold_name(zone), None) | note.given())
