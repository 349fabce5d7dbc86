"""``zonectl serve``, ``controller`` and ``migrate``: the processes of an installation, beside its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from app.cli.exits import ExitCode
from app.cli.options import (
    DEFAULT_DATA_DIR,
    CatalogOption,
    DataDirOption,
    HostOption,
    MetastoreOption,
    PortOption,
    SparkOption,
    make_settings,
    option,
)
from app.cli.service_process import keep_private, one_line, run_until_stopped
from catalog.core.zone import Strategy


def serve(
    controllers: Annotated[bool, option("--controllers", "Run the controllers in this process too.")] = False,
    migrate_first: Annotated[bool, option("--migrate", "Bring the catalog's schema up to date first.")] = False,
    host: HostOption = None,
    port: PortOption = None,
    catalog_url: CatalogOption = None,
    metastore: MetastoreOption = None,
    spark_master: SparkOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Serve the API.

    The server is stateless: run several, with a catalog in PostgreSQL.

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
    keep_private(data_dir, catalog_url)
    if migrate_first:
        _migrate(settings.catalog, data_dir)
    from app.bootstrap.server import serve as serve_api

    def started(url: str) -> None:
        print(f"API at {url}", flush=True)

    return run_until_stopped(serve_api(settings, controllers=controllers, on_started=started))


def controller(
    catalog_url: CatalogOption = None,
    metastore: MetastoreOption = None,
    spark_master: SparkOption = None,
    rebalance_strategy: Annotated[
        Strategy | None,
        option("--rebalance-strategy", "How a new target affects a move in progress.", default="queue"),
    ] = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Run the controllers, which turn catalog changes into moves of data.

    Several may run; one leads.

    While a partition moves, a new target waits (`queue`), replaces the current
    one until its new voters have caught up (`update`), or makes the leader cancel
    the move as long as no voter has changed (`cancel`). A move keeps the strategy
    it began with. The option is the default of zones without a strategy of their
    own, which SQL sets: ALTER ZONE orders SET REBALANCE STRATEGY 'update'.

    A zone of CONSISTENCY MODE 'HIGH_AVAILABILITY' recovers from a lost majority
    by itself, after the time set by `zonectl rebalance limits --ha-reset`: its
    most advanced surviving replica founds the group anew, without writes that
    only lost members had. Other zones wait for `zonectl recovery reset`.

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
    keep_private(data_dir, catalog_url)
    return run_until_stopped(control(settings))


def migrate(catalog_url: CatalogOption = None, data_dir: DataDirOption = DEFAULT_DATA_DIR) -> int:
    """Bring the catalog's schema up to date.

    Safe to repeat. `zonectl up` does it by itself.

    \b
    Example:
      zonectl migrate --catalog-url postgresql+psycopg://zonekeeper@db/zonekeeper
    """
    settings = make_settings(catalog_url=catalog_url, data_dir=data_dir)
    keep_private(data_dir, catalog_url)
    _migrate(settings.catalog, data_dir)
    return ExitCode.OK


def _migrate(url: str, data_dir: Path) -> None:
    from catalog.store.migrate import migrate as migrate_schema

    with one_line():
        data_dir.mkdir(parents=True, exist_ok=True)
        before, after = migrate_schema(url)
    change = f"is at {after}" if before == after else f"went from {before or 'nothing'} to {after}"
    print(f"catalog schema {change}", flush=True)
