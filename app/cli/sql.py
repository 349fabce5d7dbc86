"""``zonectl sql``: run a script of statements, and with ``--wait`` follow the data to where it belongs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import (
    DEFAULT_DATA_DIR,
    DataDirOption,
    FormatOption,
    OutputFormat,
    ReasonOption,
    TimeoutOption,
    UrlOption,
    WaitOption,
)


def sql(
    source: Annotated[
        str | None, typer.Argument(metavar="[-]", help="`-` reads the script from stdin.", show_default=False)
    ] = None,
    execute: Annotated[
        str | None,
        typer.Option("-e", "--execute", envvar="ZONEKEEPER_EXECUTE", metavar="SQL", help="The script."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", envvar="ZONEKEEPER_FILE", metavar="FILE", help="A file with the script."),
    ] = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Run SQL statements: CREATE, ALTER and DROP ZONE; SHOW, SELECT and EXPLAIN.

    A script is parsed whole before anything runs. When a statement is refused,
    the ones before it stay, the ones after it do not run, and the error names
    file, line and column.

    \b
    Examples:
      zonectl sql -e "CREATE ZONE orders (PARTITIONS 8, REPLICAS 3)"
      zonectl sql -f examples/quickstart.sql --wait --timeout 60
      echo "DROP ZONE orders" | zonectl sql -
      zonectl sql -e "ALTER ZONE orders SET (REPLICAS 5)" --reason "more readers"
      zonectl sql -e "EXPLAIN ALTER ZONE orders SET (REPLICAS 5)"
      zonectl sql -e "SELECT * FROM system.assignments" --format csv

    Exit codes: 0 done (and converged), 1 refused, 3 no server, 4 time-out, 64 wrong usage, 130 Ctrl-C.
    """
    from app.cli.address import find_address
    from app.cli.sql_run import run_script
    from app.cli.sql_source import read_script

    script = read_script(execute, file, source)
    address = find_address(url, data_dir)
    return run_script(address, script, form, wait=wait, timeout_s=timeout, reason=reason)
