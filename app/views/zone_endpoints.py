"""Where the data of each partition is: its group's members, or the store servers of its owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from catalog.core.zone import STORE_ENGINE, ZoneId
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.keyspace.keys import PartitionId
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.groups import EndpointSource, Route
from rebalance.store.shell.store_channel import server_url


class ZoneEndpoints:
    """An ``EndpointSource`` over the server's mirror. ``groups``: of partitions that are groups; ``is_store``:
    whether a zone that the ring does not have yet is to be kept by store servers."""

    def __init__(
        self,
        mirror: KeyspaceMirror,
        ring: RingReader,
        groups: EndpointSource,
        is_store: Callable[[ZoneId], bool],
    ) -> None:
        self._mirror = mirror
        self._ring = ring
        self._groups = groups
        self._is_store = is_store

    def route(self, partition: PartitionId) -> Route:
        """Of a store zone: the primary, then the other owners, on servers that take part. Where none is known,
        all servers: each says who serves what is left, and who is awaited."""
        owners = self._ring.shown.owners(partition.zone_id, partition.partition)
        if owners is not None:
            urls = self._urls(owners.effective) or self._urls(sorted(owners.servers))
            return Route(urls, engine=STORE_ENGINE)
        route = self._groups.route(partition)
        is_store = not route.voters and self._is_store(partition.zone_id)
        return Route(engine=STORE_ENGINE) if is_store else route

    def _urls(self, names: Iterable[str]) -> tuple[str, ...]:
        servers = ((name, self._ring.address(name)) for name in names)
        known = ((name, at) for name, at in servers if at is not None)
        return tuple(server_url(at.host, at.port, name, at.incarnation) for name, at in known)

    def basis(self, zone_id: ZoneId) -> object | None:
        """What all routes of a store zone follow from; None: of a zone of groups."""
        ownership = self._ring.shown
        if not ownership.has(zone_id):
            return None
        return ownership, tuple(map(self._ring.address, sorted(ownership.servers)))

    def copy_urls(self, names: Iterable[str]) -> dict[str, str]:
        """Of store servers, by name; empty where one does not take part."""
        return {name: "".join(self._urls((name,))) for name in names}

    def learners(self, partition: PartitionId) -> tuple[str, ...]:
        """Store servers answer reads at the primary only."""
        is_store = self._ring.shown.has(partition.zone_id)
        return () if is_store else self._groups.learners(partition)

    async def wait_for_change(self, partition: PartitionId, seen: Route, timeout_s: float) -> None:
        if seen.engine == STORE_ENGINE or self._ring.shown.has(partition.zone_id):
            await self._mirror.wait_until(lambda: self.route(partition) != seen, timeout_s)
        else:
            await self._groups.wait_for_change(partition, seen, timeout_s)

    def doubt(self, partition: PartitionId) -> None:
        """The mirror follows the metastore by itself."""
        self._groups.doubt(partition)
