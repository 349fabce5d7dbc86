"""A node's store server as a child of its agent: ended with it, started anew when it ends, its end reported."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from uuid import uuid4

import structlog

from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Delete, Txn, as_read
from rebalance.hosting.child import spawn, stop
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

LOOK_S = 0.1
STEADY_S = 30.0
"""A server that ran for so long is started anew at once."""
AGAIN = Backoff(0.2, 10.0)
STOP_S = 6.5
"""Time, in seconds, for it to leave the ring in order, which it gives up before that."""
UNREADABLE_ENDS = (-signal.SIGBUS, -signal.SIGSEGV, -signal.SIGABRT)
"""Exit codes of a server that reads pages of its file which are not there, or contradict each other."""
UNREADABLE_ENDS_MAX = 3
"""Number of such ends in a row, each soon after its start, after which its file counts as damaged."""
REPORTS_MAX = 5
REPORT_AGAIN_S = 0.5

Command = Callable[[str], Sequence[str]]
"""The command line of a server with this incarnation."""


class StoreChild:
    """``run`` it in the main thread's event loop, once the node's data directory is locked. ``inherited``: what
    the server gets of our environment; ``note_damage`` hears that the file cannot be read."""

    def __init__(
        self,
        name: str,
        metastore: Metastore,
        keyspace: Keyspace,
        command: Command,
        inherited: Sequence[str],
        note_damage: Callable[[str], None] = lambda damage: None,
    ) -> None:
        self._name = name
        self._metastore = metastore
        self._keyspace = keyspace
        self._command = command
        self._inherited = inherited
        self._note_damage = note_damage

    async def run(self) -> None:
        """Run one server after the other until cancelled."""
        loop, again, unreadable_ends = asyncio.get_running_loop(), AGAIN, 0
        while True:
            began = loop.time()
            code = await self._serve(uuid4().hex)
            is_steady = loop.time() - began > STEADY_S
            again = AGAIN if is_steady else again.failed()
            unreadable_ends = unreadable_ends + 1 if code in UNREADABLE_ENDS and not is_steady else 0
            if unreadable_ends == UNREADABLE_ENDS_MAX:
                unreadable_ends = 0
                self._told(f"it ended with {signal.Signals(-code).name} {UNREADABLE_ENDS_MAX} times in a row")
            await asyncio.sleep(again.delay_s(0.0))

    def _told(self, damage: str) -> None:
        try:
            self._note_damage(damage)
        except OSError as error:
            log.error("damage of the store is not noted", damage=damage, error=str(error))

    async def _serve(self, incarnation: str) -> int:
        """Run a server until it has ended and that is reported; its exit code."""
        process = spawn(self._command(incarnation), inherited=self._inherited)
        try:
            while process.poll() is None:
                await asyncio.sleep(LOOK_S)
        finally:
            code = await asyncio.to_thread(stop, process, STOP_S)
            log.warning("store server ended", incarnation=incarnation, code=code)
            await self._report(incarnation)
        return code

    async def _report(self, incarnation: str) -> None:
        """Deletes its heartbeat: nobody has to wait until that is too old. Should the metastore not hear of it,
        it becomes too old."""
        key = self._keyspace.store_server(self._name, incarnation)
        for _ in range(REPORTS_MAX):
            try:
                item = await self._metastore.get(key)
                if (
                    item is None
                    or (await self._metastore.commit(Txn((as_read(key, item),), (Delete(key),)))).succeeded
                ):
                    return
            except MetastoreError as error:
                log.info("the end of the store server is not reported", error=str(error))
            await asyncio.sleep(REPORT_AGAIN_S)
