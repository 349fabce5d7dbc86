"""``zonectl serve``, ``controller`` and ``migrate``: the processes of an installation, beside its nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from app.cli.exits import ExitCode, UsageError
from app.cli.options import (
    DEFAULT_DATA_DIR,
    ApiOptions,
    CatalogOption,
    DataDirOption,
    InsecureLinksOption,
    InsecureOption,
    StoreOptions,
    make_settings,
    setting,
)
from app.cli.service_process import keep_private, one_line, run_until_stopped
from catalog.core.zone import Strategy

if TYPE_CHECKING:
    from app.configuration.settings import Settings

AuthOption = Annotated[
    bool | None, setting("--auth/--no-auth", "Require users to log in, over HTTPS.", default="--auth")
]
CertificateOption = Annotated[
    Path | None,
    setting(
        "--tls-cert",
        "Certificate of the API, a PEM file. Read again when it changes.",
        "FILE",
        env="ZONEKEEPER_HTTPS_CERTIFICATE",
    ),
]
KeyOption = Annotated[
    Path | None, setting("--tls-key", "Key of the certificate, a PEM file.", "FILE", env="ZONEKEEPER_HTTPS_KEY")
]


def serve(
    *,
    controllers: Annotated[bool, setting("--controllers", "Run the controllers in this process too.")] = False,
    migrate_first: Annotated[
        bool, setting("--migrate", "Bring the catalog's schema up to date first.")
    ] = False,
    api: ApiOptions,
    auth: AuthOption = None,
    https_certificate: CertificateOption = None,
    https_key: KeyOption = None,
    insecure: InsecureOption = False,
    stores: StoreOptions,
) -> int:
    """Serve the API.

    The server is stateless: run several, with a catalog in PostgreSQL.

    Users log in with a password or a token, over HTTPS. `zonectl admin recover`
    makes the first administrator. With --no-auth any client has full access; the server listens on the loopback
    address only, unless --insecure is given.

    \b
    Examples:
      zonectl serve --https-port 7443 --tls-cert api.pem --tls-key api.key \\
                    --metastore etcd1:2379,etcd2:2379,etcd3:2379 \\
                    --catalog-url postgresql+psycopg://zonekeeper@db/zonekeeper
      zonectl serve --controllers --no-auth     (one process for everything but the nodes)
    """
    settings = make_settings(api, stores, auth=auth, https_certificate=https_certificate, https_key=https_key)
    unprotected = _checked(settings, insecure=insecure)
    if controllers:
        accept_spark(settings, insecure=insecure)
    keep_private(stores.data_dir, stores.catalog_url)
    if migrate_first:
        _migrate(settings.catalog, stores.data_dir)
    if settings.auth and settings.admin_token_file is not None:
        _provide_token(settings.catalog, settings.admin_token_file)
    from app.bootstrap.server import serve as serve_api

    def started(url: str) -> None:
        print(f"API at {url}", flush=True)

    service = serve_api(settings, controllers=controllers, on_started=started, unprotected=unprotected)
    return run_until_stopped(service)


def controller(
    stores: StoreOptions,
    rebalance_strategy: Annotated[
        Strategy | None,
        setting("--rebalance-strategy", "How a new target affects a move in progress.", default="queue"),
    ] = None,
    insecure: InsecureLinksOption = False,
) -> int:
    """Run the controllers, which turn catalog changes into moves of data.

    Several may run; one leads.

    While a partition moves, a new target waits (`queue`), replaces the current
    one until its new voters have caught up (`update`), or makes the leader cancel
    the move as long as no voter has changed (`cancel`). A move keeps the strategy
    it began with. The option is the default of zones without a strategy of their
    own, which SQL sets: ALTER ZONE orders SET REBALANCE STRATEGY 'update'.

    A zone of CONSISTENCY MODE 'HIGH_AVAILABILITY' recovers from a lost majority automatically, after the time
    set by `zonectl rebalance limits --ha-reset`: its most advanced surviving replica founds the group anew,
    without writes that only lost members had. Other zones wait for `zonectl recovery reset`.

    \b
    Example:
      zonectl controller --metastore etcd1:2379,etcd2:2379,etcd3:2379 --spark-master spark://spark:7077
    """
    from app.bootstrap.controllers import control

    settings = make_settings(
        stores, rebalance_strategy=rebalance_strategy.value if rebalance_strategy else None
    )
    accept_links(settings, insecure=insecure)
    accept_spark(settings, insecure=insecure)
    keep_private(stores.data_dir, stores.catalog_url)
    return run_until_stopped(control(settings))


def migrate(catalog_url: CatalogOption = None, data_dir: DataDirOption = DEFAULT_DATA_DIR) -> int:
    """Bring the catalog's schema up to date.

    Safe to repeat. `zonectl up` does this automatically.

    \b
    Example:
      zonectl migrate --catalog-url postgresql+psycopg://zonekeeper@db/zonekeeper
    """
    settings = make_settings(catalog_url=catalog_url, data_dir=data_dir)
    keep_private(data_dir, catalog_url)
    _migrate(settings.catalog, data_dir)
    return ExitCode.OK


def _checked(settings: Settings, *, insecure: bool) -> tuple[str, ...]:
    """What protects the API is complete, or what is missing is accepted. Raises UsageError."""
    from app.bootstrap.protection import certificate_of, check_protections, issuer_of

    try:
        certificate_of(settings)
        issuer_of(settings)
        unprotected = check_protections(settings, insecure=insecure)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    _warn(unprotected)
    return unprotected


def accept_links(settings: Settings, *, members: str = "", insecure: bool) -> None:
    """Those between machines have TLS, or are accepted as they are. Raises UsageError."""
    from app.bootstrap.protection import check_links

    _accept(partial(check_links, settings, members=members, insecure=insecure))


def accept_spark(settings: Settings, *, insecure: bool) -> None:
    """A Spark cluster asks for a secret, or is accepted without. Raises UsageError."""
    from app.bootstrap.protection import check_spark

    _accept(partial(check_spark, settings, insecure=insecure))


def _accept(check: Callable[[], tuple[str, ...]]) -> None:
    try:
        _warn(check())
    except ValueError as error:
        raise UsageError(str(error)) from error


def _warn(missing: tuple[str, ...]) -> None:
    for text in missing:
        print(f"zonectl: warning: {text}", file=sys.stderr)


def _provide_token(catalog_url: str, file: Path) -> None:
    import asyncio

    from app.bootstrap.catalog_administrators import provide_token

    with one_line():
        reason = asyncio.run(provide_token(catalog_url, file))
    if reason:
        print(f"zonectl: warning: {reason}", file=sys.stderr)


def _migrate(url: str, data_dir: Path) -> None:
    from catalog.store.migrate import migrate as migrate_schema

    with one_line():
        data_dir.mkdir(parents=True, exist_ok=True)
        before, after = migrate_schema(url)
    change = f"is at {after}" if before == after else f"went from {before or 'nothing'} to {after}"
    print(f"catalog schema {change}", flush=True)
