"""The ring and the results of exchanges as they are seen from outside: a mirror, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read, readable
from rebalance.core.keyspace.txn import Compare, KeyValue, absent, as_read
from rebalance.exchange.core.exchange_messages import PartitionOutcome, ResultState
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.store.core.ownership import StoreOwnership
from rebalance.store.core.ring_keeper import RingView, SeenHeartbeat
from rebalance.store.core.ring_records import (
    RingState,
    decode_beat,
    decode_event,
    decode_ring,
    result_names,
    result_state,
)
from rebalance.store.core.store_limits import StoreLimits

LIMITS = StoreLimits()
OVERDUE_TTLS = 1.5
"""A server serves no longer than a TTL after its last heartbeat; a mirror may lag."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Address of one incarnation of a store server."""

    host: str
    port: int
    incarnation: str


class RingReader:
    """Over a mirror of ``exchange/`` or of more. Events and results that were read once are not read again. Of
    one thread."""

    def __init__(self, keys: KeyspaceCopy, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._mirror = keys
        self._revision = 0
        self._state = RingState()
        self._results = ResultState()
        self._last_result = 0
        self._ownership = StoreOwnership()
        self._owned_revision = -1
        self._unreadable_revision = -1
        self._addresses: dict[str, ServerAddress] = {}

    @property
    def state(self) -> RingState:
        """Return the state after the last event. Raises RecordNotReadableError, and ValueError where an event
        is missing."""
        keys = self._keyspace
        if self._mirror.revision < self._revision:
            # The store was restored: what was read of its later life is not so.
            self._state, self._results, self._last_result = RingState(), ResultState(), 0
        self._revision = self._mirror.revision
        if self._mirror.get(keys.exchange_event(self._state.number + 1)) is None:
            snapshot = readable(self._mirror.get(keys.exchange_ring), decode_ring)
            if snapshot is not None and snapshot.number > self._state.number:
                self._state = snapshot
        while (item := self._mirror.get(keys.exchange_event(self._state.number + 1))) is not None:
            self._state = self._state.after(readable(item, decode_event))
        return self._state

    @property
    def view(self) -> RingView:
        """Return everything as of one revision. Raises as ``state``."""
        keys, below = self._keyspace, self._mirror.below
        evictions = below(keys.exchange_evictions)
        suspects = (_names(item, keys.exchange_suspects) for item in below(keys.exchange_suspects))
        return RingView(
            self.state,
            tuple(_seen(item, keys) for item in below(keys.exchange_servers)),
            {item.key.removeprefix(keys.exchange_evictions): item.mod_revision for item in evictions},
            frozenset(suspects),
        )

    @property
    def is_used(self) -> bool:
        """Check that there are servers, zones, or some who wish to join."""
        beat = next(self._mirror.below(self._keyspace.exchange_servers), None)
        cluster = self.state.cluster
        return beat is not None or bool(cluster.servers or cluster.zones)

    def suspicions(self, name: str) -> tuple[str, ...]:
        """Keys of suspicions of the server and by it."""
        prefix = self._keyspace.exchange_suspects
        return tuple(item.key for item in self._mirror.below(prefix) if name in _names(item, prefix))

    def next_event_guards(self) -> tuple[Compare, ...]:
        """The ring's last event is still that of ``state``, also where later ones were compacted."""
        ring = self._keyspace.exchange_ring
        event = self._keyspace.exchange_event(self._state.number + 1)
        return absent(event), as_read(ring, self._mirror.get(ring))

    @property
    def snapshot_number(self) -> int:
        """The event up to which ``exchange/ring`` says everything; 0: it is not written yet."""
        snapshot = readable(self._mirror.get(self._keyspace.exchange_ring), decode_ring)
        return 0 if snapshot is None else snapshot.number

    @property
    def results(self) -> ResultState:
        """Return the state of all results. Raises as ``state``."""
        last = self._mirror.get(self._keyspace.last_result)
        if last is not None and last.mod_revision != self._last_result:
            values = {item.key: item.value for item in self._mirror.below(self._keyspace.exchange)}
            self._results = result_state(self._keyspace, values, self._results)
            self._last_result = last.mod_revision
            self._state = self._state.since(self._results.version)
        return self._results

    @property
    def result_names(self) -> list[str]:
        """Keys of the results that are not folded, in order."""
        below = self._mirror.below(self._keyspace.exchange_results)
        return result_names(self._keyspace, (item.key for item in below))

    @property
    def revision(self) -> int:
        return self._mirror.revision

    def outcomes(self, zone_id: ZoneId) -> tuple[PartitionOutcome, ...]:
        """Return what the last results say of each partition; empty before the first one. Raises as
        ``state``."""
        ownership = self.ownership
        outcomes = ownership.outcomes.get(zone_id, ())
        return tuple(outcome.without(ownership.gone) for outcome in outcomes) if ownership.gone else outcomes

    @property
    def ownership(self) -> StoreOwnership:
        """The same object until something of it changes. Asked for each partition. Raises as ``state``."""
        if self._mirror.revision == self._owned_revision:
            return self._ownership
        results, state = self.results, self.state
        known, silent = self._ownership, self._silent(state)
        if known.ring is not state or known.outcomes is not results.outcomes or known.silent != silent:
            gone = tuple(each.name for each in state.since(results.version).gone)
            self._ownership = StoreOwnership(state, results.outcomes, gone, results.version, silent)
        self._owned_revision = self._mirror.revision
        return self._ownership

    @property
    def shown(self) -> StoreOwnership:
        """Return the ownership, as ``ownership``; where a key of the ring cannot be read, what was known
        before."""
        if self._mirror.revision != self._unreadable_revision:
            try:
                return self.ownership
            except (RecordNotReadableError, ValueError):
                self._unreadable_revision = self._mirror.revision
        return self._ownership

    def _silent(self, state: RingState) -> frozenset[str]:
        """Members that others suspect, whose heartbeat is gone, or so old that they do not serve any more: no
        event says yet that they failed."""
        keys, servers = self._keyspace, state.incarnations
        pairs = (_names(item, keys.exchange_suspects) for item in self._mirror.below(keys.exchange_suspects))
        suspected = {whom for who, whom in pairs if who in servers and whom in servers}
        beats = {name: self._mirror.get(keys.store_server(name, servers[name])) for name in servers}
        ended = {name for name, beat in beats.items() if beat is None or self._is_overdue(beat)}
        return frozenset(suspected | ended)

    def _is_overdue(self, beat: KeyValue) -> bool:
        """Check that the heartbeat is so old that its server has ended, if it is one."""
        if beat.mod_revision > self._mirror.revision_before(OVERDUE_TTLS * LIMITS.ttl_ms / 1_000):
            return False
        ttl_ms = _seen(beat, self._keyspace).ttl_ms or LIMITS.ttl_ms
        return beat.mod_revision <= self._mirror.revision_before(OVERDUE_TTLS * ttl_ms / 1_000)

    def address(self, name: str) -> ServerAddress | None:
        """Return where the server of that name listens; None: none takes part, or it is not known."""
        incarnation = self.shown.ring.incarnations.get(name)
        if incarnation is None:
            return None
        known = self._addresses.get(name)
        if known is None or known.incarnation != incarnation:
            beat = read(self._mirror.get(self._keyspace.store_server(name, incarnation)), decode_beat)
            if beat is None or isinstance(beat, Unreadable):
                return None
            known = self._addresses[name] = ServerAddress(beat.host, beat.port, incarnation)
        return known

    def guard(self, key: str) -> Compare:
        """Return the guard that ``key`` is as the mirror shows it."""
        return as_read(key, self._mirror.get(key))


def _seen(item: KeyValue, keys: Keyspace) -> SeenHeartbeat:
    """Decode a heartbeat, also one that cannot be read: that it changes is what counts."""
    beat = read(item, decode_beat)
    cut_from, ttl_ms = ((), 0) if isinstance(beat, Unreadable) else (beat.cut_from, beat.ttl_ms)
    return SeenHeartbeat(*_names(item, keys.exchange_servers), item.mod_revision, cut_from, ttl_ms)


def _names(item: KeyValue, prefix: str) -> tuple[str, str]:
    """The two names that a key below ``prefix`` is made of."""
    first, _, second = item.key.removeprefix(prefix).partition("/")
    return first, second
