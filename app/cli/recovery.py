"""``zonectl recovery``: partitions that lost the majority of their voters, and the way back."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.options import (
    DEFAULT_DATA_DIR,
    DataDirOption,
    FormatOption,
    OutputFormat,
    TimeoutOption,
    UrlOption,
)

app = typer.Typer(
    no_args_is_help=True, help="How healthy partitions are, and the way back from a lost majority."
)

ZoneArgument = Annotated[
    str, typer.Argument(metavar="ZONE", help='As in SQL: upper-cased, unless in "double quotes".')
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        "-p",
        envvar="ZONEKEEPER_PARTITION",
        metavar="N",
        help="Only this partition; may be repeated.",
        show_default="all that need it",
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", envvar="ZONEKEEPER_DRY_RUN", help="Only say what would be done, and what would be lost."
    ),
]
WaitOption = Annotated[
    bool,
    typer.Option("--wait", envvar="ZONEKEEPER_WAIT", help="Stay until every partition takes writes again."),
]


@app.command()
def states(
    zone: ZoneArgument,
    partition: PartitionOption = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show the state of each partition and of its replicas.

    A partition is AVAILABLE (every replica is healthy), DEGRADED (a majority of
    the voters lives), READ_ONLY (some replica lives) or UNAVAILABLE (none does).
    While a group has no leader, each copy shows how far its log goes: up to
    COMMITTED it is decided, up to LAST it is written. Exit code 1 when a
    partition takes no writes.

    \b
    Examples:
      zonectl recovery states orders
      zonectl recovery states orders -p 3 --format json
    """
    from app.cli.recovery_run import show_states

    return show_states(zone, partition or [], form, url, data_dir)


@app.command()
def reset(
    zone: ZoneArgument,
    partition: PartitionOption = None,
    empty: Annotated[
        bool,
        typer.Option(
            "--empty",
            envvar="ZONEKEEPER_EMPTY",
            help="Begin WITHOUT DATA. Refused while a living node has a copy.",
        ),
    ] = False,
    discard_copies: Annotated[
        str,
        typer.Option(
            "--discard-copies",
            envvar="ZONEKEEPER_DISCARD_COPIES",
            metavar="NODE,...",
            help="With --empty: nodes whose copies may go. Name each that lives.",
        ),
    ] = "",
    source: Annotated[
        str,
        typer.Option(
            "--from",
            envvar="ZONEKEEPER_FROM",
            metavar="NODE",
            help="Node whose copy is used, also where it is not the best.",
            show_default="the best copy",
        ),
    ] = "",
    confirm_dead: Annotated[
        str,
        typer.Option(
            "--confirm-dead",
            envvar="ZONEKEEPER_CONFIRM_DEAD",
            metavar="NODE,...",
            help="Nodes that you know to be dead. Needed in STRONG_CONSISTENCY zones.",
        ),
    ] = "",
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout_s: TimeoutOption = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Found groups that lost the majority of their voters anew, on what is left.

    The best copy of a living node becomes the group, then the full set of replicas
    is made from it. Voters and learners count, and are compared by the revision of
    their data. What that copy knows to be decided survives. What only lost members
    knew is lost, and members that come back later are emptied: look at --dry-run
    first, and start lost nodes instead where that is possible. That is shown again
    before anything is done, and no more than that is done.

    Refused while a majority lives, or answers. Nodes without a lease may only be
    cut off from etcd and still serve: in a STRONG_CONSISTENCY zone name those that
    you know to be dead.

    \b
    Examples:
      zonectl recovery reset orders --dry-run
      zonectl recovery reset orders --confirm-dead n1,n2 --wait
      zonectl recovery reset orders -p 3 -p 7 --confirm-dead n1,n2 --format json
      zonectl recovery reset orders -p 3 --from n4 --confirm-dead n1,n2,n3
      zonectl recovery reset orders -p 3 --empty --confirm-dead n1     (all data of partition 3 is gone)
    """
    from app.cli.recovery_run import ask_reset, reset_request

    request = reset_request(partition or [], empty, discard_copies, source, confirm_dead, dry_run=dry_run)
    return ask_reset(zone, request, form, url, data_dir, wait=wait and not dry_run, timeout_s=timeout_s)


@app.command()
def restart(
    zone: ZoneArgument,
    partition: PartitionOption = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            envvar="ZONEKEEPER_NODE",
            metavar="NAME",
            help="Only the member on this node; may be repeated.",
            show_default="every living node with a replica",
        ),
    ] = None,
    cleanup: Annotated[
        bool,
        typer.Option(
            "--cleanup",
            envvar="ZONEKEEPER_CLEANUP",
            help="With new data, copied from the others. Takes one --node.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout_s: TimeoutOption = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Stop and start members of partitions.

    With --cleanup a member gives its data up and comes back as a new one: for a
    copy that is broken. Refused unless the others are a majority without it.

    \b
    Examples:
      zonectl recovery restart orders -p 3
      zonectl recovery restart orders -p 3 --node n2 --cleanup --wait
    """
    from app.cli.recovery_run import ask_restart

    request = {
        "partitions": partition or [],
        "nodes": node or [],
        "cleanup": cleanup,
        "dry_run": dry_run,
    }
    return ask_restart(zone, request, form, url, data_dir, wait=wait and not dry_run, timeout_s=timeout_s)
