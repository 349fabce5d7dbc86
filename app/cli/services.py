"""``zonectl serve``, ``controller`` and ``migrate``: the processes of an installation beside its nodes; and the
start and end of each process.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from app.cli.exits import CliError, ExitCode, UsageError
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
from catalog.core.zone import Strategy
from rebalance.hosting.heartbeat import Heart, dump_on_signal

if TYPE_CHECKING:
    from app.configuration.settings import Settings


SWITCH_S = 0.001
"""Seconds after which a thread that computes yields the interpreter to one that waits for it. With Python's own
5 ms, each step of the event loop is held up for that time while a long text is parsed."""


def keep_private(data_dir: Path, catalog_url: str | None = None) -> None:
    from app.supervision.privacy import keep_private

    if catalog_url and urlsplit(catalog_url).password and any(catalog_url in argument for argument in sys.argv):
        print(
            "zonectl: warning: every user of this machine can read the password in --catalog-url; "
            "set ZONEKEEPER_CATALOG_URL instead",
            file=sys.stderr,
        )

    for failure in keep_private(data_dir):
        print(f"zonectl: warning: other users can read {failure}", file=sys.stderr)


@contextmanager
def one_line() -> Iterator[None]:
    """Turn errors that users can mend into one line without a traceback: an address that is taken, a catalog
    that cannot be opened."""
    from catalog.core.errors import SchemaTooNewError, StatementError
    from rebalance.hosting.directory_owner import ForeignDirectoryError
    from rebalance.hosting.etcd_binary import EtcdVersionError
    from rebalance.metastore.level_gate import BelowLevelError

    try:
        yield
    except (BelowLevelError, SchemaTooNewError) as error:
        raise CliError(ExitCode.BELOW_LEVEL, f"zonectl: {error}") from error
    except (OSError, StatementError, EtcdVersionError, ForeignDirectoryError) as error:
        raise CliError(ExitCode.FAILED, f"zonectl: {error}") from error


def run_until_stopped(
    service: Coroutine[object, object, None], new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> int:
    """Run a service until a signal ends it in order: SIGTERM with exit code 0, Ctrl-C with 130. ``new_loop``
    None: asyncio's own."""
    dump_on_signal()
    sys.setswitchinterval(SWITCH_S)
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
        with one_line(), asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())
    except asyncio.CancelledError:
        if not ended_by:
            raise
    sys.stdout.flush()
    return ended_by[0] if ended_by else ExitCode.OK


def _collect_garbage_less_often() -> None:
    """Collect garbage less often. A service keeps what it imported for good, and a mirror holds a hundred
    thousand small objects that are no garbage: to look through them all the time takes a tenth of the processor
    time, or more, of a large zone."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def serve(
    *,
    controllers: Annotated[bool, setting("--controllers", "Run the controllers in this process too.")] = False,
    migrate_first: Annotated[
        bool, setting("--migrate", "Bring the catalog's schema up to date first.")
    ] = False,
    api: ApiOptions,
    auth: Annotated[
        bool | None, setting("--auth/--no-auth", "Require users to log in, over HTTPS.", default="--auth")
    ] = None,
    https_certificate: Annotated[
        Path | None,
        setting(
            "--tls-cert",
            "Certificate of the API, a PEM file. Read again when it changes.",
            "FILE",
            env="ZONEKEEPER_HTTPS_CERTIFICATE",
        ),
    ] = None,
    https_key: Annotated[
        Path | None,
        setting("--tls-key", "Key of the certificate, a PEM file.", "FILE", env="ZONEKEEPER_HTTPS_KEY"),
    ] = None,
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


def migrate(catalog_url: CatalogOption = None, data_dir: DataDirOption = DEFAULT_DATA_DIR) -> None:
    """Bring the catalog's schema up to date.

    Safe to repeat. `zonectl up` does this automatically.

    \b
    Example:
      zonectl migrate --catalog-url postgresql+psycopg://zonekeeper@db/zonekeeper
    """
    settings = make_settings(catalog_url=catalog_url, data_dir=data_dir)
    keep_private(data_dir, catalog_url)
    _migrate(settings.catalog, data_dir)


def _checked(settings: Settings, *, insecure: bool) -> tuple[str, ...]:
    """Check that the API's protections are complete, or that those missing are accepted, and return these.
    Raises UsageError."""
    from app.bootstrap.protection import certificate_of, check_protections, issuer_of

    def check() -> tuple[str, ...]:
        certificate_of(settings)
        issuer_of(settings)
        return check_protections(settings, insecure=insecure)

    return _accept(check)


def accept_links(settings: Settings, *, members: str = "", insecure: bool) -> None:
    """Check that links between machines have TLS, or are accepted without. Raises UsageError."""
    from app.bootstrap.protection import check_links

    _accept(partial(check_links, settings, members=members, insecure=insecure))


def accept_spark(settings: Settings, *, insecure: bool) -> None:
    """Check that a Spark cluster requires a secret, or is accepted without. Raises UsageError."""
    from app.bootstrap.protection import check_spark

    _accept(partial(check_spark, settings, insecure=insecure))


def _accept(check: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    try:
        missing = check()
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    for text in missing:
        print(f"zonectl: warning: {text}", file=sys.stderr)
    return missing


def _provide_token(catalog_url: str, file: Path) -> None:
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
