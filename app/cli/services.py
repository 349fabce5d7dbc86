"""``zonectl serve``, ``controller``, ``node`` and ``migrate``: the processes of an installation, one each."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.options import (
    DEFAULT_DATA_DIR,
    CatalogOption,
    DataDirOption,
    HostOption,
    MetastoreOption,
    PortOption,
    SparkOption,
    make_settings,
)
from rebalance.hosting.heartbeat import Heart, dump_on_signal


class RebalanceStrategy(StrEnum):
    """``rebalance.core.assignments.Strategy``, which --help does without."""

    QUEUE = "queue"
    UPDATE = "update"
    CANCEL = "cancel"


def serve(
    controllers: Annotated[
        bool,
        typer.Option("--controllers", envvar="ZONEKEEPER_CONTROLLERS", help="Run the controllers here too."),
    ] = False,
    migrate_first: Annotated[
        bool,
        typer.Option("--migrate", envvar="ZONEKEEPER_MIGRATE", help="Bring the catalog's schema up to date."),
    ] = False,
    host: HostOption = None,
    port: PortOption = None,
    catalog_url: CatalogOption = None,
    metastore: MetastoreOption = None,
    spark_master: SparkOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Serve the API. Stateless: run several, with a catalog in PostgreSQL.

    \b
    Examples:
      zonectl serve --port 7400 --metastore etcd1:2379,etcd2:2379,etcd3:2379 \\
                    --catalog-url postgresql+psycopg://zonekeeper@db/zonekeeper
      zonectl serve --controllers        (one process for everything but the nodes)
    """
    settings = make_settings(
        host=host,
        port=port,
        catalog_url=catalog_url,
        metastore=metastore,
        spark_master=spark_master,
        data_dir=data_dir,
    )
    _keep_private(data_dir, catalog_url)
    if migrate_first:
        _migrate(settings.catalog, data_dir)
    from app.bootstrap.server import serve as serve_api

    def started(url: str) -> None:
        print(f"API at {url}", flush=True)

    return _run_until_stopped(serve_api(settings, controllers=controllers, on_started=started))


def controller(
    catalog_url: CatalogOption = None,
    metastore: MetastoreOption = None,
    spark_master: SparkOption = None,
    rebalance_strategy: Annotated[
        RebalanceStrategy | None,
        typer.Option(
            "--rebalance-strategy",
            envvar="ZONEKEEPER_REBALANCE_STRATEGY",
            help="What a new target does while a partition moves.",
            show_default="queue",
        ),
    ] = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Run the controllers: they turn catalog changes into moves of data. Several may run, one leads.

    A new target waits while a partition moves (`queue`), replaces the running one
    until its new voters have caught up (`update`), or makes the leader give the
    running move up as long as no voter was touched (`cancel`). A move keeps the
    strategy that it began with. This is for zones that say nothing; SQL gives a
    zone its own: ALTER ZONE orders SET REBALANCE STRATEGY 'update'.

    Zones of CONSISTENCY MODE 'HIGH_AVAILABILITY' help themselves when a majority
    is lost: the most advanced copy that is left founds the group anew, without
    writes that only the lost members knew, after the time that `zonectl rebalance
    limits --ha-reset` says. Other zones wait for `zonectl recovery reset`.

    \b
    Example:
      zonectl controller --metastore etcd1:2379,etcd2:2379,etcd3:2379 --spark-master spark://spark:7077
    """
    from app.bootstrap.controllers import control

    settings = make_settings(
        catalog_url=catalog_url,
        metastore=metastore,
        spark_master=spark_master,
        rebalance_strategy=rebalance_strategy.value if rebalance_strategy else None,
        data_dir=data_dir,
    )
    _keep_private(data_dir, catalog_url)
    return _run_until_stopped(control(settings))


def node(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", envvar="ZONEKEEPER_NODE_NAME", help="Unique; letters, digits and _ . - , at most 63."
        ),
    ] = None,
    attributes: Annotated[
        str | None,
        typer.Option(
            "--attributes", envvar="ZONEKEEPER_NODE_ATTRIBUTES", metavar="JSON", help="For NODES FILTER."
        ),
    ] = None,
    profiles: Annotated[
        str | None,
        typer.Option(
            "--profiles",
            envvar="ZONEKEEPER_NODE_PROFILES",
            metavar="P[=ENGINE],...",
            help="Storage profiles, and what keeps their groups (etcd).",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", envvar="ZONEKEEPER_NODE_HOST", help="IP address that the members listen on."),
    ] = None,
    ports: Annotated[
        str | None,
        typer.Option(
            "--ports",
            envvar="ZONEKEEPER_NODE_PORTS",
            metavar="FIRST-LAST",
            help="For the members: two ports each.",
        ),
    ] = None,
    member_limit: Annotated[
        int | None,
        typer.Option(
            "--member-limit",
            envvar="ZONEKEEPER_NODE_MEMBER_LIMIT",
            min=1,
            help="Most members and mirrors here.",
        ),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            "--weight",
            envvar="ZONEKEEPER_NODE_WEIGHT",
            metavar="W",
            help="2: twice the share of balanced zones.",
        ),
    ] = None,
    failure_domain: Annotated[
        str | None,
        typer.Option(
            "--failure-domain",
            envvar="ZONEKEEPER_NODE_FAILURE_DOMAIN",
            metavar="NAME",
            help="Balanced zones keep a partition's voters in different ones.",
        ),
    ] = None,
    start_without_metastore: Annotated[
        bool,
        typer.Option(
            "--start-without-metastore",
            envvar="ZONEKEEPER_NODE_START_WITHOUT_METASTORE",
            help="Start members of STRONG_CONSISTENCY zones while the metastore is silent.",
        ),
    ] = False,
    trust_refusals: Annotated[
        bool,
        typer.Option(
            "--trust-refusals/--no-trust-refusals",
            envvar="ZONEKEEPER_NODE_TRUST_REFUSALS",
            help="Count refused connections to the metastore as its outage; not behind proxies.",
        ),
    ] = True,
    strict_steps: Annotated[
        bool | None,
        typer.Option(
            "--strict-steps/--no-strict-steps",
            envvar="ZONEKEEPER_NODE_STRICT_STEPS",
            help="Leave the check of membership steps to etcd (up to 5 s each).",
        ),
    ] = None,
    metastore: MetastoreOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Run one data node: its agent, and the replication-group members that it supervises.

    With a command it runs none, and takes one out of service or back: see
    `drain`, `undrain` and `can-stop` below.

    \b
    Examples:
      zonectl node drain n3 --wait
      zonectl node --name eu-1 --attributes '{"region": "EU"}' --profiles default,ssd \\
                   --metastore etcd1:2379,etcd2:2379,etcd3:2379 --host 10.0.0.21 --ports 20000-20199
    """
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    from app.bootstrap.node import run_node
    from app.configuration.node_settings import member_ports, node_of

    settings = make_settings(
        node_name=name,
        node_attributes=attributes,
        node_profiles=profiles,
        node_host=host,
        node_ports=ports,
        node_member_limit=member_limit,
        node_weight=weight,
        node_failure_domain=failure_domain,
        node_start_without_metastore=start_without_metastore,
        node_trust_refusals=trust_refusals,
        node_strict_steps=strict_steps,
        metastore=metastore,
        data_dir=data_dir,
    )
    try:
        node_of(settings)
        member_ports(settings)
    except ValueError as error:
        raise UsageError(f"zonectl node: {error}") from error
    _keep_private(data_dir)
    return _run_until_stopped(run_node(settings))


def migrate(catalog_url: CatalogOption = None, data_dir: DataDirOption = DEFAULT_DATA_DIR) -> int:
    """Bring the catalog's schema up to date. Safe to repeat; `zonectl up` does it by itself.

    \b
    Example:
      zonectl migrate --catalog-url postgresql+psycopg://zonekeeper@db/zonekeeper
    """
    settings = make_settings(catalog_url=catalog_url, data_dir=data_dir)
    _keep_private(data_dir, catalog_url)
    _migrate(settings.catalog, data_dir)
    return ExitCode.OK


def _migrate(url: str, data_dir: Path) -> None:
    from catalog.store.migrate import migrate as migrate_schema

    with _one_line():
        data_dir.mkdir(parents=True, exist_ok=True)
        before, after = migrate_schema(url)
    change = f"is at {after}" if before == after else f"went from {before or 'nothing'} to {after}"
    print(f"catalog schema {change}", flush=True)


def _keep_private(data_dir: Path, catalog_url: str | None = None) -> None:
    from app.supervision.privacy import keep_private

    if catalog_url and urlsplit(catalog_url).password and any(catalog_url in each for each in sys.argv):
        print(
            "zonectl: warning: everybody on this machine can read the password in --catalog-url: "
            "give the URL in ZONEKEEPER_CATALOG_URL",
            file=sys.stderr,
        )

    for failure in keep_private(data_dir):
        print(f"zonectl: warning: others can read {failure}", file=sys.stderr)


@contextmanager
def _one_line() -> Iterator[None]:
    """What people can act on, an address that is taken or a catalog that cannot be opened, is no traceback."""
    from catalog.core.errors import StatementError
    from rebalance.hosting.etcd_binary import EtcdVersionError

    try:
        yield
    except (OSError, StatementError, EtcdVersionError) as error:
        raise CliError(ExitCode.FAILED, f"zonectl: {error}") from error


def _run_until_stopped(service: Coroutine[object, object, None]) -> int:
    """SIGTERM ends a service in order with exit code 0, Ctrl-C with 130."""
    dump_on_signal()
    ended_by: list[ExitCode] = []

    async def main() -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("asyncio.run gives its coroutine a task")
        loop = asyncio.get_running_loop()

        def end(code: ExitCode) -> None:
            ended_by.append(code)
            task.cancel()

        loop.add_signal_handler(signal.SIGTERM, end, ExitCode.OK)
        loop.add_signal_handler(signal.SIGINT, end, ExitCode.INTERRUPTED)
        Heart().start()
        _collect_garbage_less_often()
        await service

    try:
        with _one_line():
            asyncio.run(main())
    except asyncio.CancelledError:
        if not ended_by:
            raise
    sys.stdout.flush()
    return ended_by[0] if ended_by else ExitCode.OK


def _collect_garbage_less_often() -> None:
    """A service keeps what it imported for good, and a mirror holds a hundred thousand small objects that are
    no garbage: looking through them all the time costs a large zone a tenth of its processor time or more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
