"""Hosts of a node beside one engine's own: several engines as one host, and a host of mirrors that keeps
none.

With more than one engine each partition is with its own (``EngineHosts``). A node that keeps no mirrors can
vote, and says so when it is asked to learn (``NoMirrors``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from catalog.core.zone import Node, ZoneIntent
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.ports.groups import GroupHost, MemberEndpoints, NoPlaceError
from rebalance.ports.metastore import Metastore
from rebalance.ports.mirrors import FollowedGroup, MirrorStatus


def _of_own_host(name: str) -> Callable[..., Any]:
    """The method of the partition's own host."""

    def forwarded(hosts: EngineHosts, partition: PartitionId, *values: Any, **named: Any) -> Any:
        return getattr(hosts.of(partition), name)(partition, *values, **named)

    return forwarded


@dataclass(eq=False)
class EngineHosts:
    """A ``GroupHost``. ``hosts``: engine -> its host. A partition belongs to the engine that has a member of
    it; a new one to the engine of its zone's profiles."""

    engine = _of_own_host("engine")
    endpoints = _of_own_host("endpoints")
    bootstrap = _of_own_host("bootstrap")
    join = _of_own_host("join")
    found_alone = _of_own_host("found_alone")
    found_from_mirror = _of_own_host("found_from_mirror")
    log_position = _of_own_host("log_position")
    restart = _of_own_host("restart")
    stop = _of_own_host("stop")
    set_aside = _of_own_host("set_aside")
    status = _of_own_host("status")
    configuration = _of_own_host("configuration")
    settled_configuration = _of_own_host("settled_configuration")
    change_peers_and_learners = _of_own_host("change_peers_and_learners")
    change = _of_own_host("change")
    cancel_change_peers = _of_own_host("cancel_change_peers")
    transfer_leadership = _of_own_host("transfer_leadership")
    take_leadership = _of_own_host("take_leadership")

    node: Node
    hosts: Mapping[str, GroupHost]
    metastore: Metastore
    keyspace: Keyspace

    def open(self, node: str) -> None:
        for host in self.hosts.values():
            host.open(node)

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset().union(*(host.partitions() for host in self.hosts.values()))

    async def reserve(self, partition: PartitionId, listed: Collection[str] = ()) -> MemberEndpoints:
        if partition in self.partitions():
            return await self.of(partition).reserve(partition, listed)
        return await self.hosts[await self._engine_of(partition)].reserve(partition, listed)

    def aside(self) -> Mapping[PartitionId, frozenset[int]]:
        aside: dict[PartitionId, frozenset[int]] = {}
        for host in self.hosts.values():
            for partition, generations in host.aside().items():
                aside[partition] = aside.get(partition, frozenset()) | generations
        return aside

    async def discard_aside(self, partition: PartitionId, generation: int) -> None:
        for host in self.hosts.values():
            await host.discard_aside(partition, generation)

    async def close(self) -> None:
        await asyncio.gather(*(host.close() for host in self.hosts.values()))

    def of(self, partition: PartitionId) -> GroupHost:
        """Any host answers for a partition that nobody has: nothing is here."""
        hosts = [host for host in self.hosts.values() if partition in host.partitions()]
        return hosts[0] if hosts else next(iter(self.hosts.values()))

    async def _engine_of(self, partition: PartitionId) -> str:
        """Raises NoPlaceError when the zone is not known or its profiles are not kept by one engine here."""
        item = await self.metastore.get(self.keyspace.intent(partition.zone_id))
        if item is None:
            raise NoPlaceError(Cause.ZONE_UNKNOWN.text("its intent does not exist"))
        intent = read(item, ZoneIntent.decode)
        if isinstance(intent, Unreadable):
            raise NoPlaceError(intent.cause)
        profiles = intent.zone.storage_profiles
        engines = sorted({self.node.engine(profile) for profile in profiles})
        if len(engines) > 1:
            raise NoPlaceError(
                Cause.ENGINES_DIFFER.text(f"{', '.join(profiles)} are kept by {', '.join(engines)}")
            )
        return engines[0]


class NoMirrors:
    """A ``MirrorHost`` that holds nothing and follows nobody."""

    def open(self, node: str) -> None:
        """Do nothing: there are no mirrors to open."""

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset()

    async def follow(self, partition: PartitionId, group: FollowedGroup, sources: tuple[str, ...]) -> None:
        raise NoPlaceError(Cause.MIRRORS_NOT_KEPT.text("this node was started without a place for learners"))

    async def serve(self, partition: PartitionId) -> None:
        """Do nothing: there is no mirror to serve."""

    async def status(self, partition: PartitionId) -> MirrorStatus | None:
        return None

    async def stop(self, partition: PartitionId, *, destroy: bool) -> None:
        """Do nothing: there is no mirror to stop."""

    async def close(self) -> None:
        """Do nothing: nothing runs."""
