"""Where the members of a group are, from the keyspace mirror: stable and pending voters that stay."""

from __future__ import annotations

from rebalance.core.assignments import Assignments
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.records import ConfigurationRecord, MemberRecord, MemberRole, MemberState
from rebalance.metastore.mirror import KeyspaceMirror


class MirrorEndpoints:
    """Endpoints as the mirror last saw them; still answers while the metastore is away."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self._mirror = mirror
        self._keyspace = keyspace

    def endpoints(self, partition: PartitionId) -> tuple[str, ...]:
        """The leader first, then the other voters of the group; before a leader has published the group's
        configuration, the members of stable in its order of preference."""
        found = self._mirror.value(self._keyspace.partition(partition).configuration)
        if found is None:
            nodes = self._stable(partition)
        else:
            configuration = ConfigurationRecord.decode(found)
            voters = [
                node
                for node, member in configuration.members.items()
                if member.role is MemberRole.VOTER and not member.leaving
            ]
            nodes = sorted(voters, key=lambda node: (node != configuration.leader, node))
        urls = (self._client_url(partition, node) for node in nodes)
        return tuple(url for url in urls if url is not None)

    async def wait_for_change(self, partition: PartitionId, seen: tuple[str, ...], timeout_s: float) -> None:
        await self._mirror.wait_until(lambda: self.endpoints(partition) != seen, timeout_s)

    def _stable(self, partition: PartitionId) -> list[str]:
        found = self._mirror.value(self._keyspace.partition(partition).stable)
        return list(Assignments.decode(found).peers) if found is not None else []

    def _client_url(self, partition: PartitionId, node: str) -> str | None:
        found = self._mirror.value(self._keyspace.member(partition, node))
        if found is None:
            return None
        member = MemberRecord.decode(found)
        return member.client_url if member.state is not MemberState.READY else None
