"""One partition as the node's mirrors show it now. A hint: what is written on it is guarded or read again.

``MirroredEndpoints`` gives clients the addresses of groups, from the mirrored configurations and member
records, and the generation that they are to find there, from the ``group`` keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Generic, TypeVar

from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.keyspace.keys import Keyspace, PartitionId, PartitionKeys
from rebalance.core.keyspace.readable import RecordReader, Unreadable, read
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    GroupRecord,
    KeptRecord,
    MemberRecord,
    MemberRole,
    MemberState,
    RestartRecord,
)
from rebalance.core.keyspace.txn import KeyValue
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.groups import PeerSight, Route
from rebalance.ports.metastore import Metastore

T = TypeVar("T")

ParseKey = Callable[[str], tuple[PartitionId, str] | None]
"""The partition that a key belongs to, and what it says of it; None: it is no single partition's."""

VIEWS_MAX = 20_000
"""Views that are remembered at once; then all are forgotten."""


@dataclass(frozen=True, slots=True)
class Recorded(Generic[T]):
    """A decoded value with the revision that it was written at, for guards."""

    value: T
    mod_revision: int
    create_revision: int


@dataclass(frozen=True, slots=True)
class NodePartitionView:
    partition: PartitionId
    keys: PartitionKeys
    stable: Recorded[Assignments] | None
    pending: Recorded[Assignments] | None
    group: Recorded[GroupRecord] | None
    configuration: Recorded[ConfigurationRecord] | None
    records: dict[str, Recorded[MemberRecord]]
    living: frozenset[str]
    """Nodes of this partition that are registered now."""
    restarts: Mapping[str, Recorded[RestartRecord]] = field(default_factory=dict)
    """Nodes whose members are asked to restart."""
    kept: Mapping[str, Recorded[KeptRecord]] = field(default_factory=dict)
    """Nodes that keep the copy of a member that has left."""

    @property
    def assigned(self) -> frozenset[str]:
        """Nodes that hold a replica now or are to hold one."""
        return nodes_of(*(key.value for key in (self.stable, self.pending) if key is not None))

    @property
    def voting(self) -> frozenset[str]:
        """Nodes that vote now or are to vote: they have a member."""
        return frozenset(name for key in (self.stable, self.pending) if key for name in key.value.peers)

    @property
    def learning(self) -> frozenset[str]:
        """Nodes that are learners now or are to be: they keep a mirror."""
        return frozenset(name for key in (self.stable, self.pending) if key for name in key.value.learners)

    @property
    def listed_urls(self) -> frozenset[str]:
        """Peer URLs of those with which the group was founded, and of whom it has now."""
        members = self.configuration.value.members.values() if self.configuration is not None else ()
        founders = self.group.value.peers.values() if self.group is not None else ()
        return frozenset({*founders, *(member.peer_url for member in members)})

    def listed(self, peer_url: str) -> MemberRole | None:
        """The role in which the group's published configuration has this peer URL; None when it does not."""
        members = self.configuration.value.members.values() if self.configuration else ()
        return next((member.role for member in members if member.peer_url == peer_url), None)


def peer_sights(view: NodePartitionView) -> dict[str, PeerSight]:
    """Return, for each peer URL that a node has reserved, what its record and its registration say."""
    return {
        record.value.peer_url: PeerSight(
            name,
            down=name not in view.living or record.value.state is MemberState.FAILED,
            serving=record.value.state is MemberState.RUNNING,
            mirror_missing=name in view.living and not record.value.is_mirroring,
        )
        for name, record in view.records.items()
        if record.value.peer_url
    }


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Local copies of the three parts of the keyspace that an agent acts on."""

    partitions: KeyspaceMirror
    members: KeyspaceMirror
    nodes: KeyspaceMirror
    keyspace: Keyspace
    _views: _Views | None = None

    @classmethod
    def over(cls, metastore: Metastore, keyspace: Keyspace) -> Mirrors:
        prefixes = (keyspace.partitions, keyspace.members, keyspace.nodes)
        partitions, members, nodes = (KeyspaceMirror(metastore, prefix) for prefix in prefixes)
        views = _Views(keyspace)
        # The first to listen: nobody who hears of a change sees a view from before it.
        partitions.listen(partial(views.forget, keyspace.parse_partition))
        members.listen(partial(views.forget, keyspace.parse_member))
        nodes.listen(views.forget_nodes)
        return cls(partitions, members, nodes, keyspace, views)

    async def run(self) -> None:
        """Keeps all three current until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in (self.partitions, self.members, self.nodes):
                tasks.create_task(mirror.run(), name=f"mirror {mirror.prefix}")

    async def loaded(self) -> None:
        """Returns once each has its first snapshot."""
        for mirror in (self.partitions, self.members, self.nodes):
            await mirror.loaded()

    def view(self, partition: PartitionId) -> NodePartitionView | Unreadable:
        """Unreadable: one of its keys cannot be read. Nothing is decided about the partition then; what runs of
        it runs on."""
        view, unreadable = self._known(partition)
        return unreadable[0] if unreadable else view

    def shown(self, partition: PartitionId) -> NodePartitionView:
        """Return a view to look at and decide nothing by: what cannot be read is left out."""
        return self._known(partition)[0]

    def assigned(self, partition: PartitionId, node: str) -> bool:
        """Check that stable or pending names ``node``, or cannot be read: without a view, to find out
        quickly."""
        keys = self.keyspace.partition(partition)
        for key in (keys.stable, keys.pending):
            value = read(self.partitions.get(key), lambda stored: parsed(Assignments.decode, stored))
            if isinstance(value, Unreadable) or (value is not None and node in (*value.peers, *value.learners)):
                return True
        return False

    def naming(self, partition: PartitionId, nodes: frozenset[str]) -> bool:
        """Check that the partition is, or is to be, on one of ``nodes``."""
        view = self._known(partition)[0]
        return not nodes.isdisjoint(view.records) or not nodes.isdisjoint(view.assigned)

    def _known(self, partition: PartitionId) -> tuple[NodePartitionView, list[Unreadable]]:
        """Partitions are looked at in round after round, and most have not changed since the last one."""
        known = self._views.by_partition.get(partition) if self._views is not None else None
        if known is None:
            unreadable: list[Unreadable] = []
            known = self._read(partition, unreadable), unreadable
            if self._views is not None:
                self._views.remember(partition, known)
        return known

    def _read(self, partition: PartitionId, unreadable: list[Unreadable]) -> NodePartitionView:
        keys, reader = self.keyspace.partition(partition), _Reader(unreadable)
        get = self.partitions.get
        stable = reader.recorded(get(keys.stable), Assignments.decode)
        pending = reader.recorded(get(keys.pending), Assignments.decode)
        group = reader.recorded(get(keys.group), GroupRecord.decode)
        configuration = reader.recorded(get(keys.configuration), ConfigurationRecord.decode)
        records = reader.below(self.members, self.keyspace.member(partition, ""), MemberRecord.decode)
        names = records.keys() | nodes_of(*(key.value for key in (stable, pending) if key))
        living = frozenset(name for name in names if self.nodes.get(self.keyspace.node(name)))
        restarts = reader.below(self.partitions, self.keyspace.restarts(partition), RestartRecord.decode)
        kept = reader.below(self.partitions, self.keyspace.kept_copies(partition), KeptRecord.decode)
        return NodePartitionView(
            partition, keys, stable, pending, group, configuration, records, living, restarts, kept
        )


class _Views:
    """Views of partitions that were read since something of them changed; shared and never changed."""

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self.by_partition: dict[PartitionId, tuple[NodePartitionView, list[Unreadable]]] = {}

    def remember(self, partition: PartitionId, known: tuple[NodePartitionView, list[Unreadable]]) -> None:
        if len(self.by_partition) >= VIEWS_MAX:
            self.by_partition.clear()
        self.by_partition[partition] = known

    def forget_nodes(self, changed: frozenset[str]) -> None:
        """A node's key is in the views that name the node."""
        nodes = frozenset(key.removeprefix(self._keyspace.nodes) for key in changed)
        for partition, (view, _) in list(self.by_partition.items()):
            if not nodes.isdisjoint(view.records) or not nodes.isdisjoint(view.assigned):
                del self.by_partition[partition]

    def forget(self, parse: ParseKey, changed: frozenset[str]) -> None:
        """A key of no single partition may be in the view of each."""
        for key in changed:
            below = parse(key)
            if below is None:
                self.by_partition.clear()
                return
            self.by_partition.pop(below[0], None)


class _Reader(RecordReader):
    def recorded(self, item: KeyValue | None, decode: Callable[[bytes], T]) -> Recorded[T] | None:
        value = self.record(item, lambda stored: parsed(decode, stored))
        if item is None or value is None:
            return None
        return Recorded(value, item.mod_revision, item.create_revision)

    def below(
        self, mirror: KeyspaceMirror, prefix: str, decode: Callable[[bytes], T]
    ) -> dict[str, Recorded[T]]:
        """Read records by what follows ``prefix``: a node's name."""
        records = {}
        for item in mirror.below(prefix):
            record = self.recorded(item, decode)
            if record is not None:
                records[item.key.removeprefix(prefix)] = record
        return records


@lru_cache(maxsize=20_000)
def parsed(decode: Callable[[bytes], T], value: bytes) -> T:
    """The same keys are looked at in round after round: what they say is shared and never changed."""
    return decode(value)


class MirroredEndpoints:
    """An ``EndpointSource``: the leader first, then the other voters that stay, those that do not
    answer later, those of dead nodes last."""

    def __init__(self, mirrors: Mirrors) -> None:
        self._mirrors = mirrors
        self._known: dict[PartitionId, Route] = {}
        self._read_last: dict[PartitionId, Route] = {}
        self._waiting: dict[PartitionId, set[asyncio.Future[None]]] = {}
        mirrors.partitions.listen(partial(self._on_keys, mirrors.keyspace.parse_partition))
        mirrors.members.listen(partial(self._on_keys, mirrors.keyspace.parse_member))
        mirrors.nodes.listen(self._on_node_keys)

    def route(self, partition: PartitionId) -> Route:
        known = self._known.get(partition)
        if known is None:
            known = self._known[partition] = self._read(partition)
        return known

    def _read(self, partition: PartitionId) -> Route:
        """Read a partition's route; while a key of the partition cannot be read its data is served as before,
        and of the generations that were read the highest one counts, since a group never goes back."""
        view = self._mirrors.view(partition)
        if not isinstance(view, Unreadable):
            self._read_last[partition] = Route(client_urls(view), generation_of(view))
            return self._read_last[partition]
        shown, before = self._mirrors.shown(partition), self._read_last.get(partition, Route())
        generations = [known for known in (generation_of(shown), before.generation) if known is not None]
        voters = client_urls(shown) or before.voters or started_urls(shown)
        return Route(voters, max(generations, default=None))

    async def wait_for_change(self, partition: PartitionId, seen: Route, timeout_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        waiting = self._waiting.setdefault(partition, set())
        while self.route(partition) == seen:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.add(woken)
            try:
                async with asyncio.timeout_at(deadline):
                    await woken
            except TimeoutError:
                return
            finally:
                waiting.discard(woken)

    def doubt(self, partition: PartitionId) -> None:
        """The mirrors follow the metastore by themselves."""

    def learners(self, partition: PartitionId) -> tuple[str, ...]:
        return learner_urls(self._mirrors.shown(partition))

    def _on_keys(self, parse: ParseKey, changed: frozenset[str]) -> None:
        for key in changed:
            if (below := parse(key)) is not None:
                self._refresh(below[0])

    def _on_node_keys(self, changed: frozenset[str]) -> None:
        # The mirror of the nodes may be one of the whole keyspace.
        if any(key.startswith(self._mirrors.keyspace.nodes) for key in changed):
            for partition in list(self._known):
                self._refresh(partition)

    def _refresh(self, partition: PartitionId) -> None:
        self._known.pop(partition, None)
        for woken in self._waiting.get(partition, ()):
            if not woken.done():
                woken.set_result(None)


def client_urls(view: NodePartitionView) -> tuple[str, ...]:
    """Empty while the group has published nothing. A leaving member is left out before it is removed."""
    if view.configuration is None:
        return ()
    configuration = view.configuration.value
    ranked: list[tuple[bool, bool, bool, str, str]] = []
    for name, member in configuration.members.items():
        record = view.records.get(name)
        if member.role is not MemberRole.VOTER or record is None or not record.value.client_url:
            continue
        if record.value.peer_url != member.peer_url or member.leaving:
            continue
        is_silent = record.value.state is not MemberState.RUNNING
        ranked.append(
            (name not in view.living, is_silent, name != configuration.leader, name, record.value.client_url)
        )
    return tuple(url for *_, url in sorted(ranked))


def generation_of(view: NodePartitionView) -> int | None:
    """Return the generation that clients are to reach: a founding changes the ``group`` key in one revision
    with the members that clients are sent to. None while neither key tells."""
    if view.group is not None:
        return view.group.value.generation
    return view.configuration.value.generation if view.configuration is not None else None


def started_urls(view: NodePartitionView) -> tuple[str, ...]:
    """Return the members of the voters that stable names, for a group whose configuration cannot be read."""
    peers = view.stable.value.peers if view.stable is not None else ()
    records = (view.records[name].value for name in peers if name in view.records and name in view.living)
    return tuple(record.client_url for record in records if record.started and record.client_url)


def learner_urls(view: NodePartitionView) -> tuple[str, ...]:
    """Mirrors that run on living nodes and are not about to go, in the order of the nodes' names. One of an
    earlier life of the group may have what this one never had."""
    generation = view.group.value.generation if view.group is not None else 0
    return tuple(
        record.value.mirror.client_url
        for name, record in sorted(view.records.items())
        if record.value.mirror is not None and record.value.is_mirroring
        if name in view.learning and name in view.living
        if record.value.mirror.generation == generation
    )
