"""Real controllers over a real metastore, groups that are modelled, and an auditor that sees every revision."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from app.supervision.child_plan import zonectl
from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from rebalance.core.keys import Keyspace
from rebalance.core.records import NodeRecord
from rebalance.core.txn import Put, Txn
from rebalance.hosting.child import spawn, stop
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.ports.metastore import MetastoreUnavailableError
from rebalance.simulation.convergence import unfinished
from rebalance.simulation.invariants import Auditor, ZoneFacts
from rebalance.simulation.trace import Trace
from tests.e2e.installation import without_spark
from tests.group_driver import GroupDriver
from tests.watched_store import WatchedStore

POLL_S = 0.02
QUIET_S = 3.0
ZONE_ID = ZoneId(1)


class Controllers:
    """Processes of ``zonectl controller``; placement is local, so that a start costs no JVM."""

    def __init__(self, endpoints: Sequence[str], keyspace: Keyspace, directory: Path, lease_s: int) -> None:
        self._log = directory / "controllers.log"
        self._environment = {
            **os.environ,
            "ZONEKEEPER_METASTORE": ",".join(endpoints),
            "ZONEKEEPER_METASTORE_PREFIX": keyspace.prefix,
            "ZONEKEEPER_DATA_DIR": str(directory),
            "ZONEKEEPER_CONTROLLER_LEASE_S": str(lease_s),
            "ZONEKEEPER_NODE_LEASE_S": str(lease_s),
            **without_spark(directory),
        }
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        process = spawn(zonectl("controller"), log=self._log, env=self._environment)
        self.processes[process.pid] = process

    def kill(self, pid: int) -> None:
        process = self.processes.pop(pid)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self.processes.values():
            stop(process, 30)

    def log_tail(self) -> str:
        return self._log.read_text()[-3000:] if self._log.exists() else "no controller has begun"


class FaultRig:
    """One zone on nodes that are only keys. Every wait ends with the first broken invariant."""

    def __init__(
        self, endpoints: Sequence[str], keyspace: Keyspace, directory: Path, seed: int, lease_s: int
    ) -> None:
        self.keyspace = keyspace
        self.metastore = EtcdMetastore(endpoints, timeout_s=3.0)
        self.watched = WatchedStore(self.metastore, keyspace.prefix)
        self.trace = Trace()
        self.auditor = Auditor(self.watched, keyspace, self.trace)
        self.chooser = random.Random(seed)
        self.groups = GroupDriver(self.watched, self.metastore, keyspace, self.auditor, self.chooser)
        self.controllers = Controllers(endpoints, keyspace, directory, lease_s)
        self.nodes: list[Node] = []
        self.intent: ZoneIntent | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._strike: tuple[int, Callable[[], None]] | None = None
        self.watched.observe(self._on_revision)

    async def open(self, nodes: int, controllers: int) -> None:
        self._tasks = [asyncio.create_task(each) for each in (self.watched.run(), self.groups.run())]
        for number in range(nodes):
            record = NodeRecord(Node(f"n{number}", member_limit=1_000_000), f"start-{number}")
            await self.put(self.keyspace.node(record.node.name), record.encode())
            self.nodes.append(record.node)
        for _ in range(controllers):
            self.controllers.start()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self.controllers.stop)
        await self.metastore.close()

    async def put(self, key: str, value: bytes) -> None:
        """As often as it takes: only the test writes what it puts, so a repeat does no harm."""
        async with asyncio.timeout(60):
            while True:
                try:
                    assert (await self.metastore.commit(Txn((), (Put(key, value),)))).succeeded
                    return
                except MetastoreUnavailableError:
                    await asyncio.sleep(0.1)

    async def publish(self, zone: Zone) -> None:
        """As the outbox relay does; a repeated version is refused by nobody else here."""
        version = self.intent.version + 1 if self.intent else 1
        self.intent = ZoneIntent(version, zone)
        await self.put(self.keyspace.intent(zone.zone_id), self.intent.encode())

    async def alter(self, **changed: object) -> None:
        assert self.intent is not None
        await self.publish(replace(self.intent.zone, **changed))

    @property
    def facts(self) -> ZoneFacts | None:
        return self.auditor.zones.get(ZONE_ID)

    def triggered(self) -> int:
        """Partitions that the newest event has reached; -1: the newest version has no target yet."""
        facts = self.facts
        if facts is None or self.intent is None or facts.pointer.catalog_version < self.intent.version:
            return -1
        return int((facts.triggers == facts.pointer.event_revision).sum())

    def strike_at(self, partitions: int, strike: Callable[[], None]) -> None:
        """``strike`` once, as soon as the newest event has reached so many partitions."""
        self._strike = partitions, strike

    def disarm(self) -> None:
        self._strike = None

    @property
    def is_struck(self) -> bool:
        return self._strike is None

    def _on_revision(self, *_: object) -> None:
        """In the watch itself: a moment later the writes of a thousand partitions are over."""
        if self._strike is not None and self.triggered() >= self._strike[0]:
            strike, self._strike = self._strike[1], None
            strike()

    def leader(self) -> int | None:
        """The leading process, if it is one of ours that lives."""
        found = self.watched.peek(self.keyspace.controller_leader)
        pid = int(found.value.decode().rpartition("/")[2]) if found else 0
        return pid if pid in self.controllers.processes else None

    def missing(self) -> list[str]:
        """What is left to do, at most a few lines of it."""
        assert self.intent is not None
        found = unfinished(self.watched, self.keyspace, self.auditor, self.groups, [self.intent], self.nodes)
        return [line for line, _ in zip(found, range(3), strict=False)]

    def check(self) -> None:
        """Raises what the auditor, the watch or the driver ran into."""
        if self.auditor.broken.done():
            raise self.auditor.broken.result()
        for task in self._tasks:
            if task.done():
                task.result()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.check()

    async def until(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            self.check()
            assert loop.time() < deadline, (
                f"not within {timeout_s} s: {what}; {self.missing()}\n{self.controllers.log_tail()}"
            )
            await asyncio.sleep(POLL_S)
        self.check()

    async def finish(self, timeout_s: float) -> None:
        """The last target is reached, and no work is left: nothing but leases is written any more."""
        await self.until("the last target", lambda: not self.missing(), timeout_s)
        loop = asyncio.get_running_loop()
        await self.until("quiet", lambda: loop.time() - self.auditor.last_work_s > QUIET_S, timeout_s)
        assert self.missing() == []
        left = self.watched.range_now(self.keyspace.partitions).items
        assert not [item.key for item in left if not item.key.endswith(("/stable", ".trigger.revision"))]


@asynccontextmanager
async def fault_rig(
    endpoints: Sequence[str],
    keyspace: Keyspace,
    directory: Path,
    *,
    nodes: int,
    controllers: int,
    seed: int,
    lease_s: int = 2,
) -> AsyncIterator[FaultRig]:
    rig = FaultRig(endpoints, keyspace, directory, seed, lease_s)
    try:
        await rig.open(nodes, controllers)
        yield rig
    finally:
        await rig.close()
