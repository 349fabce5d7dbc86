"""The keyspace: where each fact lives in the metastore (formats: ``rebalance/tech-notes/keyspace.md``)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.epoch import FIRST_EPOCH, split_event_revision
from rebalance.core.partition_maps.topology_version import TopologyVersion

K = TypeVar("K")


class PartitionId(NamedTuple):
    """Identifies one replication group: a partition of a zone. A key of many dictionaries, so it is a tuple,
    which hashes fast."""

    zone_id: ZoneId
    partition: int

    def __str__(self) -> str:
        return f"{self.zone_id}/{self.partition}"


ASSIGNING = ("assignments/stable", "assignments/pending")
"""Fields of a partition that say which nodes hold it, or are to hold it."""


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """The keys of one partition, spelt out once. ``group`` and ``configuration`` belong to the members."""

    stable: str
    pending: str
    planned: str
    trigger: str
    group: str
    configuration: str
    lock: str


class KeyBelow:
    """A key, or the common beginning of some, below the prefix of its keyspace."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, keyspace: Keyspace, _owner: type[Keyspace]) -> str:
        return f"{keyspace.prefix}{self._path}"


class KeyOf(Generic[K]):
    """The keys below one prefix that are named by a node, a zone or the like."""

    def __init__(self, path: str, end: str = "") -> None:
        self._path, self._end = path, end

    def __get__(self, keyspace: Keyspace, _owner: type[Keyspace]) -> Callable[[K], str]:
        return lambda name: f"{keyspace.prefix}{self._path}{name}{self._end}"


@dataclass(frozen=True, slots=True)
class Keyspace:
    """All keys under one prefix; ``prefix`` ends in a slash."""

    prefix: str = "zonekeeper/"

    intents = KeyBelow("intents/")
    nodes = KeyBelow("nodes/")
    partitions = KeyBelow("partition/")
    members = KeyBelow("members/")
    pointers = KeyBelow("target_pointer/")
    all_data_nodes = KeyBelow("data_nodes/")
    # Single partition maps, one key a node.
    node_maps = KeyBelow("partition_map/nodes/")
    # Full partition maps: a pointer and chunks for each zone.
    zone_maps = KeyBelow("partition_map/zones/")
    topology = KeyBelow("topology")
    epoch = KeyBelow("epoch")
    # What the catalog remembers the metastore by.
    mark = KeyBelow("mark")
    # What data directories name the installation by.
    installation = KeyBelow("installation")
    # How many partitions may move at once, and what is paused.
    limits = KeyBelow("rebalance/limits")
    # A build of a lower release level was seen, until so long ago that none comes back by itself.
    older_build = KeyBelow("older")
    # One key for each operation, by its id; of a zone all begin with its id and a hyphen.
    operations = KeyBelow("operations/")

    operation = KeyOf[str]("operations/")
    zone_operations = KeyOf[ZoneId]("operations/", "-")
    drains = KeyBelow("drains/")

    # There while the node is leaving.
    drain = KeyOf[str]("drains/")
    removed_nodes = KeyBelow("removed/")

    # What the node was before is not used again.
    removed_node = KeyOf[str]("removed/")
    # Written with every admission under limits. It is beside the partitions: a watch of them brings it
    # together with what was admitted.
    admissions = KeyBelow("partition/admissions")
    controller_leader = KeyBelow("leader/controller")
    engine_status = KeyBelow("leader/engine")
    # What the server that sends alerts has judged, and which one that is.
    alerts = KeyBelow("alerts")
    ended_alerts = KeyBelow("ended-alerts")
    alert_sender = KeyBelow("leader/alerts")
    # Alerts that nobody is told of for a time, one key for each set of them.
    silences = KeyBelow("silences/")

    silence = KeyOf[str]("silences/")
    processes = KeyBelow("processes/")

    # What goes wrong inside that process.
    process = KeyOf[str]("processes/")
    # Changes that do not succeed, one key a node.
    failures = KeyBelow("failures/")

    failures_of = KeyOf[str]("failures/")
    # Changed levels of log lines, one key a module, each with an end.
    log_levels = KeyBelow("logging/")

    log_level = KeyOf[str]("logging/")
    fences = KeyBelow("fences/")

    # How long members of HIGH_AVAILABILITY zones serve there unheard; it outlives the lease.
    fence = KeyOf[str]("fences/")
    node = KeyOf[str]("nodes/")
    intent = KeyOf[ZoneId]("intents/")
    data_nodes = KeyOf[ZoneId]("data_nodes/")
    data_nodes_history = KeyOf[ZoneId]("data_nodes_history/")
    target_pointer = KeyOf[ZoneId]("target_pointer/")
    # The pointer of the target before the newest one, which is stored as long.
    target_before = KeyOf[ZoneId]("target_before/")
    # How large the zone's partitions were when its newest target was named.
    copy_sizes = KeyOf[ZoneId]("copy_sizes/")
    node_map = KeyOf[str]("partition_map/nodes/")
    zone_map = KeyOf[ZoneId]("partition_map/zones/", "/map")

    def zone_map_chunks(self, zone_id: ZoneId, sequence: int = 0) -> str:
        """Prefix of the chunks of one map; their order is that of the maps."""
        return f"{self.zone_maps}{zone_id}/chunks/{sequence:016d}/"

    zone_targets = KeyOf[ZoneId]("targets/", "/")

    def target(self, zone_id: ZoneId, event_revision: int) -> str:
        """Prefix of a stored target's chunks, whose order is that of the events of the zone."""
        epoch, revision = split_event_revision(event_revision)
        later = "" if epoch == FIRST_EPOCH else f"e{epoch:05d}-"
        return f"{self.zone_targets(zone_id)}{later}{revision:012d}/"

    def target_chunk(self, zone_id: ZoneId, event_revision: int, chunk: int) -> str:
        return f"{self.target(zone_id, event_revision)}{chunk:05d}"

    zone_partitions = KeyOf[ZoneId]("partition/", "/")
    zone_members = KeyOf[ZoneId]("members/", "/")

    def member(self, partition: PartitionId, node: str) -> str:
        return f"{self.members}{partition.zone_id}/{partition.partition}/{node}"

    def partition(self, partition: PartitionId) -> PartitionKeys:
        return _partition_keys(self.prefix, partition)

    def restarts(self, partition: PartitionId) -> str:
        """KeyBelow it a key for each node whose member is asked to restart."""
        return f"{self.partitions}{partition.zone_id}/{partition.partition}/restart/"

    def kept_copies(self, partition: PartitionId) -> str:
        """KeyBelow it a key for each node that keeps the copy of a member that has left: ``<node>``, and
        ``<node>@<generation>`` for one whose group was given up."""
        return f"{self.partitions}{partition.zone_id}/{partition.partition}/kept/"

    def kept(self, partition: PartitionId, node: str, generation: int | None = None) -> str:
        """``generation``: of a life of the group that was given up. Its copies are kept beside later ones."""
        name = node if generation is None else f"{node}@{generation}"
        return f"{self.kept_copies(partition)}{name}"

    all_given_up = KeyBelow("given_up/")

    zone_given_up = KeyOf[ZoneId]("given_up/", "/")

    def given_up(self, partition: PartitionId) -> str:
        """Joiners that the partition's move went on without. It is beside the partitions: controllers watch all
        of them, and there are few."""
        return f"{self.all_given_up}{partition.zone_id}/{partition.partition}"

    def restart(self, partition: PartitionId, node: str) -> str:
        return f"{self.restarts(partition)}{node}"

    # Store servers (rebalance/tech-notes/store.md).
    exchange = KeyBelow("exchange/")
    exchange_events = KeyBelow("exchange/events/")
    exchange_ring = KeyBelow("exchange/ring")
    exchange_servers = KeyBelow("exchange/servers/")
    exchange_evictions = KeyBelow("exchange/evicting/")
    exchange_suspects = KeyBelow("exchange/suspects/")
    exchange_results = KeyBelow("exchange/results/")
    last_result = KeyBelow("exchange/last_result")
    exchange_log = KeyBelow("exchange/log/")
    folded_results = KeyBelow("exchange/folded_results")

    def exchange_event(self, number: int) -> str:
        return f"{self.exchange_events}{number:012d}"

    def store_server(self, name: str, incarnation: str) -> str:
        """Key of the heartbeats of this incarnation of a store server."""
        return f"{self.exchange_servers}{name}/{incarnation}"

    # It outlives the server's incarnations.
    finished = KeyOf[str]("exchange/finished/")
    # There while the ring is about to remove the server.
    eviction = KeyOf[str]("exchange/evicting/")

    def suspicion(self, who: str, whom: str) -> str:
        return f"{self.exchange_suspects}{who}/{whom}"

    def exchange_result(self, exchange: TopologyVersion) -> str:
        return f"{self.exchange_results}{exchange.major:010d}.{exchange.minor:010d}"

    def logged_exchange(self, exchange: TopologyVersion) -> str:
        """Key of an exchange in the log for people; the last key is that of the newest."""
        return f"{self.exchange_log}{exchange.major:010d}.{exchange.minor:010d}"

    def exchange_result_parts(self, exchange: TopologyVersion, parts: str) -> str:
        """Prefix of the chunks of one writer."""
        return f"{self.exchange_result(exchange)}/{parts}/"

    def folded_result_parts(self, parts: str) -> str:
        """Prefix of the chunks of one folding; "" for those of all."""
        return f"{self.folded_results}/{parts}/" if parts else f"{self.folded_results}/"

    def parse_partition(self, key: str) -> tuple[PartitionId, str] | None:
        """``(partition, rest)`` of a key below ``partition/``, as ("assignments/stable"); else None."""
        return _parsed(key, self.prefix, "partition/")

    def parse_member(self, key: str) -> tuple[PartitionId, str] | None:
        """``(partition, node)`` of a key below ``members/``; else None."""
        return _parsed(key, self.prefix, "members/")

    def parse_given_up(self, key: str) -> PartitionId | None:
        """The partition of a key below ``given_up/``; else None."""
        parts = _parsed(f"{key}/-", self.prefix, "given_up/")
        return parts[0] if parts is not None else None

    def parse_intent(self, key: str) -> ZoneId | None:
        """The zone of a key below ``intents/``; None for what no build writes there."""
        match = _ZONE.fullmatch(key, len(self.intents)) if key.startswith(self.intents) else None
        return None if match is None else ZoneId(int(match[0]))


KEYS_REMEMBERED = 16_384
"""The same few keys are looked at again and again."""

# As they are written: other spellings of a number would be other keys of the same thing.
_ZONE = re.compile(r"0|[1-9][0-9]{0,17}")
_PARTITION = re.compile(r"(0|[1-9][0-9]{0,17})/(0|[1-9][0-9]{0,8})/(.+)")


@lru_cache(KEYS_REMEMBERED)
def _partition_keys(prefix: str, partition: PartitionId) -> PartitionKeys:
    base = f"{prefix}partition/{partition.zone_id}/{partition.partition}/"
    return PartitionKeys(
        stable=f"{base}{ASSIGNING[0]}",
        pending=f"{base}{ASSIGNING[1]}",
        planned=f"{base}assignments/planned",
        trigger=f"{base}assignments/change.trigger.revision",
        group=f"{base}group",
        configuration=f"{base}configuration",
        lock=f"{base}assignments/pending.lock",
    )


@lru_cache(KEYS_REMEMBERED)
def _parsed(key: str, prefix: str, part: str) -> tuple[PartitionId, str] | None:
    prefix = f"{prefix}{part}"
    match = _PARTITION.fullmatch(key, len(prefix)) if key.startswith(prefix) else None
    return None if match is None else (PartitionId(ZoneId(int(match[1])), int(match[2])), match[3])
