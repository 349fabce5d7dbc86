"""``zonectl plan`` and ``zonectl apply``: zones and tables as files define them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, ReasonOption, TimeoutOption, UrlOption, WaitOption

if TYPE_CHECKING:
    from app.cli.sql_source import Script


class PlanFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="DIR|FILE|-", help="DDL files: a directory of *.sql files, one file, or `-` for stdin."
    ),
]
PruneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prune",
        metavar="ZONES",
        show_default=False,
        help="Drop these zones with their tables if they are in no file: a name, or a pattern as 'team_a_*';"
        " may be repeated.",
    ),
]
PlanFormatOption = Annotated[PlanFormat, typer.Option("--format", help="Output format of the plan.")]


@dataclass(frozen=True, slots=True)
class Definitions:
    """Files that define zones and tables, and the zones that go where no file names them."""

    source: SourceArgument
    prune: PruneOption = None

    def files(self) -> Sequence[Script]:
        from app.cli.sql_source import read_ddl_files

        return read_ddl_files(self.source)


def plan(
    definitions: Definitions,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with code 5 if there are changes."),
    ] = False,
    form: PlanFormatOption = PlanFormat.TEXT,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show what a set of DDL files would change in the live catalog; change nothing.

    The files define the zones and tables that they name completely: an option
    that is left out has its default. Zones and tables in no file are kept unless
    --prune names their zone. Differences that no statement can make (PARTITIONS, a
    table's key) are conflicts, and `zonectl apply` refuses them.

    Each change lists the replicas that move, with source and target. The plan id
    stands for all that the plan was computed from: `apply --plan-id` carries out
    exactly this plan.

    \b
    Examples:
      zonectl plan zones/
      zonectl plan zones/orders.sql --format json
      zonectl plan zones/ --prune 'team_a_*' --check || echo "the catalog has drifted"

    Exit codes: 0 shown, 1 an invalid file or a conflict, 3 no server, 5 changes (with --check), 64 wrong usage.
    """
    from app.cli.address import find_address
    from app.cli.plan_run import prune_scope, show_plan

    files = definitions.files()
    return show_plan(
        find_address(url, data_dir),
        files,
        prune=prune_scope(definitions.prune or ()),
        check=check,
        as_json=form is PlanFormat.JSON,
    )


def apply(
    definitions: Definitions,
    plan_id: Annotated[
        str | None,
        typer.Option(
            "--plan-id",
            metavar="ID",
            help="Id of the plan to apply; refused if the plan has changed since it was shown.",
        ),
    ] = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: PlanFormatOption = PlanFormat.TEXT,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Change the live catalog to match a set of DDL files; applied again, they change nothing.

    Plans as `zonectl plan` does, then runs the statements of the plan one by one
    and prints each. They run only on the catalog that the plan was made on: if it changes meanwhile, the rest
    of the plan is run if it is still the same, and refused if not (SQLSTATE 40001). A conflict refuses the
    whole plan before anything is changed. With --plan-id no new plan is made: if the catalog,
    the data nodes or the targets have changed, the command says what has changed
    (SQLSTATE 40001) and changes nothing; a plan that was already applied is not an error.

    \b
    Examples:
      zonectl apply zones/ --plan-id "$(zonectl plan zones/ --format json | jq -r .plan_id)"
      zonectl apply zones/ --wait --timeout 120
      zonectl apply zones/ --prune orders --prune 'team_a_*'
      cat zones/*.sql | zonectl apply - --format json

    Exit codes: 0 done (and converged), 1 refused, 3 no server, 4 time-out, 64 wrong usage, 130 Ctrl-C.
    """
    from app.cli.address import find_address
    from app.cli.plan_run import apply_files, prune_scope

    files = definitions.files()
    return apply_files(
        find_address(url, data_dir),
        files,
        prune=prune_scope(definitions.prune or ()),
        wait=wait,
        timeout_s=timeout,
        as_json=form is PlanFormat.JSON,
        plan_id=plan_id,
        reason=reason,
    )
