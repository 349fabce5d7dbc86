"""What a query sees: one catalog version and one metastore revision, neither of which changes any more.

Made in the event loop, read in a worker thread. Both numbers are shown (``SYSTEM.SNAPSHOT``), because the two
stores are read one after the other: the keyspace is never older than what the catalog's version had published
when it was read, and may already know a later one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from app.contract.columns import Facts
from app.core.alert_state import Alert
from app.sql.statements.query_line import QueryEntry
from app.views.keyspace_views import KeyspaceViews
from app.views.placed_zone import PlacedZone
from app.views.sight import MetastoreSilence
from app.views.store_copies import ServerCopies
from app.views.view_bodies import ZoneSizes, zone_facts
from catalog.core.audit import AuditRecord
from catalog.core.quorum import consensus_size, default_quorum, effective_replicas
from catalog.core.snapshot import CatalogSnapshot, data_nodes_of
from catalog.core.zone import Node, Zone, ZoneId
from catalog.filters.json_path import JSON_PATH
from catalog.ports import VersionRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import read
from rebalance.core.keyspace.records import ConfigurationRecord, NodeRecord
from rebalance.core.moves.drain import Drain
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.topology.node_presence import Topology, living, observe
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.store.core.ownership import StoreOwnership


class ReadCancelledError(Exception):
    """The query was given up while its views were built."""


@dataclass(frozen=True)
class SystemSnapshot:
    """``events`` is the catalog's history up to its version, ``audit`` who changed what, the newest first; each
    is empty when no view needs it. ``queries`` are those of this server."""

    catalog: CatalogSnapshot
    keys: KeyspaceCopy
    keyspace: Keyspace
    taken_at_ms: int
    events: tuple[VersionRecord, ...] = ()
    audit: tuple[AuditRecord, ...] = ()
    queries: tuple[QueryEntry, ...] = ()
    given_up: threading.Event = field(default_factory=threading.Event)
    ownership: StoreOwnership | None = None
    """Of store zones, where it was read already."""
    alerts: tuple[Alert, ...] = ()
    """As this server judges them."""
    store_copies: tuple[ServerCopies, ...] = ()
    """What each store server says; empty when no view needs it."""
    seen: frozenset[ZoneId] | None = None
    """The zones that whoever asks may see; None: all, those that are gone as well."""
    silence: MetastoreSilence | None = None
    """Of the metastore; None: partitions are as the keyspace says."""
    since_ms: Callable[[PartitionId], int | None] = lambda _: None
    """See ``PartitionSight``."""
    sees_system: bool = True
    """Whether whoever asks may know who has drained a node, and why."""

    def checkpoint(self) -> None:
        """Called in loops: a thread cannot be stopped from outside. Raises ReadCancelledError."""
        if self.given_up.is_set():
            raise ReadCancelledError

    @cached_property
    def views(self) -> KeyspaceViews:
        known = self.ownership
        return KeyspaceViews(
            self.keys,
            self.keyspace,
            lambda: self.taken_at_ms,
            ownership=None if known is None else lambda: known,
        ).seen_by(self.seen)

    @cached_property
    def live(self) -> dict[str, NodeRecord]:
        return self.views.live_records()

    @cached_property
    def alive(self) -> frozenset[str]:
        return frozenset(self.live)

    @cached_property
    def topology(self) -> tuple[Node, ...]:
        """Living nodes that are not leaving."""
        return tuple(record.node for name, record in sorted(self.live.items()) if name not in self.drains)

    @cached_property
    def drains(self) -> dict[str, Drain]:
        return self.views.drains()

    @cached_property
    def presence(self) -> Topology:
        """Living nodes with their times, and those that left: the record, and what is not recorded yet."""
        topology = read(self.keys.get(self.keyspace.topology), Topology.decode)
        recorded = topology if isinstance(topology, Topology) else Topology()
        live, _ = living(self.keys.below(self.keyspace.nodes), self.keyspace.nodes, recorded)
        return observe(recorded, live, self.taken_at_ms, drained=self.drains)

    def sizes(self, zone: Zone) -> ZoneSizes:
        """An explicit quorum is the catalog's; a derived one is the metastore's, which only ever grows."""
        stored = self.views.data_nodes(zone.zone_id)
        nodes = stored.nodes if stored is not None else data_nodes_of(zone, self.topology, JSON_PATH)
        derived = stored.quorum if stored is not None else default_quorum(zone.replicas, len(nodes))
        quorum = derived if zone.quorum_size is None else zone.quorum_size
        return ZoneSizes(
            nodes,
            quorum,
            effective_replicas(zone.replicas, len(nodes)),
            consensus_size(quorum, zone.replicas, len(nodes)),
        )

    def zone_facts(self, zone: Zone) -> Facts:
        state = self.views.zone_state(zone.zone_id)
        return zone_facts(zone, self.sizes(zone), self.catalog, state, self.catalog.version)

    def placed(self, zone: Zone) -> PlacedZone | None:
        """The newest target, if it covers the zone as the catalog has it."""
        placed = self.views.placed(zone.zone_id)
        return placed if placed is not None and placed.pointer.partitions == zone.partitions else None

    def partitions(self, zone: Zone) -> Iterator[tuple[int, PartitionView]]:
        placed = self.placed(zone)
        for number in range(zone.partitions):
            self.checkpoint()
            view, _ = self.views.view(PartitionId(zone.zone_id, number), placed)
            yield number, view

    def partition_bytes(self, zone: Zone) -> npt.NDArray[np.int64]:
        """What a copy of each partition takes on disk, as its leader's node last said: int64 [P], 0: not
        known."""
        sizes = np.zeros(zone.partitions, dtype=np.int64)
        for number in range(zone.partitions):
            self.checkpoint()
            item = self.keys.get(self.keyspace.partition(PartitionId(zone.zone_id, number)).configuration)
            configuration = read(item, ConfigurationRecord.decode)
            if isinstance(configuration, ConfigurationRecord):
                sizes[number] = configuration.size_bytes
        return sizes

    @cached_property
    def default_zone(self) -> Zone | None:
        """The zone of tables that name none; None until there is one."""
        return self.catalog.default_zone
