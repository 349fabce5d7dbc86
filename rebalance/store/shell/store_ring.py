"""A store server's reads and writes in the metastore: its heartbeat, the ring, targets, results.

Invariants: events are handed on in order without a gap; a result is committed by the creation of one key, in a
transaction that compares the result before it. Before a server joins, it looks which members it reaches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import aclosing

from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.admission.move_admission import ByteRates, Limits
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import read, readable
from rebalance.core.keyspace.txn import (
    Compare,
    Delete,
    DeleteRange,
    KeyValue,
    Put,
    Txn,
    absent,
    as_read,
    delete_below,
    not_before,
    present,
)
from rebalance.core.partition_maps.topology_version import NO_VERSION, DiscoveryEvent, TopologyVersion, Trigger
from rebalance.exchange.core.exchange_messages import ResultRecord
from rebalance.ports.metastore import HistoryGoneError, MetastoreHistory, MetastoreUnavailableError, WatchReset
from rebalance.store.core.exchange_record import EXCHANGES_KEPT, ExchangeRecord, encode_exchange
from rebalance.store.core.ring_records import (
    IdealLists,
    ResultHead,
    RingRecord,
    RingState,
    ServerBeat,
    StoreStart,
    assigned_lists,
    decode_beat,
    decode_event,
    decode_ring,
    encode_beat,
    encode_chunk,
    encode_event,
    encode_result,
    outcome_chunks,
    result_state,
    results_after,
)

LEAVE_ATTEMPTS_MAX = 20
OLD_EXCHANGES_MAX = 100
"""Records of exchanges that one transaction deletes."""


class RingError(Exception):
    """Base of what ends a server for the ring's sake.

    RingError
    ├── RingGapError     events or results were compacted before this server had read them
    └── EvictedError     the name is being evicted: a new incarnation has to wait
    """


class RingGapError(RingError):
    """A gap in the events: the server starts as a new incarnation."""


class EvictedError(RingError):
    """An eviction that lasts until the ring has removed the previous incarnation."""


class StoreRing:
    """Ring of one incarnation. ``state``: after the last event that ``events`` has given."""

    def __init__(
        self,
        metastore: MetastoreHistory,
        keyspace: Keyspace,
        name: str,
        incarnation: str,
        address: tuple[str, int],
        ttl_ms: int = 0,
    ) -> None:
        """``ttl_ms``: after how long without a heartbeat the controllers are to fail it; 0: as they have it."""
        self.state = RingState()
        self._metastore = metastore
        self._keyspace = keyspace
        self._name = name
        self._incarnation = incarnation
        self._address = address
        self._ttl_ms = ttl_ms
        self._beaten = 0
        """Revision of the last heartbeat that is known to be written."""
        self._told = NO_VERSION

    @property
    def order(self) -> int:
        """The join order of this incarnation, 0 while the ring has no join of it."""
        is_member = self.state.incarnations.get(self._name) == self._incarnation
        return self.state.cluster.servers.get(self._name, 0) if is_member else 0

    # The beginning

    async def start(self, held: Collection[ZoneId] = ()) -> StoreStart:
        """Read everything as of one revision, after the epoch and what the catalog says of zones of which the
        disk has copies (``held``). Raises RingGapError, MetastoreError, RecordNotReadableError."""
        keys = self._keyspace
        intents = {zone: await self._metastore.get(keys.intent(zone)) for zone in sorted(held)}
        epoch = readable(await self._metastore.get(keys.epoch), EpochRecord.decode) or EpochRecord()
        snapshot = await self._metastore.range(keys.exchange)
        values = {item.key: item.value for item in snapshot.items}
        ring = values.get(keys.exchange_ring)
        state = RingState() if ring is None else decode_ring(ring)
        for record in _events(keys, snapshot.items):
            state = _following(state, record)
        self.state = state
        told = values.get(keys.finished(self._name))
        finished = NO_VERSION if told is None else TopologyVersion.parse(told.decode())
        resting = frozenset(
            zone for zone, item in intents.items() if zone not in state.cluster.zones and not _is_dropped(item)
        )
        return StoreStart(state, result_state(keys, values), epoch.epoch, finished, resting)

    async def appear(self, cut_from: Sequence[str] = ()) -> None:
        """Create the key of the heartbeats, which controllers take for the wish to join; they wait while there
        are members that the server is ``cut_from``. Raises EvictedError and MetastoreError."""
        key = self._keyspace.store_server(self._name, self._incarnation)
        guards = (absent(self._keyspace.eviction(self._name)), absent(key))
        try:
            result = await self._metastore.commit(Txn(guards, (self._beat(key, NO_VERSION, cut_from),)))
            self._beaten = result.revision if result.succeeded else 0
        except MetastoreUnavailableError:
            if await self._metastore.get(key) is None:
                raise
            return
        if not result.succeeded and await self._metastore.get(key) is None:
            raise EvictedError(f"{self._name} is being evicted: its next incarnation joins after that")

    # While it runs

    async def heartbeat(self, finished: TopologyVersion, cut_from: Sequence[str] = ()) -> bool:
        """Write a heartbeat; False when it was refused: the name is being evicted, the key is gone, or it is an
        earlier one, as in a metastore that was restored from a backup. Raises MetastoreError when it was not
        heard of. What was ``finished`` stays known when the heartbeat is gone."""
        key = self._keyspace.store_server(self._name, self._incarnation)
        guards = (absent(self._keyspace.eviction(self._name)), not_before(key, self._beaten))
        puts = [self._beat(key, finished, cut_from)]
        if finished > self._told:
            puts.append(Put(self._keyspace.finished(self._name), str(finished).encode()))
        result = await self._metastore.commit(Txn(guards, tuple(puts)))
        if result.succeeded:
            self._beaten, self._told = result.revision, max(finished, self._told)
        return result.succeeded

    async def address_of(self, name: str, incarnation: str) -> tuple[str, int] | None:
        item = await self._metastore.get(self._keyspace.store_server(name, incarnation))
        if item is None:
            return None
        beat = decode_beat(item.value)
        return beat.host, beat.port

    async def events(self) -> AsyncGenerator[tuple[RingRecord, ...], None]:
        """The next ones after ``state``, which has them when they are given. Raises RingGapError."""
        async with aclosing(self._watch()) as batches:
            async for records in batches:
                new = tuple(record for record in records if record.number > self.state.number)
                for record in new:
                    self.state = _following(self.state, record)
                if new:
                    yield new

    async def rates(self) -> AsyncGenerator[ByteRates, None]:
        """The limits of bandwidth, now and whenever they change; a record that cannot be read changes none."""
        key = self._keyspace.limits
        async for change in self._metastore.watch(key):
            item = None
            if isinstance(change, WatchReset):
                item = next((item for item in change.snapshot.items if item.key == key), None)
            else:
                for event in change.events:
                    item = event.current if event.key == key else item
            limits = Limits.of(item)
            if not limits.unreadable:
                yield limits.rates

    async def targets(self, zones: Iterable[tuple[ZoneId, int]]) -> IdealLists:
        """The ideal lists of each zone as of its revision: ``pending`` where there is one, else ``stable``. Of
        a revision that the metastore has compacted: as of now; whoever read others asks the coordinator for
        its lists, as digests differ (PME-036). Raises RecordNotReadableError for what is no assignment."""
        return {zone: await self._targets_of(zone, revision) for zone, revision in zones}

    async def commit_result(self, record: ResultRecord) -> tuple[ResultRecord, ...]:
        """Empty when it is committed; else the results after ``record.previous``. Raises MetastoreError when
        the outcome is not known: the same again is right; RingGapError when those results are folded."""
        keys, exchange = self._keyspace, record.exchange
        last = await self._metastore.get(keys.last_result)
        before = NO_VERSION if last is None else TopologyVersion.parse(last.value.decode())
        if before != record.previous:
            return await self._results_after(record)
        rows = list(outcome_chunks(record.changed))
        head = ResultHead(exchange, record.version, record.previous, rows=rows[0] if len(rows) == 1 else ())
        if len(rows) > 1:
            parts = keys.exchange_result_parts(exchange, self._incarnation)
            head = ResultHead(exchange, record.version, record.previous, self._incarnation, len(rows))
            for number, chunk in enumerate(rows):
                await self._metastore.commit(Txn((), (Put(f"{parts}{number:05d}", encode_chunk(chunk)),)))
        key = keys.exchange_result(exchange)
        puts = (Put(key, encode_result(head)), Put(keys.last_result, str(record.version).encode()))
        result = await self._metastore.commit(Txn((absent(key), as_read(keys.last_result, last)), puts))
        return () if result.succeeded else await self._results_after(record)

    async def ask_affinity_change(self, basis: TopologyVersion) -> None:
        """Ask for a change of affinity, only while nothing came after ``basis`` that this server has heard of;
        the guard sees the rest."""
        cluster = self.state.cluster
        if cluster.version == basis:
            version = cluster.version_after(Trigger.AFFINITY_CHANGE)
            await self._append(DiscoveryEvent(version, Trigger.AFFINITY_CHANGE, basis=basis))

    async def suspect(self, whom: str, order: int, suspected: bool) -> None:
        """Write a suspicion; nothing where ``whom`` is not the member of that order any more. Whoever fails a
        member deletes its heartbeat and all suspicions of it: one that came after that would be about its next
        incarnation."""
        if self.state.cluster.servers.get(whom) != order:
            return
        key = self._keyspace.suspicion(self._name, whom)
        heartbeat = self._keyspace.store_server(whom, self.state.incarnations[whom])
        change = Put(key, b"") if suspected else Delete(key)
        await self._metastore.commit(Txn((present(heartbeat),), (change,)))

    async def publish_exchange(self, record: ExchangeRecord) -> None:
        """Publish an exchange beside the ``EXCHANGES_KEPT`` newest others, which stay."""
        keys = self._keyspace
        key = keys.logged_exchange(record.cause.version)
        known = sorted(item.key for item in (await self._metastore.range(keys.exchange_log)).items)
        old = [name for name in known if name < key][: -EXCHANGES_KEPT + 1]
        deletes = tuple(Delete(name) for name in old[:OLD_EXCHANGES_MAX])
        await self._metastore.commit(Txn((), (Put(key, encode_exchange(record)), *deletes)))

    async def leave(self) -> None:
        """NODE_LEFT for this incarnation, with what it has written of itself deleted."""
        key = self._keyspace.store_server(self._name, self._incarnation)
        for _ in range(LEAVE_ATTEMPTS_MAX):
            cluster = (await self.start()).ring.cluster
            if not self.order:
                break
            version = cluster.version_after(Trigger.NODE_LEFT)
            event = DiscoveryEvent(version, Trigger.NODE_LEFT, self._name, self.order)
            own_suspicions = delete_below(self._keyspace.suspicion(self._name, ""))
            # An eviction that is left behind would keep its next incarnation out.
            eviction = Delete(self._keyspace.eviction(self._name))
            if await self._append(event, Delete(key), eviction, own_suspicions):
                return
        await self._metastore.commit(Txn((), (Delete(key),)))

    async def _append(self, event: DiscoveryEvent, *besides: Delete | DeleteRange) -> bool:
        """Append after the last event of ``state``; False if another event came first."""
        number = self.state.number + 1
        key = self._keyspace.exchange_event(number)
        incarnation = self._incarnation if event.node == self._name else ""
        value = encode_event(RingRecord(number, event, incarnation))
        # One that was written and compacted into the ring's state is gone again: the state's key says so.
        guards = (absent(key), *await self._unchanged_ring(number))
        return (await self._metastore.commit(Txn(guards, (Put(key, value), *besides)))).succeeded

    async def _unchanged_ring(self, number: int) -> tuple[Compare, ...]:
        item = await self._metastore.get(self._keyspace.exchange_ring)
        if item is not None and decode_ring(item.value).number >= number:
            raise RingGapError(f"event {number} of the ring was written and compacted")
        return (as_read(self._keyspace.exchange_ring, item),)

    async def _watch(self) -> AsyncGenerator[tuple[RingRecord, ...], None]:
        async for batch in self._metastore.watch(self._keyspace.exchange_events):
            items = batch.snapshot.items if isinstance(batch, WatchReset) else _put(batch.events)
            yield tuple(_events(self._keyspace, items))

    async def _targets_of(self, zone: ZoneId, revision: int) -> tuple[tuple[str, ...], ...]:
        prefix = self._keyspace.zone_partitions(zone)
        try:
            snapshot = await self._metastore.range_at(prefix, revision)
        except HistoryGoneError:
            snapshot = await self._metastore.range(prefix)
        return assigned_lists(self._keyspace, snapshot.items)

    async def _results_after(self, record: ResultRecord) -> tuple[ResultRecord, ...]:
        snapshot = await self._metastore.range(self._keyspace.exchange_results)
        values = {item.key: item.value for item in snapshot.items}
        records = results_after(self._keyspace, values, record.previous)
        if not records:
            raise RingGapError(f"results after that of {record.previous} are folded, or gone")
        return records

    def _beat(self, key: str, finished: TopologyVersion, cut_from: Sequence[str]) -> Put:
        return Put(key, encode_beat(ServerBeat(*self._address, finished, tuple(cut_from), self._ttl_ms)))


def _is_dropped(intent: KeyValue | None) -> bool:
    """Check that the catalog dropped the zone; one that it does not know, or does not know any more, is not
    dropped."""
    known = read(intent, ZoneIntent.decode)
    return isinstance(known, ZoneIntent) and known.dropped


def _following(state: RingState, record: RingRecord) -> RingState:
    """Raises RingGapError. An event that the state has already changes nothing."""
    if record.number <= state.number:
        return state
    if record.number != state.number + 1:
        raise RingGapError(
            f"event {record.number} of the ring follows event {state.number}: others are compacted"
        )
    return state.after(record)


def _put(events: Iterable[object]) -> list[KeyValue]:
    """Return the items that a batch of a watch has put."""
    return [item for event in events if isinstance(item := getattr(event, "current", None), KeyValue)]


def _events(keys: Keyspace, items: Iterable[KeyValue]) -> list[RingRecord]:
    """Decode events in order."""
    records = [decode_event(item.value) for item in items if item.key.startswith(keys.exchange_events)]
    return sorted(records, key=lambda record: record.number)


REACH_S = 1.0

AddressOf = Callable[[str, str], Awaitable[tuple[str, int] | None]]
"""Address of a server of that name and incarnation; None while that is not known."""


async def unreached(ring: RingState, name: str, address_of: AddressOf) -> tuple[str, ...]:
    """Members other than ``name`` to which no connection is made within a second, by name. One whose address is
    not known is about to be removed, and counts as one of them."""

    async def is_reached(member: str) -> bool:
        address = await address_of(member, ring.incarnations.get(member, ""))
        if address is None:
            return False
        try:
            async with asyncio.timeout(REACH_S):
                _, writer = await asyncio.open_connection(*address)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    members = sorted(ring.cluster.servers.keys() - {name})
    reached = await asyncio.gather(*map(is_reached, members))
    return tuple(member for member, there in zip(members, reached, strict=True) if not there)
