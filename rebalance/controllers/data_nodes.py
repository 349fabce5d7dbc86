"""Keeps a zone's data nodes in the metastore what topology, timers and filter make of them."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from catalog.core.node_filter import NodeFilters
from catalog.core.zone import ZoneId, ZoneIntent
from catalog.filters.json_path import JSON_PATH
from rebalance.controllers.clock import Clock, WallClock
from rebalance.controllers.due_times import DueTimes
from rebalance.controllers.topology import KnownTopology
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import Get, KeyValue, Put, Txn, unchanged
from rebalance.core.topology.data_nodes import DataNodes, compute_data_nodes, next_change_ms
from rebalance.core.topology.node_history import DataNodesHistory
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

AGAIN_MS = 100


class NotYetError(Exception):
    """A step cannot be taken now; the message says what is missing. The zone comes up again."""


class DataNodesKeeper:
    """``topology`` answers with the recorded topology as last read; every write is guarded by its revision, so
    that a controller which missed an event writes nothing. ``due`` learns when each zone changes next."""

    def __init__(
        self,
        metastore: Metastore,
        keyspace: Keyspace,
        topology: Callable[[], KnownTopology],
        clock: Clock | None = None,
        due: DueTimes | None = None,
        filters: NodeFilters = JSON_PATH,
    ) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._topology = topology
        self._clock = clock or WallClock()
        self._due = due or DueTimes(self._clock)
        self._filters = filters

    def forget(self, zone_id: ZoneId) -> None:
        """The zone is dropped."""
        self._due.set(zone_id, None)

    async def settle(self, zone_id: ZoneId) -> None:
        """Apply what is due, without placing. Raises NotYetError and MetastoreError."""
        names = self._keyspace.intent(zone_id), self._keyspace.data_nodes(zone_id)
        read = await self._metastore.commit(Txn((), tuple(Get(name) for name in names)))
        intent = read.only(0)
        if intent is None or readable(intent, ZoneIntent.decode).dropped:
            self.forget(zone_id)
            return
        await self.bring_up_to_date(zone_id, intent, read.only(1))

    async def bring_up_to_date(
        self, zone_id: ZoneId, intent_key: KeyValue, data_nodes_key: KeyValue | None
    ) -> tuple[DataNodes, int]:
        """The zone's data nodes now and their revision, written if they differ from what was read.

        Raises NotYetError when what they follow from changed meanwhile, and RecordNotReadableError. While the
        topology cannot be read they stay what they are.
        """
        known, clock_ms = self._topology(), self._clock.now_ms()
        now_ms = clock_ms if known.until_ms is None else min(clock_ms, known.until_ms)
        intent = readable(intent_key, ZoneIntent.decode)
        previous = readable(data_nodes_key, DataNodes.decode)
        if known.unreadable is not None:
            if previous is None or data_nodes_key is None or not previous.are_chosen_for(intent.zone):
                raise known.unreadable.error
            return previous, data_nodes_key.mod_revision
        current = compute_data_nodes(previous, known.topology, intent, self._filters, now_ms)
        revision = data_nodes_key.mod_revision if data_nodes_key else 0
        if current != previous:
            keys = self._keyspace
            name, history_name = keys.data_nodes(zone_id), keys.data_nodes_history(zone_id)
            guards = [
                unchanged(intent_key.key, intent_key.mod_revision),
                unchanged(name, revision),
                unchanged(keys.topology, known.mod_revision),
            ]
            writes = [Put(name, current.encode())]
            if previous is None or previous.nodes != current.nodes:
                item = await self._metastore.get(history_name)
                past = readable(item, DataNodesHistory.decode) or DataNodesHistory()
                mod_revision = item.mod_revision if item else 0
                guards.append(unchanged(history_name, mod_revision))
                writes.append(Put(history_name, past.extended(current.nodes, now_ms, mod_revision).encode()))
            written = await self._metastore.commit(Txn(tuple(guards), tuple(writes)))
            if not written.succeeded:
                raise NotYetError("intent, data nodes or topology changed while they were read")
            revision = written.revision
            _report(zone_id, previous, current)
        due_ms = next_change_ms(current, known.topology, intent.zone, self._filters)
        # What is due but must wait for the record of an event is looked at again soon.
        if due_ms is not None and due_ms <= clock_ms:
            due_ms = clock_ms + AGAIN_MS
        self._due.set(zone_id, due_ms)
        return current, revision


def _report(zone_id: ZoneId, previous: DataNodes | None, current: DataNodes) -> None:
    before, after = set(previous.nodes if previous else ()), set(current.nodes)
    log.info(
        "data nodes written",
        zone=zone_id,
        added=sorted(after - before),
        removed=sorted(before - after),
        quorum=current.quorum,
    )
