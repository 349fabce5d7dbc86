"""Addresses of the groups for clients, from the mirrored configurations and member records, and the generation
that they are to find there, from the ``group`` keys."""

from __future__ import annotations

import asyncio
from functools import partial

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.readable import Unreadable
from rebalance.core.keyspace.records import MemberRole, MemberState
from rebalance.nodes.partition_view import Mirrors, NodePartitionView, ParseKey
from rebalance.ports.groups import Route


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
