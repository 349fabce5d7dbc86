"""Control of store servers by the leading controller: it keeps the ring, and switches their zones'
``stable``.

``StoreZones`` says which zones the engine ``store`` keeps, and what is assigned in them. Decisions are pure:
``rebalance.store.core.ring_keeper``, ``ring_zones`` and ``stable_switch``. Every write compares what was
read, so of two controllers that believe to lead one is refused. Clocks begin anew with each lead: nobody is
failed too early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from catalog.core.zone import DEFAULT_LOSS_POLICY, STORE_ENGINE, Zone, ZoneId, ZoneIntent, zone_engine
from rebalance.controllers.clock import Clock, sleep_unless
from rebalance.controllers.partitions import PARTITIONS_PER_REQUEST
from rebalance.controllers.ring_events import DEFAULT_RULES, RingEvents, RingRules, compacted_targets
from rebalance.controllers.ring_mirror import RingReader
from rebalance.controllers.topology import live_nodes
from rebalance.core.admission.limit_options import JOINER_S
from rebalance.core.assignments.guarded_write import Observed, Outcome
from rebalance.core.keyspace.keys import ASSIGNING, Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read
from rebalance.core.keyspace.txn import Compare, KeyValue, Txn
from rebalance.core.moves.move_status import StoreOwners
from rebalance.exchange.core.exchange_messages import Lists
from rebalance.hosting.background import Background
from rebalance.metastore.guarded_update import commit_each
from rebalance.metastore.mirror import KeyspaceMirror, Listener
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import HistoryGoneError, Metastore, MetastoreError, MetastoreHistory
from rebalance.store.core.ring_keeper import (
    AppendZones,
    AssignedZone,
    JoinServer,
    RingAction,
    RingKeeper,
    next_zone_event,
)
from rebalance.store.core.ring_records import assigned_lists
from rebalance.store.core.stable_switch import decide_on_move, joiners_away


@dataclass(frozen=True, slots=True)
class ClusterMirrors:
    """Mirrors of the zones that are wanted and of the nodes that are there; kept by their maker."""

    intents: KeyspaceMirror
    nodes: KeyspaceMirror


@dataclass(eq=False)
class StoreZones:
    """``follow`` keeps a mirror of each such zone's partitions. A zone that the ring has is one, whatever its
    nodes say by now."""

    metastore: Metastore
    keyspace: Keyspace
    mirrors: ClusterMirrors
    background: Background

    def __post_init__(self) -> None:
        self._intents = self.mirrors.intents
        self._nodes = self.mirrors.nodes
        self._unreadable = UnreadableLog()
        self._zones: dict[ZoneId, Zone] = {}
        self._mirrors: dict[ZoneId, KeyspaceMirror] = {}
        self._tasks: dict[ZoneId, asyncio.Task[None]] = {}
        self._moved: set[ZoneId] = set()
        self._placed: dict[ZoneId, AssignedZone] = {}
        self.dropped: frozenset[ZoneId] = frozenset()

    def look(self, opened: Collection[ZoneId]) -> None:
        """Read intents and nodes again. ``opened``: zones of the ring."""
        nodes = live_nodes(self._nodes, self.keyspace)
        zones: dict[ZoneId, Zone] = {}
        dropped: set[ZoneId] = set()
        for item in self._intents.below(self.keyspace.intents):
            intent = read(item, ZoneIntent.decode)
            if isinstance(intent, Unreadable):
                # The controllers' rounds say so. What the ring has of the zone stays.
                continue
            zone = intent.zone
            if intent.dropped:
                dropped.add(zone.zone_id)
            elif zone.zone_id in opened or zone_engine(zone, nodes) == STORE_ENGINE:
                zones[zone.zone_id] = zone
        self._moved |= {zone_id for zone_id, zone in zones.items() if zone != self._zones.get(zone_id)}
        self._zones, self.dropped = zones, frozenset(dropped)

    @property
    def ids(self) -> Collection[ZoneId]:
        """Return the ids of the zones as of the last look."""
        return self._zones.keys()

    def follow(self, tasks: asyncio.TaskGroup, changed: Callable[[], None]) -> None:
        """Begin mirrors of new zones in ``tasks`` and end those of others. ``changed``: some assignment is."""
        for zone_id in self._tasks.keys() - self._zones.keys():
            self._tasks.pop(zone_id).cancel()
            del self._mirrors[zone_id]
            self._placed.pop(zone_id, None)
        for zone_id in self._zones.keys() - self._tasks.keys():
            mirror = KeyspaceMirror(self.metastore, self.keyspace.zone_partitions(zone_id))
            mirror.listen(self._noting(zone_id, changed))
            self._mirrors[zone_id] = mirror
            keep = self.background.keep(f"leader: store zone {zone_id}", mirror.run)
            self._tasks[zone_id] = tasks.create_task(keep)

    def _noting(self, zone_id: ZoneId, changed: Callable[[], None]) -> Listener:
        def note(_changed: frozenset[str]) -> None:
            self._moved.add(zone_id)
            changed()

        return note

    def forget(self) -> None:
        """The mirrors have ended with their tasks."""
        self._tasks.clear()
        self._mirrors.clear()
        self._placed.clear()

    @property
    def placed(self) -> Mapping[ZoneId, AssignedZone]:
        """Return what is assigned now; without zones that cannot be read."""
        for zone_id in tuple(self._moved):
            self._moved.discard(zone_id)
            mirror, zone = self._mirrors.get(zone_id), self._zones.get(zone_id)
            if mirror is None or zone is None or not mirror.is_loaded:
                continue
            try:
                lists = assigned_lists(self.keyspace, mirror.below(mirror.prefix))
            except RecordNotReadableError as error:
                self._unreadable.waits(zone_id, error)
                self._placed.pop(zone_id, None)
                continue
            self._unreadable.goes_on(zone_id)
            policy = zone.loss_policy or DEFAULT_LOSS_POLICY
            self._placed[zone_id] = AssignedZone(
                zone_id, zone.partitions, lists, mirror.revision, policy, zone.life
            )
        return self._placed

    async def refresh(self, zone_id: ZoneId) -> bool:
        """Read what is assigned as of a revision of now, though nothing may have changed for long. False: it
        cannot be told. Raises MetastoreError."""
        placed = self.placed.get(zone_id)
        if placed is None or not placed.is_complete:
            return False
        snapshot = await self.metastore.range(self.keyspace.zone_partitions(zone_id))
        lists = assigned_lists(self.keyspace, snapshot.items)
        self._placed[zone_id] = replace(placed, lists=lists, revision=snapshot.revision)
        return True

    def revision(self, zone_id: ZoneId) -> int:
        """Return the revision at which the zone's assignments were read."""
        return self._mirrors[zone_id].revision

    def moving(self, zone_id: ZoneId) -> Iterable[tuple[int, Observed]]:
        """Partitions with something pending, and their assignment keys as of one revision."""
        mirror = self._mirrors[zone_id]
        pending = (
            parsed[0].partition
            for item in mirror.below(mirror.prefix)
            if (parsed := self.keyspace.parse_partition(item.key)) is not None and parsed[1] == ASSIGNING[1]
        )
        for number in pending:
            keys = self.keyspace.partition(PartitionId(zone_id, number))
            yield number, Observed.of(keys, mirror.get)

    async def until(self, zone_id: ZoneId, revision: int, timeout_s: float) -> None:
        """Wait until a write of that revision is seen, for at most ``timeout_s``."""
        mirror = self._mirrors.get(zone_id)
        if mirror is not None:
            await mirror.wait_until(lambda: mirror.revision >= revision, timeout_s)


log = structlog.get_logger(__name__)

LOOK_MS = 250
"""Milliseconds between looks at clocks while there are servers."""
MERGE_S = 0.05
"""Changes that come together are looked at together."""
SET_MS = 1_000
"""TARGET_SET: at most one in so long."""
SEEN_S = 5.0
"""Limit of the wait for one's own write in the mirror."""
RETRY_S = 0.5

Fence = Callable[[], Awaitable[Compare]]
"""Returns once controllers may write, with the guard of it."""


@dataclass(eq=False)
class StoreControl:
    """``run`` it in the controller that leads. ``steady`` is a clock that nobody sets; ``joiner_s``: the limit
    of how long a joiner may be gone."""

    metastore: MetastoreHistory
    keyspace: Keyspace
    mirrors: ClusterMirrors
    fence: Fence
    steady: Clock
    background: Background = field(default_factory=lambda: Background(restarts=False))
    rules: RingRules = DEFAULT_RULES
    joiner_s: Callable[[], int] = lambda: JOINER_S

    def __post_init__(self) -> None:
        self._mirror = KeyspaceMirror(self.metastore, self.keyspace.exchange)
        self._ring = RingReader(self._mirror, self.keyspace)
        self._events = RingEvents(self.metastore, self.keyspace, self._ring, self.rules)
        self._zones = StoreZones(self.metastore, self.keyspace, self.mirrors, self.background)
        self._keeper = RingKeeper(self.rules.ttl_ms)
        self._held_out: frozenset[str] = frozenset()
        self._unreadable = UnreadableLog()
        self._wake = asyncio.Event()
        self._set_ms: int | None = None
        self._targets: dict[ZoneId, tuple[int, Lists | None]] = {}
        self._switched: dict[ZoneId, tuple[int, Compare, frozenset[str]]] = {}
        self._awaited: dict[ZoneId, frozenset[str]] = {}
        self._away_ms: dict[str, int] = {}
        """Time since which joiners of any zone are not in the ring."""
        self._opened: frozenset[ZoneId] | None = None
        self.stored: frozenset[ZoneId] = frozenset()
        """Zones that store servers keep, as of the last look."""
        self._told: list[Callable[[frozenset[ZoneId]], None]] = []
        self._catalog = self.mirrors.intents, self.mirrors.nodes
        for mirror in self._catalog:
            mirror.listen(self._on_catalog)
        self._mirror.listen(lambda _changed: self._wake.set())

    def listen(self, told: Callable[[frozenset[ZoneId]], None]) -> None:
        """``told`` is called with the zones by which ``stored`` has changed."""
        self._told.append(told)

    async def run(self) -> None:
        """Run until cancelled."""
        self._keeper = RingKeeper(self.rules.ttl_ms)
        self._set_ms = None
        self._targets.clear()
        self._switched.clear()
        self._awaited.clear()
        self._away_ms.clear()
        self._zones.forget()
        self._opened = None
        for mirror in self._catalog:
            await mirror.loaded()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.background.keep("leader: ring", self._mirror.run))
            await self._mirror.loaded()
            while True:
                self._wake.clear()
                if await self._look(tasks):
                    continue
                timer_ms = self.steady.now_ms() + LOOK_MS if self._ring.is_used else None
                await sleep_unless(self.steady, timer_ms, self._wake)
                await asyncio.sleep(MERGE_S)

    def owners(self, zone_id: ZoneId, partition: int) -> StoreOwners | None:
        """Return the owners of a partition of a zone that the ring has; None: the ring has no such zone."""
        return self._ring.ownership.owners(zone_id, partition)

    def _on_catalog(self, _changed: frozenset[str]) -> None:
        self._opened = None
        self._wake.set()

    async def _look(self, tasks: asyncio.TaskGroup) -> bool:
        """Look once; True if something was written, so that the next thing may be due."""
        try:
            fence = await self.fence()
            opened = frozenset(self._ring.state.cluster.zones)
            if opened != self._opened:
                self._opened = opened
                self._zones.look(opened)
                self._zones.follow(tasks, self._wake.set)
                before, self.stored = self.stored, frozenset(self._zones.ids)
                if before != self.stored:
                    for told in self._told:
                        told(before ^ self.stored)
            written = await self._append(fence) or await self._events.compact(fence)
            if written:
                await self._mirror.wait_until(lambda: self._mirror.revision >= written, SEEN_S)
                return True
            gone = self._gone()
            for zone_id in self._ring.state.cluster.zones:
                await self._switch(zone_id, gone, fence)
        except RecordNotReadableError as error:
            self._unreadable.waits("ring", error)
            await asyncio.sleep(RETRY_S)
        except MetastoreError as error:
            log.info("the ring is not kept", error=str(error))
            await asyncio.sleep(RETRY_S)
        else:
            self._unreadable.goes_on("ring")
        return False

    # The ring

    async def _append(self, fence: Compare) -> int:
        """The next event that is due. Zones first: who joins must be able to read their lists."""
        action: RingAction | AppendZones | None = await self._zone_event()
        if action is None:
            action = self._keeper.look(self.steady.now_ms(), self._ring.view)
            self._note_held_out()
            if isinstance(action, JoinServer) and await self._are_targets_gone():
                action = await self._zone_event()
        written = await self._events.act(action, fence) if action is not None else 0
        if written and isinstance(action, AppendZones):
            self._set_ms = self.steady.now_ms()
        return written

    def _note_held_out(self) -> None:
        names = frozenset(self._keeper.held_out)
        if names != self._held_out:
            self._held_out = names
            if names:
                log.warning("store servers do not join", reasons=self._keeper.held_out)

    async def _zone_event(self) -> AppendZones | None:
        state = self._ring.state
        placed = self._zones.placed
        for zone_id, spec in state.cluster.zones.items():
            known = self._targets.get(zone_id)
            if zone_id in placed and (known is None or known[0] != spec.targets):
                self._targets[zone_id] = spec.targets, await self._lists_at(zone_id, spec.targets)
        now_ms = self.steady.now_ms()
        may_set = self._set_ms is None or now_ms - self._set_ms >= SET_MS
        targets = {zone_id: lists for zone_id, (_, lists) in self._targets.items()}
        return next_zone_event(self._ring.state, placed.values(), self._zones.dropped, targets, may_set=may_set)

    async def _lists_at(self, zone_id: ZoneId, revision: int) -> Lists | None:
        """Return the lists as of a revision; None: they are compacted."""
        prefix = self.keyspace.zone_partitions(zone_id)
        try:
            snapshot = await self.metastore.range_at(prefix, revision)
        except HistoryGoneError:
            return None
        return assigned_lists(self.keyspace, snapshot.items)

    async def _are_targets_gone(self) -> bool:
        """Check that lists that a server reads when it joins are compacted by now: then they are set anew, as
        of a revision of now."""
        gone = False
        for zone_id, targets in await compacted_targets(self.metastore, self.keyspace, self._ring):
            self._targets[zone_id] = targets, None
            gone = await self._zones.refresh(zone_id) or gone
        return gone

    # Moves

    def _gone(self) -> frozenset[str]:
        """Joiners that are not in the ring for longer than they may be."""
        now_ms = self.steady.now_ms()
        cluster = self._ring.state.cluster
        awaited = frozenset[str]().union(*(self._awaited.get(zone_id, ()) for zone_id in cluster.zones))
        awaited -= cluster.servers.keys()
        self._away_ms = {name: since_ms for name, since_ms in self._away_ms.items() if name in awaited}
        limit_ms = 1_000 * self.joiner_s()
        return frozenset(name for name, since_ms in self._away_ms.items() if now_ms - since_ms >= limit_ms)

    async def _switch(self, zone_id: ZoneId, gone: frozenset[str], fence: Compare) -> None:
        """Switch ``stable``, once for each change of the zone's assignments, of the results, or of who is
        ``gone``."""
        if zone_id not in self._zones.placed:
            return
        gone &= self._awaited.get(zone_id, frozenset())
        outcomes = self._ring.outcomes(zone_id)
        seen = self._zones.revision(zone_id), self._ring.guard(self.keyspace.last_result), gone
        if self._switched.get(zone_id) == seen:
            return
        servers, away = self._ring.state.cluster.servers.keys(), frozenset[str]()
        given_up: dict[str, KeyValue] = {}
        if gone:
            prefix = self.keyspace.zone_given_up(zone_id)
            given_up = {item.key: item for item in (await self.metastore.range(prefix)).items}
        moves: dict[Outcome, list[Txn]] = {}
        for number, observed in self._zones.moving(zone_id):
            key = self.keyspace.given_up(PartitionId(zone_id, number))
            try:
                away |= joiners_away(observed, servers)
                decision = decide_on_move(
                    observed, outcomes[number], servers, gone, given_up=given_up.get(key), given_up_key=key
                )
            except IndexError:
                continue
            except RecordNotReadableError as error:
                self._unreadable.waits((zone_id, number), error)
                continue
            if decision.transaction is not None:
                moves.setdefault(decision.outcome, []).append(decision.transaction)
        # What a guard refused has changed since, and comes again with that change.
        self._awaited[zone_id], self._switched[zone_id] = away, seen
        for name in away:
            self._away_ms.setdefault(name, self.steady.now_ms())
        for outcome, writes in moves.items():
            await self._write(zone_id, outcome, writes, fence)

    async def _write(self, zone_id: ZoneId, outcome: Outcome, moves: Sequence[Txn], fence: Compare) -> None:
        """Waits until the mirror has them."""
        guards = fence, self._ring.guard(self.keyspace.last_result)
        done, revision = await commit_each(self.metastore, guards, moves, PARTITIONS_PER_REQUEST)
        if done:
            await self._zones.until(zone_id, revision, SEEN_S)
        log.info("moves", zone=zone_id, outcome=outcome.value, partitions=done, of=len(moves))
