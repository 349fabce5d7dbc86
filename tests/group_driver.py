"""Replication groups that are only modelled, over a real metastore: pending is applied after a while, and
stable is switched as a node beside the group's leader does it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from rebalance.core.assignments import Assignments
from rebalance.core.guarded_write import Observed, decide_on_configuration_applied
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.txn import Get, KeyValue, Txn, TxnResult
from rebalance.ports.metastore import KeyEvent, Metastore, MetastoreError
from rebalance.simulation.invariants import Auditor, Voters
from tests.watched_store import WatchedStore

TICK_S = 0.05
AT_ONCE = 40
"""Three keys a partition, 128 operations a request."""


class GroupDriver:
    """``shortest_s`` to ``longest_s``: how long a group takes to apply what pending asks for."""

    def __init__(
        self,
        store: WatchedStore,
        metastore: Metastore,
        keyspace: Keyspace,
        auditor: Auditor,
        chooser: random.Random,
        shortest_s: float = 0.2,
        longest_s: float = 4.0,
    ) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._auditor = auditor
        self._chooser = chooser
        self._delay_s = shortest_s, longest_s
        self._applied: dict[PartitionId, Assignments] = {}
        self._pending: dict[PartitionId, Assignments] = {}
        self._due: dict[PartitionId, float] = {}
        self._switching: dict[PartitionId, None] = {}
        # The auditor comes first: it sees a switch before the group goes on to what was planned.
        auditor.configurations = self
        store.observe(self.on_revision)

    def applied(self, partition: PartitionId) -> Voters | None:
        found = self._applied.get(partition)
        return (frozenset(found.peers), frozenset()) if found else None

    def strays(self, partition: PartitionId) -> frozenset[str]:
        return frozenset()

    def mirrors(self, partition: PartitionId) -> frozenset[str] | None:
        return None

    def on_revision(self, revision: int, events: tuple[KeyEvent, ...]) -> None:
        # In key order pending comes before stable; a switch is judged by the pending that it ends.
        for event in sorted(events, key=lambda event: not event.key.endswith("/stable")):
            parsed = self._keyspace.parse_partition(event.key)
            if parsed is not None and parsed[1] == "assignments/stable":
                self._on_stable(parsed[0], event.current)
            elif parsed is not None and parsed[1] == "assignments/pending":
                self._on_pending(parsed[0], event.current)

    def _on_stable(self, partition: PartitionId, item: KeyValue | None) -> None:
        if item is None:
            self._auditor.fail("stable is never deleted while its zone is there", str(partition))
            return
        stable = Assignments.decode(item.value)
        if partition not in self._applied:
            self._applied[partition] = stable
        elif self._pending.get(partition) != stable:
            detail = f"{partition}: {stable}, pending was {self._pending.get(partition)}"
            self._auditor.fail("stable only switches to pending's value", detail)

    def _on_pending(self, partition: PartitionId, item: KeyValue | None) -> None:
        self._pending.pop(partition, None)
        self._due.pop(partition, None)
        if item is not None:
            self._pending[partition] = Assignments.decode(item.value)
            now = asyncio.get_running_loop().time()
            self._due[partition] = now + self._chooser.uniform(*self._delay_s)

    async def run(self) -> None:
        """Until it is cancelled. One after the other, so that an answer never speaks of an older change."""
        while True:
            await asyncio.sleep(TICK_S)
            now = asyncio.get_running_loop().time()
            for partition in [each for each, due in self._due.items() if due <= now]:
                del self._due[partition]
                self._applied[partition] = self._pending[partition]
                self._switching[partition] = None
            waiting = tuple(self._switching)
            for start in range(0, len(waiting), AT_ONCE):
                await self._switch(waiting[start : start + AT_ONCE])

    async def _switch(self, partitions: Sequence[PartitionId]) -> None:
        """Those whose request fails are read again."""
        keys = [self._keyspace.partition(each) for each in partitions]
        reads = tuple(Get(name) for each in keys for name in (each.stable, each.pending, each.planned))
        try:
            read = await self._metastore.commit(Txn((), reads))
            decided: list[tuple[PartitionId, Txn]] = []
            for index, partition in enumerate(partitions):
                observed = Observed(keys[index], *(read.only(3 * index + each) for each in range(3)))
                decision = decide_on_configuration_applied(observed, self._applied[partition])
                if decision.transaction is None:
                    del self._switching[partition]
                else:
                    decided.append((partition, decision.transaction))
            if not decided:
                return
            results = (await self._metastore.commit(Txn((), tuple(each for _, each in decided)))).responses
        except MetastoreError:
            return
        for (partition, _), result in zip(decided, results, strict=True):
            if isinstance(result, TxnResult) and result.succeeded:
                del self._switching[partition]
