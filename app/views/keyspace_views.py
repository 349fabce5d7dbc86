"""Zones, partitions, nodes and progress as clients see them: read models over the keyspace mirror.

Pure functions of a mirror; a mirror holds one revision, so each answer is consistent in itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain

from app.contract.columns import Facts, body_of
from app.contract.nodes import NodeBody
from app.contract.zones import FailureBody, PartitionBody, PartitionDetail, PhaseBody, Progress, ZoneBody
from app.views.holdings import counts_on, held_members
from app.views.unreadable_keys import (
    decoded_data_nodes,
    unreadable_of_cluster,
    unreadable_of_zone,
)
from app.views.view_bodies import (
    ZoneSizes,
    copy_counts,
    drain_body,
    kept_copies,
    member_body,
    progress_body,
    roles,
    status_body,
    store_copies,
    zone_facts,
)
from app.views.waits import WaitCauses
from catalog.core.versions import CatalogSnapshot
from catalog.core.zone import STORE_ENGINE, Zone, ZoneId, ZoneIntent, zone_engine
from catalog.core.zone_options import option_in_the_way
from rebalance.controllers.clock import WallClock
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.change_lock import PendingLock
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.assignments.target import (
    INDEX_BYTES,
    StoredTarget,
    TargetIncompleteError,
    TargetPointer,
    available_target,
    is_target_of,
)
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import (
    RecordNotReadableError,
    RecordReader,
    Unreadable,
    read,
    readable,
    unreadable_among,
)
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    Failure,
    FailureRecord,
    GivenUpRecord,
    GroupRecord,
    KeptRecord,
    MemberRecord,
    NodeRecord,
    RestartRecord,
    Stage,
    newest,
)
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.moves.drain import Drain
from rebalance.core.moves.move_status import (
    PartitionView,
    StoreOwners,
    given_up_of,
    partition_status,
    phases_of,
)
from rebalance.core.topology.data_nodes import DataNodes, replica_counts
from rebalance.core.topology.node_presence import Topology
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.store.core.ownership import StoreOwnership


@dataclass(frozen=True, slots=True)
class PlacedZone:
    """A zone's newest target as the mirror has it; ``stored`` is whole. Rows are decoded on demand: a zone may
    have many partitions, and most questions are about one. ``quorum``: the zone's explicit QUORUM SIZE; 0: it
    names none."""

    stored: StoredTarget
    quorum: int = 0

    @property
    def pointer(self) -> TargetPointer:
        return self.stored.pointer

    @property
    def targets(self) -> tuple[Assignments, ...]:
        return tuple(self.stored.assignments())

    def placement(self, number: int) -> Assignments | None:
        """Assignments that the zone asks for, nodes that have left included; None: it has no partition of that
        number."""
        if number >= self.pointer.partitions:
            return None
        return self.stored.assignments_of(self.stored.row(number))

    def target(self, placement: Assignments | None, stable: Assignments | None) -> Assignments | None:
        """Assignments that the partition of this ``placement`` is to have, as the guarded write takes them."""
        return available_target(placement, stable, self.pointer.gone) if placement is not None else None


class KeyspaceViews:
    """Read models over one mirror of the whole keyspace, or over a copy of it (then in any one thread).

    ``now_ms`` decides which pauses hold; by default the system's clock. ``waits``: causes counted over another
    copy. ``ownership``: that of store zones, where it was read already. ``since_ms``: ``MirrorFreshness`` has
    it."""

    def __init__(
        self,
        mirror: KeyspaceCopy,
        keyspace: Keyspace,
        now_ms: Callable[[], int] | None = None,
        waits: WaitCauses | None = None,
        ownership: Callable[[], StoreOwnership] | None = None,
        since_ms: Callable[[PartitionId], int | None] = lambda _: None,
    ) -> None:
        ring = RingReader(mirror, keyspace)
        self._mirror = mirror
        self._keyspace = keyspace
        self._waits = waits or WaitCauses(mirror, keyspace, now_ms or WallClock().now_ms)
        self._decoded: dict[ZoneId, tuple[tuple[int, int], PlacedZone]] = {}
        self._ownership = ownership or (lambda: ring.shown)
        self._copies: tuple[StoreOwnership | None, Counter[str]] = (None, Counter())
        self._engines: tuple[int, dict[ZoneId, str]] = (-1, {})
        self._since_ms = since_ms
        self._seen: Collection[ZoneId] | None = None

    def seen_by(self, zone_ids: Collection[ZoneId] | None) -> KeyspaceViews:
        """The same views for a caller who sees these zones: causes of waits name no other zone. None: all."""
        views = copy(self)
        views._seen = zone_ids
        return views

    @property
    def ownership(self) -> StoreOwnership:
        """Owners of the partitions of store zones."""
        return self._ownership()

    def is_store(self, zone_id: ZoneId) -> bool:
        """True if store servers keep the zone's copies, or will once it is placed."""
        if self.ownership.has(zone_id):
            return True
        revision = self._mirror.revision
        if self._engines[0] != revision:
            self._engines = revision, {}
        engines = self._engines[1]
        if zone_id not in engines:
            intent = self.intent(zone_id)
            nodes = (record.node for record in self.live_records().values())
            engines[zone_id] = zone_engine(intent.zone, nodes) if intent is not None else ""
        return engines[zone_id] == STORE_ENGINE

    @property
    def keyspace(self) -> Keyspace:
        return self._keyspace

    def nodes(self) -> list[NodeBody]:
        return [body_of(NodeBody, facts) for facts in self.node_facts()]

    def node_facts(self) -> Iterator[Facts]:
        """Living nodes, and those that are gone but have records, or hold or should hold replicas."""
        records, drains, alive = self.live_records(), self.drains(), self.alive()
        members = held_members(self._mirror, self._keyspace, alive)
        copies = self.store_copies()
        stored = (read(item, decoded_data_nodes) for item in self._mirror.below(self._keyspace.all_data_nodes))
        chosen = (nodes.nodes for nodes in stored if not isinstance(nodes, Unreadable))
        known = {*alive, *members, *copies, *drains, *chain.from_iterable(chosen)}
        for name in sorted(known):
            held = {"members": members[name], "copies": copies[name]}
            drain = drain_body(drains[name], sum(held.values())) if name in drains else None
            values = {"name": name, "alive": name in alive, **held, "drain": drain}
            yield Facts(records.get(name), values)

    def store_copies(self) -> Counter[str]:
        """Count the copies of partitions of store zones by node."""
        ownership = self.ownership
        if self._copies[0] is not ownership:
            self._copies = ownership, ownership.copies()
        return self._copies[1]

    def alive(self) -> frozenset[str]:
        """Names of the nodes whose lease lives, whether their records can be read or not."""
        prefix = self._keyspace.nodes
        return frozenset(item.key.removeprefix(prefix) for item in self._mirror.below(prefix))

    def unreadable(self) -> list[Unreadable]:
        """Keys of the whole cluster that cannot be read (``unreadable_keys``)."""
        return unreadable_of_cluster(self._mirror, self._keyspace)

    def may_rebalance(self) -> bool:
        """True if statements may move data (VOL-097), as they may while no limit says otherwise."""
        return Limits.of(self._mirror.get(self._keyspace.limits)).rebalancing

    def live_records(self) -> dict[str, NodeRecord]:
        """Records of living nodes by name, without those that cannot be read."""
        records = (read(item, NodeRecord.decode) for item in self._mirror.below(self._keyspace.nodes))
        return {record.node.name: record for record in records if not isinstance(record, Unreadable)}

    def drains(self) -> dict[str, Drain]:
        """Nodes that are leaving, by name; for a mark that cannot be read the reason says so."""
        prefix, drains = self._keyspace.drains, {}
        for item in self._mirror.below(prefix):
            mark = read(item, Drain.decode)
            name = item.key.removeprefix(prefix)
            drains[name] = Drain("", mark.cause, 0) if isinstance(mark, Unreadable) else mark
        return drains

    def data_nodes(self, zone_id: ZoneId) -> DataNodes | None:
        """The zone's data nodes; None, too, where they cannot be read: ``zone_unreadable`` says so."""
        nodes = read(self._mirror.get(self._keyspace.data_nodes(zone_id)), decoded_data_nodes)
        return None if isinstance(nodes, Unreadable) else nodes

    def intent(self, zone_id: ZoneId) -> ZoneIntent | None:
        """The zone's published intent; None, too, where it cannot be read: ``zone_unreadable`` says so."""
        intent = read(self._mirror.get(self._keyspace.intent(zone_id)), ZoneIntent.decode)
        return None if isinstance(intent, Unreadable) else intent

    def zone_unreadable(self, zone_id: ZoneId) -> Unreadable | None:
        """The first key of the zone as a whole that cannot be read: the zone waits for it."""
        return unreadable_of_zone(self._mirror, self._keyspace, zone_id)

    def version_of(self, zone: Zone, catalog_version: int) -> int:
        """The version that made ``zone`` what it is; the catalog's own while the intent is on its way."""
        intent = self.intent(zone.zone_id)
        return intent.version if intent is not None and intent.zone == zone else catalog_version

    def zone(self, zone: Zone, catalog: CatalogSnapshot) -> ZoneBody:
        intent = ZoneIntent(self.version_of(zone, catalog.version), zone)
        data_nodes, state = self.data_nodes(zone.zone_id), self.zone_state(zone.zone_id)
        sizes = ZoneSizes((), zone.quorum_size, 0, 0)
        if data_nodes is not None:
            sizes = ZoneSizes(data_nodes.nodes, data_nodes.quorum, *replica_counts(intent, data_nodes))
        return body_of(ZoneBody, zone_facts(zone, sizes, catalog, state, intent.version))

    def zone_state(self, zone_id: ZoneId) -> str:
        """ACTIVE, or DEACTIVATED: its files rest."""
        return "DEACTIVATED" if self.ownership.is_resting(zone_id) else "ACTIVE"

    def partitions(self, zone_id: ZoneId, count: int) -> list[PartitionBody]:
        placed, alive = self.placed(zone_id), self.alive()
        return [self._partition(PartitionId(zone_id, number), placed, alive) for number in range(count)]

    def partition(self, partition: PartitionId) -> PartitionDetail:
        """One partition with its phases and failures, which the list of all partitions leaves out."""
        placed, alive = self.placed(partition.zone_id), self.alive()
        view, trigger = self.view(partition, placed)
        phases = [body_of(PhaseBody, Facts(phase)) for phase in phases_of(view, trigger, alive)]
        told = (Facts(failure, {"node": node}) for node, failure in self.failures() if failure.of == partition)
        failures = [body_of(FailureBody, facts) for facts in told]
        return {**self._partition(partition, placed, alive), "phases": phases, "failures": failures}

    def failures(self) -> list[tuple[str, Failure]]:
        """Changes that did not succeed, the newest first, each with the node that reports it."""
        prefix, records = self._keyspace.failures, {}
        for item in self._mirror.below(prefix):
            record = read(item, FailureRecord.decode)
            if not isinstance(record, Unreadable):
                records[item.key.removeprefix(prefix)] = record
        return newest(records)

    def progress(self, zone_id: ZoneId, version: int, zone: Zone | None = None) -> Progress:
        """Progress of the zone towards catalog ``version`` (or a later one).

        ``zone`` is the catalog's, needed for an intent below ``version``: a newer intent may be on its way, or
        the version changed another zone only.
        """
        intent, unreadable = self.intent(zone_id), self.zone_unreadable(zone_id)
        if unreadable is not None:
            known = zone or (intent.zone if intent is not None else None)
            total = known.partitions if known is not None else 1
            return progress_body(zone_id, intent, Counter(WAITING=total), Counter({unreadable.cause: total}))
        if intent is None or (intent.version < version and intent.zone != zone):
            known = intent.zone if intent else zone
            total = known.partitions if known else 0
            causes = Counter({Cause.INTENT_NOT_PUBLISHED.text(): total})
            return progress_body(zone_id, intent, Counter(WAITING=total), causes)
        if intent.dropped:
            return self._progress_of_drop(zone_id, intent)
        whole = self.whole_wait(intent)
        placed = self.placed(zone_id) if not whole else None
        if placed is None:
            total = intent.zone.partitions
            return progress_body(zone_id, intent, Counter(WAITING=total), Counter({whole: total}))
        states: Counter[str] = Counter()
        causes = Counter[str]()
        copies: Counter[str] = Counter()
        alive = self.alive()
        for number in range(placed.pointer.partitions):
            view, _ = self.view(PartitionId(zone_id, number), placed)
            status = partition_status(view, alive)
            states[status.state.value] += 1
            copies.update(copy_counts(view))
            if status.cause:
                causes[status.cause] += 1
        return progress_body(zone_id, intent, states, causes, placed.pointer.engine, copies)

    def whole_wait(self, intent: ZoneIntent) -> str:
        """The cause for which all partitions of the zone wait; empty: each of them has its own."""
        zone_id = intent.zone.zone_id
        unreadable = self.zone_unreadable(zone_id)
        if unreadable is not None:
            return unreadable.cause
        data_nodes = self.data_nodes(zone_id)
        if data_nodes is not None and not data_nodes.nodes:
            living = (record.node for record in self.live_records().values())
            return Cause.NO_DATA_NODES.text(option_in_the_way(intent.zone, living))
        pointer = readable(self._mirror.get(self._keyspace.target_pointer(zone_id)), TargetPointer.decode)
        if pointer is not None and data_nodes is not None and is_target_of(pointer, intent, data_nodes):
            return "" if self.placed(zone_id) is not None else self._damaged(zone_id, pointer).cause
        epoch = read(self._mirror.get(self._keyspace.epoch), EpochRecord.decode)
        topology = read(self._mirror.get(self._keyspace.topology), Topology.decode)
        unreadable = unreadable_among((epoch, topology))
        return unreadable.cause if unreadable is not None else Cause.PLACEMENT_NOT_COMPUTED.text()

    def _damaged(self, zone_id: ZoneId, pointer: TargetPointer) -> Unreadable:
        """The target's key, with what is wrong: chunks are written before the pointer that names them, so that
        those which do not fit it are damaged."""
        prefix = self._keyspace.target(zone_id, pointer.event_revision)
        size = sum(len(chunk.value) for chunk in self._mirror.below(prefix))
        due = pointer.partitions * pointer.replicas * INDEX_BYTES
        return Unreadable(prefix, f"{size} bytes of chunks, not the {due} of the target")

    def _progress_of_drop(self, zone_id: ZoneId, intent: ZoneIntent) -> Progress:
        alive = self.alive()
        members = self._member_keys(self._keyspace.zone_members(zone_id))
        left = [member for member in members if member[1] in alive]
        total = intent.zone.partitions
        if self.ownership.has(zone_id):
            waits = Counter({Cause.CLEAN_UP.text("servers"): total})
            return progress_body(zone_id, intent, Counter(MOVING=total), waits)
        busy = {partition for partition, _, _ in left}
        causes = Counter(Cause.CLEAN_UP.text(node) for _, node, _ in left)
        states = Counter(DONE=total - len(busy), MOVING=len(busy))
        return progress_body(zone_id, intent, states, causes)

    def placed(self, zone_id: ZoneId) -> PlacedZone | None:
        """The zone's newest target, decoded once for each pointer and intent; None where there is none, or it
        cannot be read."""
        item = self._mirror.get(self._keyspace.target_pointer(zone_id))
        if item is None:
            return None
        cached, intent_item = self._decoded.get(zone_id), self._mirror.get(self._keyspace.intent(zone_id))
        revisions = item.mod_revision, intent_item.mod_revision if intent_item is not None else 0
        if cached is not None and cached[0] == revisions:
            return cached[1]
        pointer = read(item, TargetPointer.decode)
        if isinstance(pointer, Unreadable):
            return None
        below = self._mirror.below(self._keyspace.target(zone_id, pointer.event_revision))
        try:
            target = StoredTarget(pointer, tuple(chunk.value for chunk in below))
        except TargetIncompleteError:
            # A chunk is being replaced, or is not what was stored.
            return None
        intent = self.intent(zone_id)
        placed = PlacedZone(target, intent.zone.quorum_size or 0 if intent is not None else 0)
        self._decoded[zone_id] = (revisions, placed)
        return placed

    def view(self, partition: PartitionId, placed: PlacedZone | None) -> tuple[PartitionView, int | None]:
        """Read all that is known of a partition, and the event revision that it has processed."""
        keys, get = self._keyspace.partition(partition), self._mirror.get
        reads = RecordReader([])
        trigger = reads.record(get(keys.trigger), decode_trigger)
        stable = reads.record(get(keys.stable), Assignments.decode)
        pending = reads.record(get(keys.pending), Assignments.decode)
        planned = reads.record(get(keys.planned), Assignments.decode)
        reads.record(get(keys.lock), PendingLock.decode)
        group = reads.record(get(keys.group), GroupRecord.decode)
        is_opened = self.ownership.has(partition.zone_id)
        members = {} if is_opened else self._members_of_group(partition, reads)
        configuration = reads.record(get(keys.configuration), ConfigurationRecord.decode)
        given_up = reads.record(get(self._keyspace.given_up(partition)), GivenUpRecord.decode)
        placement = self._placement(placed, partition, reads)
        view = PartitionView(
            target=placed.target(placement, stable) if placed is not None else None,
            placement=placement,
            quorum=placed.quorum if placed is not None else 0,
            stable=stable,
            pending=pending,
            planned=planned,
            processed=placed is not None and trigger is not None and trigger >= placed.pointer.event_revision,
            members=members,
            configuration=configuration,
            recovered=placed is not None and trigger is not None and trigger > placed.pointer.event_revision,
            given_up=given_up_of(given_up, trigger),
            unreadable=reads.unreadable[0].cause if reads.unreadable else "",
            owners=self._owners(partition, is_group=bool(members or group or configuration)),
        )
        return self._waits.of_view(partition, view, self._mirror, self._seen), trigger

    def _members_of_group(self, partition: PartitionId, reads: RecordReader) -> dict[str, MemberRecord]:
        """Members of the partition's group by node. What else nodes keep of it is read too, so that ``reads``
        notes what cannot be read. A partition of a store zone has none of this."""
        prefix = self._keyspace.member(partition, "")
        members = {
            item.key.removeprefix(prefix): record
            for item in self._mirror.below(prefix)
            if (record := reads.record(item, MemberRecord.decode)) is not None
        }
        for item in self._mirror.below(self._keyspace.restarts(partition)):
            reads.record(item, RestartRecord.decode)
        for item in self._mirror.below(self._keyspace.kept_copies(partition)):
            reads.record(item, KeptRecord.decode)
        return members

    def _owners(self, partition: PartitionId, *, is_group: bool) -> StoreOwners | None:
        ownership, zone_id = self.ownership, partition.zone_id
        owners = ownership.owners(zone_id, partition.partition)
        if owners is not None or is_group:
            return owners
        return StoreOwners(servers=ownership.servers) if self.is_store(zone_id) else None

    @staticmethod
    def _placement(
        placed: PlacedZone | None, partition: PartitionId, reads: RecordReader
    ) -> Assignments | None:
        try:
            return placed.placement(partition.partition) if placed is not None else None
        except RecordNotReadableError as error:
            reads.unreadable.append(Unreadable(error.key or str(partition), error.reason))
            return None

    def reset_view(self, partition: PartitionId, event_revision: int, processed: int) -> PartitionView:
        """The partition as a reset of ``event_revision`` sees it: its target is its stable assignment."""
        view, _ = self.view(partition, None)
        return replace(
            view,
            target=view.stable,
            processed=processed >= event_revision,
            recovered=processed > event_revision,
        )

    def restarting(self, partition: PartitionId) -> list[str]:
        """Nodes whose members were asked to restart and have not done so yet."""
        prefix = self._keyspace.restarts(partition)
        return sorted(item.key.removeprefix(prefix) for item in self._mirror.below(prefix))

    def held_by(self, node: str) -> Iterator[PartitionId]:
        """Yield the partitions of which the node has a member (``held_members``), in key order; then those of
        which it has a copy."""
        is_alive = node in self.alive()
        for partition, name, _ in self._member_keys(self._keyspace.members):
            if name == node and (is_alive or counts_on(self._mirror, self._keyspace, partition, node)):
                yield partition
        for zone_id, number in self.ownership.held_by(node):
            yield PartitionId(zone_id, number)

    def _partition(
        self, partition: PartitionId, placed: PlacedZone | None, alive: frozenset[str]
    ) -> PartitionBody:
        view, trigger = self.view(partition, placed)
        configuration = view.configuration
        return {
            "partition": partition.partition,
            "stable": roles(view.stable),
            "pending": roles(view.pending),
            "planned": roles(view.planned),
            "target": roles(view.target),
            "trigger_revision": trigger,
            "leader": view.leader(alive) if configuration or view.owners else None,
            "term": configuration.term if configuration else None,
            "stage": (configuration.stage if configuration else Stage.NONE).value,
            "members": [member_body(view, node, alive) for node in sorted(view.members)],
            "copies": store_copies(view, alive),
            "kept": kept_copies(self._mirror, self._keyspace, partition),
            "status": status_body(partition_status(view, alive), self._since_ms(partition)),
        }

    def _member_keys(self, prefix: str) -> Iterator[tuple[PartitionId, str, KeyValue]]:
        for item in self._mirror.below(prefix):
            parsed = self._keyspace.parse_member(item.key)
            if parsed is not None:
                yield (*parsed, item)
