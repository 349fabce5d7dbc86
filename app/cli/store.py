"""``zonectl store``: a check of the files of a store server, and the server itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.options import (
    DEFAULT_DATA_DIR,
    DataDirOption,
    MetastoreOption,
    ObjectFormat,
    ObjectFormatOption,
    group,
    make_settings,
    setting,
)
from app.cli.output import counted, print_rows, say, say_json
from app.cli.services import keep_private, run_until_stopped

if TYPE_CHECKING:
    from rebalance.store.core.store_check import CopyCheck

app = group("Check the files of a store server.")


@app.command()
def fsck(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the store: that of data.mdb.")],
    form: ObjectFormatOption = ObjectFormat.TABLE,
) -> int:
    """Check that a store's log, rows and operation ids belong together.

    For every copy: the log has no gap, its epochs ascend, each row is what its newest
    record says, and each operation id leads to its record. Nothing is changed. The
    server may run meanwhile: what is checked is its last transaction.

    \b
    Examples:
      zonectl store fsck zonekeeper-data/n1/store
      zonectl store fsck zonekeeper-data/n1/store --format json | jq '.copies[] | select(.defects != [])'

    JSON: {"copies": [{"zone", "partition", "state", "is_clean", "log_start", "tail",
    "records", "rows", "ids", "defects": [{"code", "place", "detail"}]}], "defects"};
    is_clean false: it is being cleared or filled anew; state, is_clean, log_start and tail
    null: there is no copy, but entries of one.

    Exit codes: 0 no defect, 1 defects, or the store cannot be read, 64 usage error, 130
    interrupted.
    """
    from rebalance.store.core.store_check import check_copy
    from rebalance.store.shell.lmdb_disk import stored
    from rebalance.store.shell.lmdb_transactions import StoreDiskError

    try:
        with stored(directory) as reader:
            heads = reader.heads()
            partitions = sorted(reader.partitions())
            checks = [check_copy(reader, partition, heads.get(partition)) for partition in partitions]
    except (StoreDiskError, ValueError) as error:
        raise CliError(ExitCode.FAILED, f"zonectl store fsck: {error}") from error
    defects = sum(len(check.defects) for check in checks)
    if form is not ObjectFormat.TABLE:
        body = {"copies": [_document(check) for check in checks], "defects": defects}
        say_json(body, indent=2 if form is ObjectFormat.JSON else None)
    else:
        _print_checks(checks, defects)
    return ExitCode.FAILED if defects else ExitCode.OK


@app.command(hidden=True)
def serve(
    name: Annotated[str | None, setting("--name", "Unique name of the node.", "NAME", of="NODE_")] = None,
    host: Annotated[str | None, setting("--host", "IP address to listen on.", "ADDRESS", of="NODE_")] = None,
    port: Annotated[int, setting("--port", "Port to listen on.", of="STORE_", min=0, max=65535)] = 0,
    incarnation: Annotated[str, setting("--incarnation", "Unique name of this run of the server.", "ID")] = "",
    metastore: MetastoreOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Run the store server of one node; agents start it.

    \b
    Examples:
      zonectl store serve --name n1 --metastore 127.0.0.1:2379 --data-dir zonekeeper-data/n1
    """
    import uvloop

    from app.bootstrap.store import run_store
    from app.configuration.node_settings import node_of
    from rebalance.ports.metastore import MetastoreError
    from rebalance.store.shell.lmdb_transactions import StoreDiskError
    from rebalance.store.shell.store_ring import RingError

    settings = make_settings(node_name=name, node_host=host, metastore=metastore, data_dir=data_dir)
    try:
        node_of(settings)
    except ValueError as error:
        raise UsageError(f"zonectl store serve: {error}") from error
    keep_private(data_dir)

    async def serving() -> None:
        try:
            address = settings.node_host
            await run_store(settings, port, lambda chosen: say(f"listening on {address}:{chosen}"), incarnation)
        except (StoreDiskError, RingError, MetastoreError) as error:
            raise CliError(ExitCode.FAILED, f"zonectl store serve: {error}") from error

    return run_until_stopped(serving(), uvloop.new_event_loop)


def _document(check: CopyCheck) -> dict[str, Any]:
    head = check.head
    return {
        "zone": check.partition[0],
        "partition": check.partition[1],
        "state": head.state.value if head is not None else None,
        "is_clean": head.is_clean if head is not None else None,
        "log_start": str(head.log_start) if head is not None else None,
        "tail": str(head.tail) if head is not None else None,
        "records": check.records,
        "rows": check.rows,
        "ids": check.ids,
        "defects": [asdict(defect) | {"code": defect.code.value} for defect in check.defects],
    }


def _print_checks(checks: Sequence[CopyCheck], defects: int) -> None:
    rows = [
        (f"{check.partition[0]}/{check.partition[1]}", defect.code.value, defect.place, defect.detail)
        for check in checks
        for defect in check.defects
    ]
    if rows:
        print_rows(("COPY", "DEFECT", "PLACE", "DETAIL"), rows)
    records, keys, ids = (sum(getattr(check, name) for check in checks) for name in ("records", "rows", "ids"))
    contents = f"{counted(records, 'log record')}, {counted(keys, 'row')}, {counted(ids, 'operation id')}"
    unclean = sum(check.head is not None and not check.head.is_clean for check in checks)
    note = f" ({unclean} being cleared or filled)" if unclean else ""
    copies = counted(len(checks), "copy", "copies") + note
    say(f"{copies}, {contents}: {counted(defects, 'defect')}")
