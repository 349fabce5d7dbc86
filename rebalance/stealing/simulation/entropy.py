"""Keys saved before a rebalancing, one file a store, and whether they are where they should be after it.

Source: VOL-082, VOL-083.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rebalance.stealing.core.steal_cluster import ClusterMetadata
from rebalance.stealing.simulation.steal_server import Server
from rebalance.stealing.simulation.steal_world import World

KEYS_MAX = 1_000
"""Of each store; taken from all partitions alike, by key."""


@dataclass(frozen=True, slots=True)
class EntropyReport:
    """``checked``: copies of keys that were looked for. ``missing``: (store, key, node)."""

    checked: int
    missing: tuple[tuple[str, str, int], ...]


def save_keys(world: World, directory: Path, limit: int = KEYS_MAX) -> tuple[Path, ...]:
    """Writes ``<store>.keys`` for each store, a key a line, from the owners of the partitions. Raises
    OSError."""
    cluster = _cluster(world)
    written = []
    for store in world.stores:
        keys = sorted(
            key
            for partition, owner in enumerate(cluster.owners)
            for key in _keys(world.servers[owner], store.name, partition)
        )
        path = directory / f"{store.name}.keys"
        path.write_text("".join(f"{key}\n" for key in keys[:limit]))
        written.append(path)
    return tuple(written)


def check_keys(world: World, directory: Path) -> EntropyReport:
    """Looks for each saved key on every node that the metadata of now name for it. Raises OSError."""
    cluster = _cluster(world)
    checked, missing = 0, []
    for store in world.stores:
        for key in (directory / f"{store.name}.keys").read_text().splitlines():
            partition = world.servers[cluster.nodes[0]].partition(key)
            for node in cluster.replicas(partition, store.replication):
                checked += 1
                if key not in _keys(world.servers[node], store.name, partition):
                    missing.append((store.name, key, node))
    return EntropyReport(checked, tuple(missing))


def _cluster(world: World) -> ClusterMetadata:
    return next(iter(world.servers.values())).metadata.cluster


def _keys(server: Server, store: str, partition: int) -> tuple[str, ...]:
    held = server.read_write.get(store)
    return server.read_only[store].keys(partition) if held is None else held.keys(partition)
