"""``zonectl plan`` and ``zonectl apply``: zones and tables as files want them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, ReasonOption, TimeoutOption, UrlOption, WaitOption


class PlanFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


SourceArgument = Annotated[
    str, typer.Argument(metavar="DIR|FILE|-", help="DDL files: a folder's *.sql by path, one file, or stdin.")
]
PruneOption = Annotated[
    bool, typer.Option("--prune", envvar="ZONEKEEPER_PRUNE", help="Drop zones and tables that are in no file.")
]
PlanFormatOption = Annotated[
    PlanFormat, typer.Option("--format", envvar="ZONEKEEPER_PLAN_FORMAT", help="How the plan is printed.")
]


def plan(
    source: SourceArgument,
    prune: PruneOption = False,
    check: Annotated[
        bool,
        typer.Option("--check", envvar="ZONEKEEPER_CHECK", help="Exit with 5 when there are changes."),
    ] = False,
    form: PlanFormatOption = PlanFormat.TEXT,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show what a set of DDL files would change in the live catalog; change nothing.

    The files are the whole truth of the zones and tables that they name: what an
    option is not given has its default. What is in no file stays, unless --prune
    is given. Differences that no statement can make (PARTITIONS, a table's key)
    are conflicts: `zonectl apply` would refuse.

    Each change tells which node gets replicas from which. The plan's id names
    what it was computed from: `apply --plan-id` carries out exactly this plan.

    \b
    Examples:
      zonectl plan zones/
      zonectl plan zones/orders.sql --format json
      zonectl plan zones/ --prune --check || echo "the catalog has drifted"

    Exit codes: 0 shown, 1 a file or a conflict is wrong, 3 no server, 5 changes (with --check), 64 wrong usage.
    """
    from app.cli.address import find_address
    from app.cli.ddl_files import read_ddl_files
    from app.cli.plan_run import show_plan

    files = read_ddl_files(source)
    return show_plan(
        find_address(url, data_dir), files, prune=prune, check=check, as_json=form is PlanFormat.JSON
    )


def apply(
    source: SourceArgument,
    prune: PruneOption = False,
    plan_id: Annotated[
        str | None,
        typer.Option(
            "--plan-id",
            envvar="ZONEKEEPER_PLAN_ID",
            metavar="ID",
            help="Only if exactly this plan, as `zonectl plan` showed it, would still come out.",
        ),
    ] = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: PlanFormatOption = PlanFormat.TEXT,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Make the live catalog what a set of DDL files wants; run again, it does nothing.

    Plans as `zonectl plan` does, then runs the plan's statements one by one and
    tells each. They run only on the catalog that the plan was made on: when
    somebody else changes it meanwhile, a new plan is made. Conflicts refuse the
    whole plan before anything is changed. With --plan-id no other plan is made:
    when the catalog, the data nodes or the targets have changed, it is told what
    (SQLSTATE 40001), and nothing is changed.

    \b
    Examples:
      zonectl apply zones/ --plan-id "$(zonectl plan zones/ --format json | jq -r .plan_id)"
      zonectl apply zones/ --wait --timeout 120
      zonectl apply zones/ --prune
      cat zones/*.sql | zonectl apply - --format json

    Exit codes: 0 done (and converged), 1 refused, 3 no server, 4 time-out, 64 wrong usage, 130 Ctrl-C.
    """
    from app.cli.address import find_address
    from app.cli.ddl_files import read_ddl_files
    from app.cli.plan_run import apply_files

    files = read_ddl_files(source)
    address = find_address(url, data_dir)
    as_json = form is PlanFormat.JSON
    return apply_files(
        address,
        files,
        prune=prune,
        wait=wait,
        timeout_s=timeout,
        as_json=as_json,
        plan_id=plan_id,
        reason=reason,
    )
