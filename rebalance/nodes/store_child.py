"""A node's store server as a child of its agent: ended with it, started anew when it ends, its end reported.

``StorePartitions`` says which partitions' copies it keeps: the agent leaves them alone, and starts the server
once there may be one.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import structlog

from catalog.core.zone import STORE_ENGINE, Node, ZoneId, zone_engine
from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Delete, Txn, as_read
from rebalance.hosting.background import Work
from rebalance.hosting.child import spawn, stop
from rebalance.nodes.member_starts import StrongZones
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


@dataclass(eq=False)
class StoreChild:
    """``run`` it in the main thread's event loop, once the node's data directory is locked. ``inherited``: what
    the server gets of our environment; ``note_damage`` hears that the file cannot be read."""

    name: str
    metastore: Metastore
    keyspace: Keyspace
    command: Command
    inherited: Sequence[str]
    note_damage: Callable[[str], None] = lambda damage: None

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
            self.note_damage(damage)
        except OSError as error:
            log.error("damage of the store is not noted", damage=damage, error=str(error))

    async def _serve(self, incarnation: str) -> int:
        """Run a server until it has ended and that is reported; its exit code."""
        process = spawn(self.command(incarnation), inherited=self.inherited)
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
        key = self.keyspace.store_server(self.name, incarnation)
        for _ in range(REPORTS_MAX):
            try:
                item = await self.metastore.get(key)
                if (
                    item is None
                    or (await self.metastore.commit(Txn((as_read(key, item),), (Delete(key),)))).succeeded
                ):
                    return
            except MetastoreError as error:
                log.info("the end of the store server is not reported", error=str(error))
            await asyncio.sleep(REPORT_AGAIN_S)


STORE_DIRECTORY = "store"
"""Below the node's data directory: the files of its store server."""


class StorePartitions:
    """Partitions that store servers keep, by the profiles of ``zones`` and what keeps these on ``node``; none
    where no profile names the engine ``store``."""

    def __init__(self, node: Node, zones: StrongZones, keyspace: Keyspace, data_dir: Path) -> None:
        self._node = node
        self._zones = zones
        self._keyspace = keyspace
        self._directory = data_dir / STORE_DIRECTORY
        self._is_used = any(engine == STORE_ENGINE for _, engine in node.engines)

    def once_used(self, server: Work) -> Work:
        """``server`` from when there is a zone for it, or at once where it has run before: a node without
        either does not pay for one."""

        async def run() -> None:
            if not self._directory.is_dir():
                await self._begun()
            await server()

        return run

    async def _begun(self) -> None:
        begun = asyncio.Event()

        def look(changed: Iterable[str]) -> None:
            if any(map(self._is_kept, changed)):
                begun.set()

        intents = self._zones.intents
        ignore = intents.listen(look)
        look([item.key for item in intents.below(self._keyspace.intents)])
        try:
            await begun.wait()
        finally:
            ignore()

    def _is_kept(self, intent_key: str) -> bool:
        zone_id = self._keyspace.parse_intent(intent_key)
        intent = self._zones.intent(zone_id) if zone_id is not None else None
        return intent is not None and not intent.dropped and bool(self.keeps(intent.zone.zone_id))

    def keeps(self, zone_id: ZoneId) -> bool | None:
        """Check that the zone is kept by store servers; None: it is not known yet, or cannot be read."""
        if not self._is_used:
            return False
        intent = self._zones.intent(zone_id)
        return None if intent is None else zone_engine(intent.zone, (self._node,)) == STORE_ENGINE
