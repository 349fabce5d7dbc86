"""The leading controller's part of the ring: who joins, who failed, whom others suspect, and which zones there
are.

Pure: what it saw of etcd and its own clock in, guarded actions out. A controller that begins to lead begins its
clocks anew, so it fails nobody too early.

Zones begin and end, and their lists change. A zone's ideal lists are read by servers as of the revision that
its event names; so an event is due where the lists of now are other ones than those of that revision. Another
loss policy goes the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from catalog.core.zone import DEFAULT_LOSS_POLICY, LossPolicy, ZoneId
from rebalance.core.partition_maps.topology_version import Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import Lists
from rebalance.store.core.ring_records import RingState


@dataclass(frozen=True, slots=True)
class SeenHeartbeat:
    """The key ``exchange/servers/<name>/<incarnation>`` and its mod revision. ``cut_from``: members that the
    server does not reach, as long as it has not joined. ``ttl_ms``: after how long without a change it is
    failed, as it stops before that by itself; 0: it does not say."""

    name: str
    incarnation: str
    revision: int
    cut_from: Collection[str] = ()
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class RingView:
    """State of the ring and its keys at one revision. ``evicting``: by name the revision of its key.
    ``suspects``: (who, whom)."""

    state: RingState
    heartbeats: Collection[SeenHeartbeat] = ()
    evicting: Mapping[str, int] = field(default_factory=dict)
    suspects: Collection[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class JoinServer:
    """Append NODE_JOINED, if the ring's last event is still ``after`` and the heartbeat's key exists."""

    after: int
    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class FailServer:
    """Append NODE_FAILED, if the ring's last event is still ``after`` and the heartbeat's key still has
    ``revision`` (0: does not exist); the same transaction deletes that key, its eviction, and suspicions of it
    and by it."""

    after: int
    name: str
    incarnation: str
    revision: int


@dataclass(frozen=True, slots=True)
class EvictServer:
    """Create ``exchange/evicting/<name>``, if the ring's last event is still ``after``: heartbeats of the name
    are refused from then on. The guard keeps it from the server's successor."""

    after: int
    name: str


@dataclass(frozen=True, slots=True)
class RetireHeartbeat:
    """Delete the heartbeat's key of a server that is not in the ring, if it still has ``revision``."""

    name: str
    incarnation: str
    revision: int


RingAction = JoinServer | FailServer | EvictServer | RetireHeartbeat


WAIT_TTLS_MAX = 12
"""Maximum time, in TTLs, that a server that was evicted again and again stays out."""
STEADY_TTLS = 60
"""A member that nobody suspected for so long has no evictions to its name."""


class RingKeeper:
    """``ttl_ms``: of servers that do not name their own.

    ``held_out``: by name, why a server that wishes to join does not, as of the last look. One that does not
    reach a member would be suspected and evicted again, and everybody would stand still each time; where it
    reaches all and is evicted all the same, it waits longer each time. A process that was over, so that its
    heartbeats had ended before its eviction, does not."""

    def __init__(self, ttl_ms: int) -> None:
        self.held_out: dict[str, str] = {}
        self._ttl_ms = ttl_ms
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}
        self._ttls: dict[tuple[str, str], int] = {}
        self._evicted: dict[str, tuple[int, int]] = {}
        self._evictions: dict[str, tuple[int, int]] = {}
        self._beating: frozenset[str] = frozenset()

    def look(self, now_ms: int, view: RingView) -> RingAction | None:
        """The next thing to be done; it looks again after that."""
        beats = {(item.name, item.incarnation): item.revision for item in view.heartbeats}
        members = {name: view.state.incarnations.get(name, "") for name in view.state.cluster.servers}
        cut_from = {(item.name, item.incarnation): item.cut_from for item in view.heartbeats}
        self.held_out = {}
        self._count_evictions(now_ms, view, members)
        self._remember(now_ms, view, beats, members)
        # One whose heartbeat cannot be read any more goes by what it has said before.
        self._ttls |= {(item.name, item.incarnation): item.ttl_ms for item in view.heartbeats if item.ttl_ms}
        self._ttls = {member: ttl_ms for member, ttl_ms in self._ttls.items() if member in self._seen}
        for name, incarnation in sorted(members.items()):
            revision, since_ms = self._seen[name, incarnation]
            evicted_ms = self._evicted[name][1] if name in self._evicted else now_ms
            # Without a key the process is over: only who has reaped it deletes that of a member.
            if not revision or max(now_ms - since_ms, now_ms - evicted_ms) >= self._ttl(name, incarnation):
                return FailServer(view.state.number, name, incarnation, revision)
        # The newest incarnation of a name first; one that has stopped beating does not join any more.
        for (name, incarnation), revision in sorted(beats.items(), key=lambda beat: -beat[1]):
            age_ms = now_ms - self._seen[name, incarnation][1]
            if members.get(name) == incarnation:
                continue
            ttl_ms = self._ttl(name, incarnation)
            if age_ms >= ttl_ms:
                return RetireHeartbeat(name, incarnation, revision)
            if name in members or name in view.evicting or age_ms >= ttl_ms // 2:
                continue
            reason = self._why_not(now_ms, name, members.keys() & cut_from[name, incarnation])
            if not reason:
                return JoinServer(view.state.number, name, incarnation)
            self.held_out[name] = reason
        suspect = suspected(view, members)
        return EvictServer(view.state.number, suspect) if suspect is not None else None

    def _ttl(self, name: str, incarnation: str) -> int:
        return self._ttls.get((name, incarnation), self._ttl_ms)

    def _why_not(self, now_ms: int, name: str, unreached: Collection[str]) -> str:
        if unreached:
            return f"it does not reach {', '.join(sorted(unreached))}"
        evictions, since_ms = self._evictions.get(name, (0, now_ms))
        wait_ms = self._ttl_ms * min(2 ** (evictions - 1), WAIT_TTLS_MAX) if evictions > 1 else 0
        left_ms = since_ms + wait_ms - now_ms
        return f"it was evicted {evictions} times: {left_ms / 1_000:.0f} s to wait" if left_ms > 0 else ""

    def _count_evictions(self, now_ms: int, view: RingView, members: Collection[str]) -> None:
        for name in self._evicted.keys() - view.evicting.keys():
            if name not in members and name in self._beating:
                self._evictions[name] = self._evictions.get(name, (0, 0))[0] + 1, now_ms
        steady_ms = STEADY_TTLS * self._ttl_ms
        self._evictions = {
            name: known for name, known in self._evictions.items() if now_ms - known[1] < steady_ms
        }

    def _remember(
        self,
        now_ms: int,
        view: RingView,
        beats: Mapping[tuple[str, str], int],
        members: Mapping[str, str],
    ) -> None:
        seen = {}
        for member in sorted({*members.items(), *beats}):
            revision = beats.get(member, 0)
            known = self._seen.get(member)
            seen[member] = known if known is not None and known[0] == revision else (revision, now_ms)
        self._seen = seen
        young_ms = self._ttl_ms * 2 // 5
        self._beating &= view.evicting.keys()
        self._beating |= {
            name
            for name in view.evicting.keys() - self._evicted.keys()
            if now_ms - seen.get((name, members.get(name, "")), (0, 0))[1] < young_ms
        }
        self._evicted = {
            name: self._evicted[name]
            if name in self._evicted and self._evicted[name][0] == revision
            else (revision, now_ms)
            for name, revision in view.evicting.items()
        }


def suspected(view: RingView, members: Collection[str]) -> str | None:
    """Return the member that most members suspect, the youngest on a tie. Nobody while one is being evicted, as
    that may be what the others wait for."""
    if view.evicting:
        return None
    votes = Counter(whom for who, whom in view.suspects if who in members and whom in members)
    if not votes:
        return None
    orders = view.state.cluster.servers
    return max(votes, key=lambda name: (votes[name], orders.get(name, 0)))


@dataclass(frozen=True, slots=True)
class AssignedZone:
    """A zone of the engine ``store`` and its ideal lists as of the metastore's ``revision``."""

    zone_id: ZoneId
    partitions: int
    lists: Lists
    revision: int
    policy: LossPolicy = DEFAULT_LOSS_POLICY
    life: str = ""

    @property
    def is_complete(self) -> bool:
        """Every partition was placed."""
        return len(self.lists) == self.partitions and all(self.lists)

    @property
    def spec(self) -> ZoneSpec:
        """Return the zone's spec, with ``revision`` as that of its targets."""
        copies = max(map(len, self.lists), default=0)
        return ZoneSpec(self.zone_id, self.partitions, copies, self.policy, self.revision, self.life)


@dataclass(frozen=True, slots=True)
class AppendZones:
    """Append ``trigger`` with ``zones`` and ``dead``, if the ring's last event is still ``after``."""

    after: int
    trigger: Trigger
    zones: tuple[ZoneSpec, ...]
    dead: frozenset[str] = frozenset()


def next_zone_event(
    state: RingState,
    placed: Collection[AssignedZone],
    dropped: Collection[ZoneId],
    targets: Mapping[ZoneId, Lists | None],
    *,
    may_set: bool,
) -> AppendZones | None:
    """``targets``: the lists that servers read for each zone of the ring; None: they are compacted, and
    who joins now would read others. ``may_set``: False so soon after a TARGET_SET that changes are collected.

    Zones begin when they are placed and a server is there, and end only when they are known to be dropped.
    """
    opened = state.cluster.zones
    stopped = tuple(spec for zone, spec in sorted(opened.items()) if zone in dropped)
    if stopped:
        return AppendZones(state.number, Trigger.ZONE_STOP, stopped)
    complete = [zone for zone in sorted(placed, key=lambda zone: zone.zone_id) if zone.is_complete]
    started = tuple(zone.spec for zone in complete if zone.zone_id not in opened)
    if started and state.cluster.servers:
        return AppendZones(state.number, Trigger.ZONE_START, started)
    changed = tuple(
        zone.spec
        for zone in complete
        if zone.zone_id in opened
        and (targets.get(zone.zone_id) != zone.lists or opened[zone.zone_id].policy is not zone.policy)
    )
    return AppendZones(state.number, Trigger.TARGET_SET, changed) if changed and may_set else None
