"""What the processes of an installation have in common: how they begin, and how they end."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from app.cli.exits import CliError, ExitCode
from rebalance.hosting.heartbeat import Heart, dump_on_signal

SWITCH_S = 0.001
"""After so long a thread that computes gives the interpreter to one that waits for it. Python's own 5 ms hold
each step of the event loop up for as long while a long text is read."""


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
    """What people can act on, an address that is taken or a catalog that cannot be opened, is no traceback."""
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
    """SIGTERM ends a service in order with exit code 0, Ctrl-C with 130. ``new_loop`` None: asyncio's own."""
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
    """A service keeps what it imported for good, and a mirror holds a hundred thousand small objects that are
    no garbage: looking through them all the time costs a large zone a tenth of its processor time or more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
