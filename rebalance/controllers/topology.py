"""Topology as the leading controller records it, and the data nodes that each zone gets from it.

Joins and leaves of nodes are recorded once and with their times, before any zone acts on them
(``TopologyKeeper``). A zone's data nodes in the metastore are kept at what topology, timers and filter make
of them (``DataNodesKeeper``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from catalog.core.level import NO_LEVEL
from catalog.core.zone import Node, ZoneId, ZoneIntent
from catalog.filters.json_path import JSON_PATH
from rebalance.controllers.clock import Clock, DueTimes, WallClock, sleep_unless
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read, readable
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import KeyValue, Put, Txn, unchanged
from rebalance.core.moves.drain import Drain
from rebalance.core.topology.data_nodes import DataNodes, DataNodesHistory, compute_data_nodes, next_change_ms
from rebalance.core.topology.node_presence import HoldRule, Topology, living, observe
from rebalance.metastore.guarded_update import read_together
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

QUIET_MS = 200
MERGE_MAX_MS = 1_000
"""Events that follow each other within ``QUIET_MS`` are recorded together, ``MERGE_MAX_MS`` after the first at
the latest. Each keeps its own time."""
RETRY_MS = 500
UNREADABLE_MS = 2_000
"""The record itself is not watched: one that cannot be read is looked at again so soon."""

Settle = Callable[[int], Awaitable[None]]
"""Applies timers that are due at a time (milliseconds)."""


@dataclass(frozen=True, slots=True)
class KnownTopology:
    """Topology as read or written at ``mod_revision``; 0: none was recorded yet. After ``until_ms`` something
    happened that is not recorded yet: no timer that is due later may be applied. None: nothing did. While the
    record is ``unreadable`` this is what was known before it was: no zone's data nodes change on it."""

    topology: Topology
    mod_revision: int = 0
    until_ms: int | None = None
    unreadable: Unreadable | None = None

    @classmethod
    def of(cls, *nodes: Node) -> KnownTopology:
        """Nodes that live, of which nothing is recorded."""
        return cls(Topology.of(nodes))


def live_nodes(mirror: KeyspaceMirror, keyspace: Keyspace) -> tuple[Node, ...]:
    """Nodes whose lease lives, as the mirror last saw it, in name order; without those whose record cannot be
    read."""
    records = (read(item, NodeRecord.decode) for item in mirror.below(keyspace.nodes))
    return tuple(record.node for record in records if not isinstance(record, Unreadable))


def usable_nodes(mirror: KeyspaceMirror, keyspace: Keyspace) -> tuple[Node, ...]:
    """Living nodes that are not leaving, of a mirror of the whole keyspace: what zones may be placed on."""
    live = live_nodes(mirror, keyspace)
    return tuple(node for node in live if mirror.get(keyspace.drain(node.name)) is None)


@dataclass(eq=False)
class TopologyKeeper:
    """``record`` writes what there is; ``run`` does so whenever ``notice`` is called, until it is cancelled.

    ``silent_ms`` answers when the last silence of the metastore ended (``Contact``), ``in_force`` the release
    level in force: nodes of older builds are not there."""

    metastore: Metastore
    keyspace: Keyspace
    clock: Clock
    hold: HoldRule
    silent_ms: Callable[[], int | None] = lambda: None
    in_force: Callable[[], int] = lambda: NO_LEVEL

    def __post_init__(self) -> None:
        self._noticed_ms: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._unreadable = UnreadableLog()
        self._known = KnownTopology(Topology())

    @property
    def known(self) -> KnownTopology:
        return replace(self._known, until_ms=min(self._noticed_ms.values(), default=None))

    def notice(self, changed: frozenset[str] = frozenset()) -> None:
        """Keys of nodes changed now (or none: look again). Standing by or leading: the time is kept."""
        now_ms = self.clock.now_ms()
        for key in changed:
            self._noticed_ms[key.removeprefix(self.keyspace.nodes)] = now_ms
        self._wake.set()

    async def record(self, settle: Settle | None = None) -> bool:
        """Brings the record up to the nodes that live; True when it changed.

        What is due is settled first: a timer that ran out before an event is not stopped by it. The record is
        read before the nodes are, and its write is guarded: nothing older is ever written over it.
        Raises MetastoreError.
        """
        while True:
            noticed_ms = dict(self._noticed_ms)
            item = await self.metastore.get(self.keyspace.topology)
            before = self._unreadable.read("data nodes", item, Topology.decode) or Topology()
            if isinstance(before, Unreadable):
                self._known = replace(self._known, unreadable=before)
                return False
            known = KnownTopology(before, item.mod_revision if item else 0)
            moved = known.mod_revision != self._known.mod_revision
            items = (await self.metastore.range(self.keyspace.nodes)).items
            live = self._live(items, before)
            drains = (await self.metastore.range(self.keyspace.drains)).items
            drained = self._drained(drains, before)
            now_ms = self.clock.now_ms()
            silent_ms = self.silent_ms()
            after = observe(before, live, now_ms, self.hold, noticed_ms, silent_ms, drained)
            if after is not before or known.mod_revision == 0:
                if settle is not None and not moved:
                    await settle(min((now_ms, *noticed_ms.values())))
                guard = unchanged(self.keyspace.topology, known.mod_revision)
                put = Put(self.keyspace.topology, after.encode())
                written = await self.metastore.commit(Txn((guard,), (put,)))
                if not written.succeeded:
                    settle = None
                    continue
                known, moved = KnownTopology(after, written.revision), True
                _report(before, after)
            self._known = known
            self._forget(noticed_ms)
            return moved

    def _live(self, items: Sequence[KeyValue], before: Topology) -> list[NodeRecord]:
        live, unreadable = living(items, self.keyspace.nodes, before, self.in_force())
        noted = {record.key for record in unreadable}
        for item in items:
            if item.key not in noted:
                self._unreadable.goes_on(item.key)
        for record in unreadable:
            self._unreadable.waits(record.key, record)
        return live

    def _drained(self, items: Sequence[KeyValue], before: Topology) -> list[str]:
        """Return the nodes that are leaving: a mark that cannot be read changes nothing."""
        drained = []
        for item in items:
            name = item.key.removeprefix(self.keyspace.drains)
            mark = self._unreadable.read(item.key, item, Drain.decode)
            if name in before.drained or not isinstance(mark, Unreadable):
                drained.append(name)
        return drained

    def _look_again_ms(self) -> int | None:
        if self._known.unreadable is not None:
            return self.clock.now_ms() + UNREADABLE_MS
        return self._known.topology.hold_until_ms

    async def run(self, changed: Callable[[], None], settle: Settle) -> None:
        """Calls ``changed`` after each record that differs."""
        until_ms = self._look_again_ms()
        while True:
            await sleep_unless(self.clock, until_ms, self._wake)
            if self._wake.is_set():
                await self._merge()
            self._wake.clear()
            try:
                if await self.record(settle):
                    changed()
                until_ms = self._look_again_ms()
            except MetastoreError as error:
                log.info("topology not recorded", error=str(error))
                until_ms = self.clock.now_ms() + RETRY_MS
            except Exception:
                # Not recorded yet, for the next start of this.
                self._wake.set()
                raise

    async def _merge(self) -> None:
        """Waits for the end of a burst."""
        last_ms = self.clock.now_ms() + MERGE_MAX_MS
        while self._wake.is_set() and (now_ms := self.clock.now_ms()) < last_ms:
            self._wake.clear()
            await sleep_unless(self.clock, min(now_ms + QUIET_MS, last_ms), self._wake)

    def _forget(self, noticed_ms: Mapping[str, int]) -> None:
        for name, at_ms in noticed_ms.items():
            if self._noticed_ms.get(name) == at_ms:
                del self._noticed_ms[name]


def _report(before: Topology, after: Topology) -> None:
    events = [event for event in after.events if event not in before.events]
    shown = [f"{event.node} {event.kind.value}" for event in events]
    log.info("topology recorded", version=after.version, events=shown, drained=list(after.drained))
    if after.hold_until_ms is not None and before.hold_until_ms is None:
        missing = [presence.node.name for presence in after.nodes if presence.missing_ms is not None]
        log.warning("nodes are missing, and not believed to have left yet: waiting for them", nodes=missing)


AGAIN_MS = 100


class NotYetError(Exception):
    """A step cannot be taken now; the message says what is missing. The zone comes up again."""


@dataclass(eq=False)
class DataNodesKeeper:
    """``topology`` answers with the recorded topology as last read; every write is guarded by its revision, so
    that a controller which missed an event writes nothing. ``due`` learns when each zone changes next."""

    metastore: Metastore
    keyspace: Keyspace
    topology: Callable[[], KnownTopology]
    clock: Clock = field(default_factory=WallClock)
    due: DueTimes | None = None

    def __post_init__(self) -> None:
        self._due = self.due or DueTimes(self.clock)

    def forget(self, zone_id: ZoneId) -> None:
        """The zone is dropped."""
        self._due.set(zone_id, None)

    async def settle(self, zone_id: ZoneId) -> None:
        """Apply what is due, without placing. Raises NotYetError and MetastoreError."""
        names = self.keyspace.intent(zone_id), self.keyspace.data_nodes(zone_id)
        (intent, data_nodes), _ = await read_together(self.metastore, *names)
        if intent is None or readable(intent, ZoneIntent.decode).dropped:
            self.forget(zone_id)
            return
        await self.bring_up_to_date(zone_id, intent, data_nodes)

    async def bring_up_to_date(
        self, zone_id: ZoneId, intent_key: KeyValue, data_nodes_key: KeyValue | None
    ) -> tuple[DataNodes, int]:
        """The zone's data nodes now and their revision, written if they differ from what was read.

        Raises NotYetError when what they follow from changed meanwhile, and RecordNotReadableError. While the
        topology cannot be read they stay what they are.
        """
        known, clock_ms = self.topology(), self.clock.now_ms()
        now_ms = clock_ms if known.until_ms is None else min(clock_ms, known.until_ms)
        intent = readable(intent_key, ZoneIntent.decode)
        previous = readable(data_nodes_key, DataNodes.decode)
        if known.unreadable is not None:
            if previous is None or data_nodes_key is None or not previous.are_chosen_for(intent.zone):
                raise known.unreadable.error
            return previous, data_nodes_key.mod_revision
        current = compute_data_nodes(previous, known.topology, intent, JSON_PATH, now_ms)
        revision = data_nodes_key.mod_revision if data_nodes_key else 0
        if current != previous:
            keys = self.keyspace
            name, history_name = keys.data_nodes(zone_id), keys.data_nodes_history(zone_id)
            guards = [
                unchanged(intent_key.key, intent_key.mod_revision),
                unchanged(name, revision),
                unchanged(keys.topology, known.mod_revision),
            ]
            writes = [Put(name, current.encode())]
            if previous is None or previous.nodes != current.nodes:
                item = await self.metastore.get(history_name)
                past = readable(item, DataNodesHistory.decode) or DataNodesHistory()
                mod_revision = item.mod_revision if item else 0
                guards.append(unchanged(history_name, mod_revision))
                writes.append(Put(history_name, past.extended(current.nodes, now_ms, mod_revision).encode()))
            written = await self.metastore.commit(Txn(tuple(guards), tuple(writes)))
            if not written.succeeded:
                raise NotYetError("intent, data nodes or topology changed while they were read")
            revision = written.revision
            _report_change(zone_id, previous, current)
        due_ms = next_change_ms(current, known.topology, intent.zone, JSON_PATH)
        # What is due but must wait for the record of an event is looked at again soon.
        if due_ms is not None and due_ms <= clock_ms:
            due_ms = clock_ms + AGAIN_MS
        self._due.set(zone_id, due_ms)
        return current, revision


def _report_change(zone_id: ZoneId, previous: DataNodes | None, current: DataNodes) -> None:
    before, after = set(previous.nodes if previous else ()), set(current.nodes)
    log.info(
        "data nodes written",
        zone=zone_id,
        added=sorted(after - before),
        removed=sorted(before - after),
        quorum=current.quorum,
    )
