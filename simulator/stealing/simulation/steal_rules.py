"""Rules that hold after each step of a simulated rebalancing, and when it is over.

Besides, keys saved before a rebalancing, one file for each store, with a check that they are in their places
afterwards.
Source: VOL-082, VOL-083.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rebalance.groups.calls.key_hash import partition_of
from simulator.stealing.core.steal_checks import ServerState
from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreKind
from simulator.stealing.simulation.controller import Controller
from simulator.stealing.simulation.steal_server import Server
from simulator.stealing.simulation.steal_workload import History
from simulator.stealing.simulation.steal_world import StealTrace, World
from simulator.stealing.simulation.unit_view import JobStatus


class StealRuleBrokenError(AssertionError):
    """Names the rule, and what was found."""


class StealRules:
    """A ``Watcher`` of one controller at a time. ``peak``: units that ran at once at most."""

    def __init__(self, controller: Controller) -> None:
        self.peak = 0
        self.watch(controller)

    def watch(self, controller: Controller) -> None:
        self._controller = controller
        self._progress = 0

    def noted(self, world: World, line: StealTrace) -> None:
        if line.kind == "Bug":
            raise StealRuleBrokenError(f"node {line.node}: {line.detail}")
        running = 0
        owners = set()
        for server in world.servers.values():
            owners.add(server.metadata.cluster.owners)
            if server.is_up:
                running += self._units(server)
            self._state(server)
        self.peak = max(self.peak, running)
        if running > self._controller.options.max_parallel:
            raise StealRuleBrokenError(
                f"{running} units at once, {self._controller.options.max_parallel} allowed"
            )
        if len(owners) > 2:
            raise StealRuleBrokenError(f"{len(owners)} cluster metadata at once: {sorted(owners)}")
        done = self._controller.board.overall.done
        if done < self._progress:
            raise StealRuleBrokenError(f"progress went back from {self._progress} to {done}")
        self._progress = done

    @staticmethod
    def _units(server: Server) -> int:
        """Count the units that run; each has a donor of its own (VOL-062), and no more stores than allowed
        (VOL-063)."""
        running = [job for job in server.jobs.values() if job.view.status is JobStatus.RUNNING]
        donors = [job.unit.donor for job in running]
        if len(set(donors)) < len(donors):
            raise StealRuleBrokenError(f"node {server.node} steals twice from one of {sorted(donors)}")
        if server.copying > server.options.max_parallel_stores:
            raise StealRuleBrokenError(f"node {server.node} copies {server.copying} stores at once")
        return len(running)

    @staticmethod
    def _state(server: Server) -> None:
        """A node that steals nothing is NORMAL_SERVER, whoever steals from it (VOL-065)."""
        known = server.metadata
        steals = {unit.stealer for unit in known.steal_info}
        if steals - {server.node}:
            raise StealRuleBrokenError(f"node {server.node} has entries of the stealers {sorted(steals)}")
        state = ServerState.REBALANCING_MASTER if steals else ServerState.NORMAL_SERVER
        if known.state is not state:
            raise StealRuleBrokenError(f"node {server.node} is {known.state.value} with {known.steal_info}")


def check_rest(world: World, cluster: ClusterMetadata, history: History) -> None:
    """Check the rest after a rebalancing, or after it was taken back: ``cluster`` everywhere, no trace of it in
    any node, and every replica has everything that was acknowledged. Raises RuleBrokenError, HistoryError."""
    for server in world.servers.values():
        known = server.metadata
        if known.cluster.owners != cluster.owners:
            raise StealRuleBrokenError(
                f"node {server.node} has {known.cluster.encode()}, not {cluster.encode()}"
            )
        if known.state is not ServerState.NORMAL_SERVER or known.record is not None:
            raise StealRuleBrokenError(
                f"node {server.node} is {known.state.value}, unfinished: {known.unfinished}"
            )
        if server.locked_donors or server.streams or server.copies or server.copying:
            raise StealRuleBrokenError(f"node {server.node} has locks or streams of units that ended")
    for (store, key), versions in history.acknowledged.items():
        partition = partition_of(key, len(cluster.owners))
        for node in cluster.replicas(partition, world.servers[cluster.nodes[0]].stores[store].replication):
            stored = world.servers[node].read_write[store].get(partition, key)
            history.check_read((store, key), versions, stored)
    _check_static(world, cluster)


def _check_static(world: World, cluster: ClusterMetadata) -> None:
    """Every replica of a read-only store has all of its files, and no node keeps more than what it serves."""
    for store in world.stores:
        if store.kind is not StoreKind.READ_ONLY:
            continue
        for key, value in world.static[store.name].items():
            partition = partition_of(key, len(cluster.owners))
            for node in cluster.replicas(partition, store.replication):
                stored = world.servers[node].read_only[store.name].get(partition, key)
                if stored != value:
                    raise StealRuleBrokenError(f"node {node}: {store.name} {key} is {stored!r}, not {value!r}")
        for server in world.servers.values():
            held = server.read_only[store.name]
            if held.directories != (held.current,):
                raise StealRuleBrokenError(
                    f"node {server.node} has directories {held.directories} of {store.name}"
                )


KEYS_MAX = 1_000
"""Most keys of each store; taken from all partitions alike, by key."""


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
