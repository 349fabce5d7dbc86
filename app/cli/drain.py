"""``zonectl node drain | undrain | can-stop``: taking a node out of service in order."""

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
    TimeoutOption,
    UrlOption,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The node, as `zonectl status` names it.")]


def drain(
    name: NameArgument,
    reason: ReasonOption = "",
    by: ByOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", envvar="ZONEKEEPER_WAIT", help="Stay until the node holds nothing.")
    ] = False,
    timeout: TimeoutOption = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Let a node leave: at once it is a data node of no zone, and its replicas move away.

    It serves what it holds until that has moved; AUTO SCALE DOWN is not waited
    for. A node that restarts stays drained, until `zonectl node undrain`. Refused
    when a zone would have no living data node left.

    \b
    Examples:
      zonectl node drain n3 --reason "new disks" --wait
      zonectl node can-stop n3
      zonectl node undrain n3
    """
    from app.cli.drain_run import drain_node

    return drain_node(name, by, reason, url, data_dir, form, timeout_s=timeout if wait else 0.0, waits=wait)


def undrain(
    name: NameArgument,
    reason: ReasonOption = "",
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Take a drained node back: zones may use it again, by their timers.

    A zone with AUTO SCALE UP OFF does not take it back by itself.

    \b
    Example:
      zonectl node undrain n3
    """
    from app.cli.drain_run import undrain_node

    return undrain_node(name, reason, url, data_dir, form)


def can_stop(
    name: NameArgument,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Say whether a node can be stopped now, and what each partition would lose.

    LAST_COPY and MAJORITY stand against it: data or writes would be away. LEADER
    does not: another member takes over within seconds. Exit code 0: it can be
    stopped, 1: it cannot.

    \b
    Examples:
      zonectl node can-stop n3
      zonectl node can-stop n3 --format json | jq .losses
    """
    from app.cli.drain_run import tell_can_stop

    return tell_can_stop(name, url, data_dir, form)


def add_to(node: typer.Typer) -> None:
    """As commands of `zonectl node`."""
    node.command()(drain)
    node.command()(undrain)
    node.command("can-stop")(can_stop)
