"""Nodes that are there, since when, and since when others are not: what scale-up and scale-down wait for.

One document for the whole cluster. Every zone's timers follow from it: a join or a leave has one time,
whichever zone or controller looks at it. Times are wall-clock milliseconds of the controller that noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from catalog.core.codec import Codec, Extensible, Form, Record, listed, moment, text
from catalog.core.level import NO_LEVEL
from catalog.core.zone import Node
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import NODE_FIELDS, NodeRecord
from rebalance.core.keyspace.txn import KeyValue

EVENT_FIELDS = 4
REST = "rest"
DEPARTED_MAX = 1_000
EVENTS_MAX = 100


class EventKind(Enum):
    JOINED = "JOINED"
    LEFT = "LEFT"


@dataclass(frozen=True, slots=True)
class TopologyEvent(Extensible):
    """Written as a list: what a later build has written behind these is in ``unknown``, as ``REST``."""

    at_ms: int
    kind: EventKind
    node: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Presence(Extensible):
    """A node as last seen. ``left_ms`` is None while it lives; ``missing_ms`` says since when its lease is gone
    and it is not believed to have left yet (``HoldRule``)."""

    node: Node
    incarnation: str
    joined_ms: int
    missing_ms: int | None = None
    left_ms: int | None = None

    @property
    def has_left(self) -> bool:
        return self.left_ms is not None

    @property
    def is_seen(self) -> bool:
        return self.left_ms is None and self.missing_ms is None

    @property
    def absent_ms(self) -> int | None:
        return self.left_ms if self.left_ms is not None else self.missing_ms


@dataclass(frozen=True, slots=True)
class HoldRule:
    """Rule for believing nodes gone. More than half of the nodes gone within ``lease_ms``: the metastore
    paused, more likely than the nodes died. So it is with any node that is gone after the metastore was silent,
    also when leases end one by one. They are missing, and count as left only after ``grace_ms``."""

    lease_ms: int
    grace_ms: int


NO_HOLD = HoldRule(0, 0)


@dataclass(frozen=True, slots=True)
class Topology(Record):
    """``nodes`` by name: those that live, and those that left, as far as they are remembered.

    ``forgotten_ms``: a node that is not in here left at that time at the latest. ``drained``: nodes that
    are leaving for good, in name order, living or not: no zone uses them.
    """

    version: int = 0
    nodes: tuple[Presence, ...] = ()
    events: tuple[TopologyEvent, ...] = ()
    forgotten_ms: int = 0
    hold_until_ms: int | None = None
    drained: tuple[str, ...] = ()

    @classmethod
    def of(cls, nodes: Iterable[Node], joined_ms: int = 0) -> Topology:
        """Nodes that all live since ``joined_ms``."""
        present = (Presence(node, "", joined_ms) for node in nodes)
        return cls(nodes=tuple(sorted(present, key=lambda presence: presence.node.name)))

    @property
    def seen(self) -> tuple[Presence, ...]:
        return tuple(presence for presence in self.nodes if presence.is_seen)


def _read_event(value: Any) -> TopologyEvent:
    if type(value) is not list or len(value) < EVENT_FIELDS:
        raise ValueError(f"not an event: {value!r:.80}")
    at_ms, kind, node, incarnation, *rest = value
    unknown = {REST: rest} if rest else None
    return TopologyEvent(moment(at_ms), EventKind(text(kind)), text(node), text(incarnation), unknown=unknown)


def _write_event(event: TopologyEvent) -> list[Any]:
    rest = event.unknown[REST] if event.unknown else ()
    return [event.at_ms, event.kind.value, event.node, event.incarnation, *rest]


_PRESENCE = Codec(Presence, required=("missing_ms", "left_ms"), inline={"node": NODE_FIELDS})
Topology.codec = Codec(
    Topology,
    required=("version", "forgotten_ms", "hold_until_ms", "nodes", "events"),
    order=("version", "forgotten_ms", "hold_until_ms", "drained", "nodes", "events"),
    forms={
        "nodes": listed(_PRESENCE.form),
        "events": listed(Form(_read_event, _write_event)),
    },
)


def living(
    items: Iterable[KeyValue], prefix: str, before: Topology, in_force: int = NO_LEVEL
) -> tuple[list[NodeRecord], tuple[Unreadable, ...]]:
    """The nodes whose keys below ``prefix`` are there. One whose record cannot be read lives, and is what it
    was ``before``; if it was not there then it has not joined yet. One whose build is below the level
    ``in_force`` is not there: it is given nothing."""
    known = {presence.node.name: presence for presence in before.nodes if not presence.has_left}
    live, unreadable = [], []
    for item in items:
        name, record = item.key.removeprefix(prefix), read(item, NodeRecord.decode)
        if isinstance(record, NodeRecord) and record.node.name == name:
            if record.build_level >= in_force:
                live.append(record)
            continue
        if isinstance(record, NodeRecord):
            record = Unreadable(item.key, f"it speaks of node {record.node.name!r:.80}")
        unreadable.append(record)
        if name in known:
            live.append(NodeRecord(known[name].node, known[name].incarnation))
    return live, tuple(unreadable)


def member_limits(items: Iterable[KeyValue], prefix: str) -> dict[str, int]:
    """Member limits by node, of the keys below ``prefix``. One whose record cannot be read takes no more
    members."""
    limits = {}
    for item in items:
        record = read(item, NodeRecord.decode)
        limits[item.key.removeprefix(prefix)] = (
            0 if isinstance(record, Unreadable) else record.node.member_limit
        )
    return limits


def observe(
    topology: Topology,
    live: Iterable[NodeRecord],
    now_ms: int,
    hold: HoldRule = NO_HOLD,
    noticed_ms: Mapping[str, int] | None = None,
    silent_ms: int | None = None,
    drained: Iterable[str] = (),
) -> Topology:
    """The topology after seeing exactly ``live`` and ``drained``; the same object when nothing changed.

    ``noticed_ms`` has the time of the event for nodes whose change was noticed before ``now_ms``. A clock that
    went back does not move a node's events back: each is at least as late as the one before.
    ``silent_ms``: when the metastore last began to answer again, after a time in which leases may have ended.
    A new incarnation under a known name is a leave and a join in one.
    """
    times = noticed_ms or {}
    known = {presence.node.name: presence for presence in topology.nodes}
    live_nodes = {record.node.name: record for record in live}
    nodes = dict(known)
    events: list[TopologyEvent] = []
    for name, record in live_nodes.items():
        nodes[name] = _present(known.get(name), record, times.get(name, now_ms), events)
    newly = {
        name: max(times.get(name, now_ms), presence.joined_ms)
        for name, presence in known.items()
        if name not in live_nodes and presence.is_seen
    }
    for name, at_ms in newly.items():
        nodes[name] = replace(known[name], missing_ms=at_ms)
    hold_until_ms = topology.hold_until_ms
    if hold_until_ms is None and newly and _most_are_gone(nodes, now_ms, hold):
        hold_until_ms = now_ms + hold.grace_ms
    missing = [name for name, presence in nodes.items() if presence.missing_ms is not None]
    if missing and silent_ms is not None and silent_ms + hold.grace_ms > now_ms:
        hold_until_ms = max(hold_until_ms or 0, silent_ms + hold.grace_ms)
    if not missing:
        hold_until_ms = None
    elif hold_until_ms is None or hold_until_ms <= now_ms:
        hold_until_ms = None
        for name in missing:
            nodes[name] = _departed(nodes[name], events)
    leaving = tuple(sorted(drained))
    changed = replace(
        topology,
        nodes=tuple(nodes[name] for name in sorted(nodes)),
        hold_until_ms=hold_until_ms,
        drained=leaving,
    )
    if changed == topology:
        return topology
    events.sort(key=lambda event: event.at_ms)
    kept = (*topology.events, *events)[-EVENTS_MAX:]
    return _forget(replace(changed, version=topology.version + 1, events=kept))


def _present(before: Presence | None, record: NodeRecord, at_ms: int, events: list[TopologyEvent]) -> Presence:
    if before is not None and not before.has_left and before.incarnation == record.incarnation:
        return replace(before, node=record.node, missing_ms=None)
    if before is not None:
        at_ms = max(at_ms, before.joined_ms, before.absent_ms or 0)
        if not before.has_left:
            _departed(replace(before, missing_ms=before.missing_ms or at_ms), events)
    events.append(TopologyEvent(at_ms, EventKind.JOINED, record.node.name, record.incarnation))
    return Presence(record.node, record.incarnation, at_ms)


def _departed(missing: Presence, events: list[TopologyEvent]) -> Presence:
    left_ms = missing.joined_ms if missing.missing_ms is None else missing.missing_ms
    events.append(TopologyEvent(left_ms, EventKind.LEFT, missing.node.name, missing.incarnation))
    return replace(missing, missing_ms=None, left_ms=left_ms)


def _most_are_gone(nodes: Mapping[str, Presence], now_ms: int, hold: HoldRule) -> bool:
    """True if more than half are gone of the nodes that lived one lease ago or joined since. Never without a
    grace time."""
    if not hold.grace_ms:
        return False
    there = sum(presence.is_seen for presence in nodes.values())
    gone = sum(
        presence.absent_ms is not None and presence.absent_ms > now_ms - hold.lease_ms
        for presence in nodes.values()
    )
    return gone > there


def _forget(topology: Topology) -> Topology:
    """Drops those that left first when there are too many to remember."""
    departed = sorted(
        (presence.left_ms, presence.node.name) for presence in topology.nodes if presence.left_ms is not None
    )
    forgotten = departed[: max(0, len(departed) - DEPARTED_MAX)]
    if not forgotten:
        return topology
    names = {name for _, name in forgotten}
    kept = tuple(presence for presence in topology.nodes if presence.node.name not in names)
    return replace(topology, nodes=kept, forgotten_ms=max(topology.forgotten_ms, forgotten[-1][0]))
