"""The members of a node whose profiles are kept by more than one engine: each partition's with its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from catalog.core.zone import Node, ZoneIntent
from rebalance.core.assignments import Assignments
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.readable import Unreadable, read
from rebalance.core.records import GroupRecord, LogPosition
from rebalance.ports.groups import (
    NO_SIGHTS,
    CancelAnswer,
    ChangeAnswer,
    GroupChange,
    GroupHost,
    GroupMember,
    MemberEndpoints,
    MemberStatus,
    NoPlaceError,
    PeerSight,
)
from rebalance.ports.metastore import Metastore


class EngineHosts:
    """A ``GroupHost``. ``hosts``: engine -> its host. A partition belongs to the engine that has a member of
    it; a new one to the engine of its zone's profiles."""

    def __init__(
        self, node: Node, hosts: Mapping[str, GroupHost], metastore: Metastore, keyspace: Keyspace
    ) -> None:
        self._node = node
        self._hosts = hosts
        self._metastore = metastore
        self._keyspace = keyspace

    def open(self, node: str) -> None:
        for host in self._hosts.values():
            host.open(node)

    def engine(self, partition: PartitionId) -> str:
        return self._of(partition).engine(partition)

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset().union(*(host.partitions() for host in self._hosts.values()))

    def endpoints(self, partition: PartitionId) -> MemberEndpoints | None:
        return self._of(partition).endpoints(partition)

    async def reserve(self, partition: PartitionId) -> MemberEndpoints:
        if partition in self.partitions():
            return await self._of(partition).reserve(partition)
        return await self._hosts[await self._wanted(partition)].reserve(partition)

    async def bootstrap(self, partition: PartitionId, group: GroupRecord) -> None:
        await self._of(partition).bootstrap(partition, group)

    async def join(self, partition: PartitionId, peers: Mapping[str, str], generation: int = 0) -> None:
        await self._of(partition).join(partition, peers, generation)

    async def found_alone(self, partition: PartitionId, generation: int) -> bool:
        return await self._of(partition).found_alone(partition, generation)

    async def found_from_mirror(
        self, partition: PartitionId, generation: int, client_url: str, complete_revision: int
    ) -> bool:
        host = self._of(partition)
        return await host.found_from_mirror(partition, generation, client_url, complete_revision)

    async def log_position(self, partition: PartitionId) -> LogPosition | None:
        return await self._of(partition).log_position(partition)

    async def restart(self, partition: PartitionId) -> None:
        await self._of(partition).restart(partition)

    async def stop(self, partition: PartitionId, *, destroy: bool) -> None:
        await self._of(partition).stop(partition, destroy=destroy)

    async def set_aside(self, partition: PartitionId) -> None:
        await self._of(partition).set_aside(partition)

    def aside(self) -> Mapping[PartitionId, frozenset[int]]:
        aside: dict[PartitionId, frozenset[int]] = {}
        for host in self._hosts.values():
            for partition, generations in host.aside().items():
                aside[partition] = aside.get(partition, frozenset()) | generations
        return aside

    async def discard_aside(self, partition: PartitionId, generation: int) -> None:
        for host in self._hosts.values():
            await host.discard_aside(partition, generation)

    async def status(self, partition: PartitionId) -> MemberStatus | None:
        return await self._of(partition).status(partition)

    async def configuration(
        self, partition: PartitionId, sights: Mapping[str, PeerSight] = NO_SIGHTS, *, linearizable: bool = False
    ) -> tuple[GroupMember, ...]:
        return await self._of(partition).configuration(partition, sights, linearizable=linearizable)

    async def settled_configuration(
        self, partition: PartitionId, term: int, sights: Mapping[str, PeerSight] = NO_SIGHTS
    ) -> tuple[GroupMember, ...]:
        return await self._of(partition).settled_configuration(partition, term, sights)

    async def change_peers_and_learners(
        self,
        partition: PartitionId,
        term: int,
        token: int,
        target: Assignments,
        endpoints: Mapping[str, str],
        stable: Sequence[str] = (),
    ) -> ChangeAnswer:
        host = self._of(partition)
        return await host.change_peers_and_learners(partition, term, token, target, endpoints, stable)

    def change(self, partition: PartitionId) -> GroupChange | None:
        return self._of(partition).change(partition)

    async def cancel_change_peers(self, partition: PartitionId, term: int, token: int) -> CancelAnswer:
        return await self._of(partition).cancel_change_peers(partition, term, token)

    async def transfer_leadership(self, partition: PartitionId, node: str) -> bool:
        return await self._of(partition).transfer_leadership(partition, node)

    async def take_leadership(self, partition: PartitionId, leader_url: str) -> bool:
        return await self._of(partition).take_leadership(partition, leader_url)

    async def close(self) -> None:
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    def _of(self, partition: PartitionId) -> GroupHost:
        """Any host answers for a partition that nobody has: nothing is here."""
        hosts = [host for host in self._hosts.values() if partition in host.partitions()]
        return hosts[0] if hosts else next(iter(self._hosts.values()))

    async def _wanted(self, partition: PartitionId) -> str:
        """Raises NoPlaceError when the zone is not known or its profiles are not kept by one engine here."""
        item = await self._metastore.get(self._keyspace.intent(partition.zone_id))
        if item is None:
            raise NoPlaceError("ZONE_UNKNOWN: its intent is not there")
        intent = read(item, ZoneIntent.decode)
        if isinstance(intent, Unreadable):
            raise NoPlaceError(intent.cause)
        profiles = intent.zone.storage_profiles
        engines = sorted({self._node.engine(profile) for profile in profiles})
        if len(engines) > 1:
            raise NoPlaceError(f"ENGINES_DIFFER: {', '.join(profiles)} are kept by {', '.join(engines)}")
        return engines[0]
