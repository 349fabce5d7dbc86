"""Copies on a node that nothing may run on, or delete, without more: of members that have left, or of another
life.

A copy that a member left behind is stopped, and stays on disk until somebody finalises the operation
(VOL-093), so that nothing is deleted before that is known to be good. It never serves again. The key
``partition/<zone>/<partition>/kept/<node>`` says that it is there, and survives restarts of the node.

Data of a member whose group was founded anew without it is set aside where that may have lost something. The
key ``kept/<node>@<generation>`` says that it is here, and of which life of the group; ``operations finalise``
of the reset marks it, and the node deletes the data and then the key.

Deletion is decided by the metastore itself, never by a local copy (I3-049; ``RemovalJudge``). A metastore
that was restored from an older backup knows nothing of later moves, and adopting it changes only the
catalog's part: until the group has spoken, a node that is assigned nowhere may hold the newest data.

Copies of another life of a zone's id are neither started nor deleted, and they are named (``ForeignCopies``).
Ids are never given twice, unless catalog and metastore were both restored from older backups while this node
was away: then its disk has copies of a lost zone, and the catalog a new zone of the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import structlog

from catalog.core.zone import ZoneIntent
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.keyspace.epoch import FIRST_EPOCH, EpochRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId, PartitionKeys
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.keyspace.records import ConfigurationRecord, KeptRecord, MemberRecord, MemberState
from rebalance.core.keyspace.txn import Compare, Delete, KeyValue, Put, Txn, as_read, unchanged
from rebalance.core.operations.operation import operation_id
from rebalance.metastore.guarded_update import read_together
from rebalance.nodes.member_starts import StrongZones, ZoneNotes
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.nodes.registration import Registration
from rebalance.nodes.replica_decision import is_given_up
from rebalance.ports.groups import MemberLife, MemberStatus
from rebalance.ports.metastore import Metastore
from rebalance.ports.mirrors import MirrorHost

log = structlog.get_logger(__name__)


class RemovalVerdict(Enum):
    MAY_GO = "MAY_GO"
    ASSIGNED = "ASSIGNED"  # a key names this node after all: look again
    STORE_IS_BEHIND = "STORE_IS_BEHIND"  # nothing goes on the word of a metastore that went back in time
    KEPT = "KEPT"  # assigned nowhere, and yet perhaps needed: ``why`` says for what


@dataclass(frozen=True, slots=True)
class Removal:
    """``guards``: for the write after which the data goes; they fail if stable or pending was written since.
    ``keeps``: the limits ask for copies to be kept; ``event``: the newest that the partition has taken up."""

    verdict: RemovalVerdict
    guards: tuple[Compare, ...] = ()
    why: str = ""
    keeps: bool = False
    event: int = 0


class RemovalJudge:
    """Reads both keys, the epoch, the published configuration and the intent at one revision."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, registration: Registration) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._registration = registration

    async def judge(
        self, partition: PartitionId, names: Callable[[Assignments], bool], peer_url: str | None
    ) -> Removal:
        """``names``: whether an assignment asks for what is to go. ``peer_url``: of a member that has data,
        empty for a mirror; None: there is no data to lose. Raises MetastoreError."""
        keyspace = self._keyspace
        keys = keyspace.partition(partition)
        read = (
            *(keys.stable, keys.pending, keyspace.epoch),
            *(keys.configuration, keyspace.intent(partition.zone_id)),
            *(keys.trigger, keyspace.limits),
        )
        items, revision = await read_together(self._metastore, *read)
        try:
            return self._judged(keys, items, revision, names, peer_url)
        except RecordNotReadableError as error:
            # What the key says may be that the data is needed.
            return Removal(RemovalVerdict.KEPT, why=str(error))

    def _judged(
        self,
        keys: PartitionKeys,
        items: Sequence[KeyValue | None],
        revision: int,
        names: Callable[[Assignments], bool],
        peer_url: str | None,
    ) -> Removal:
        """Raises RecordNotReadableError."""
        stable, pending, epoch, configuration, intent, trigger, limits = items
        recorded = readable(epoch, EpochRecord.decode) or EpochRecord()
        self._registration.adopted(recorded.epoch, revision)
        seen, placed = self._registration.revision_floor, (stable, pending)
        if any(names(held) for item in placed if (held := readable(item, Assignments.decode)) is not None):
            return Removal(RemovalVerdict.ASSIGNED)
        readable(intent, ZoneIntent.decode)
        if revision < seen:
            log.error(
                "the metastore went back in time, nothing is destroyed on its word",
                key=keys.stable,
                revision=revision,
                seen=seen,
            )
            return Removal(RemovalVerdict.STORE_IS_BEHIND)
        if peer_url is not None:
            why = why_kept(peer_url, epoch, configuration, intent)
            if why:
                return Removal(RemovalVerdict.KEPT, why=why)
        guards = (as_read(keys.stable, stable), as_read(keys.pending, pending))
        return Removal(
            RemovalVerdict.MAY_GO,
            guards,
            keeps=Limits.of(limits).keep_copies,
            event=readable(trigger, decode_trigger) or 0,
        )


def why_kept(
    peer_url: str, epoch: KeyValue | None, configuration: KeyValue | None, intent: KeyValue | None
) -> str:
    """Return why a member with data that is assigned nowhere is kept for now; empty: it may be destroyed.
    ``peer_url`` is empty for a mirror, which no group counts.

    After an adoption two words count: the catalog's, that the zone is dropped, and the group's own
    configuration, when its leader published it after the adoption and without this member. Raises
    RecordNotReadableError: a word that cannot be read is none.
    """
    if epoch is None or readable(epoch, EpochRecord.decode).epoch == FIRST_EPOCH:
        return ""
    if intent is not None and readable(intent, ZoneIntent.decode).dropped:
        return ""
    if configuration is None or configuration.mod_revision < epoch.mod_revision:
        return "the metastore was adopted, and the group has not published its members since"
    members = readable(configuration, ConfigurationRecord.decode).members
    if peer_url and any(member.peer_url == peer_url for member in members.values()):
        return "the group counts it among its members"
    return "" if intent is not None else "the catalog has no zone of this id"


WITHOUT_DATA = (MemberLife.RESERVED, MemberLife.DATA_LOST)
RUNS = frozenset((MemberLife.STARTING, MemberLife.RUNNING))


class KeptCopies:
    """Kept copies of one node. Methods raise MetastoreError."""

    def __init__(self, node: NodeContext, records: OwnRecords, removals: RemovalJudge) -> None:
        self._node = node
        self._records = records
        self._removals = removals

    async def keep(self, partition: PartitionId, peer_url: str, removal: Removal) -> bool:
        """The member that may go stays as a copy; False: a key that ``removal`` read was written since. Written
        down before the member stops: a node that dies in between finds it, and stops it then."""
        key = self._node.keyspace.kept(partition, self._node.name)
        put = Put(key, KeptRecord(removal.event, peer_url).encode())
        if not (await self._node.metastore.commit(Txn(removal.guards, (put,)))).succeeded:
            return False
        left_by = operation_id(partition.zone_id, removal.event)
        log.info("copy kept", partition=str(partition), left_by=left_by)
        await self._records.write_member(partition, None)
        await self._node.host.stop(partition, destroy=False)
        return True

    async def hold(self, partition: PartitionId, status: MemberStatus | None) -> None:
        """End what is left of a member whose copy is kept already. A node may have started it while the
        metastore was silent (``MemberStarts``)."""
        await self._records.write_member(partition, None)
        if status is not None and status.life in RUNS:
            await self._node.host.stop(partition, destroy=False)

    async def discard(self, view: NodePartitionView) -> None:
        """The copy goes, and then the key: a node that dies in between does it again."""
        partition, kept = view.partition, view.kept[self._node.name]
        await self._records.write_member(partition, None)
        if partition in self._node.host.partitions():
            await self._node.host.stop(partition, destroy=True)
        key = self._node.keyspace.kept(partition, self._node.name)
        await self._node.metastore.commit(Txn((unchanged(key, kept.mod_revision),), (Delete(key),)))
        log.info("kept copy destroyed", partition=str(partition))

    async def has_more(self, view: NodePartitionView, status: MemberStatus) -> bool:
        """Check that the member's data is of an earlier life of the group, and may have something that this one
        did not begin with: changes beyond the founding, or log entries of unknown fate."""
        group = view.group.value if view.group is not None else None
        if group is None or view.stable is None or not is_given_up(status.generation, group):
            return False
        if status.life in WITHOUT_DATA:
            return False
        position = await self._node.host.log_position(view.partition)
        if position is None:
            return False
        shared = group.shared_revision(status.generation)
        return not 0 < position.revision <= shared or position.undecided > 0

    async def set_aside(
        self, view: NodePartitionView, status: MemberStatus, guards: tuple[Compare, ...] = ()
    ) -> bool:
        """Set a member's data aside; False: a guard failed. The key comes first: a node that dies in between
        does the rest again."""
        partition, group = view.partition, view.group
        if group is None:
            return False
        record = KeptRecord(group.value.generation, status.endpoints.peer_url)
        put = Put(self._node.keyspace.kept(partition, self._node.name, status.generation), record.encode())
        if not (await self._node.metastore.commit(Txn(guards, (put,)))).succeeded:
            return False
        await self._records.write_member(partition, None)
        await self._node.host.set_aside(partition)
        log.warning("copy of an earlier life kept", partition=str(partition), generation=status.generation)
        return True

    async def tidy(self, view: NodePartitionView) -> None:
        """Delete what was finalised; and, once the partition is dropped, what no key speaks of any more."""
        partition, own = view.partition, f"{self._node.name}@"
        for name, kept in view.kept.items():
            if name.startswith(own) and kept.value.discard:
                await self._node.host.discard_aside(partition, int(name.removeprefix(own)))
                key = self._node.keyspace.kept_copies(partition) + name
                await self._node.metastore.commit(Txn((unchanged(key, kept.mod_revision),), (Delete(key),)))
                log.info("copy of an earlier life destroyed", partition=str(partition), name=name)
        if view.stable is not None or view.pending is not None:
            return
        generations = self._node.host.aside().get(partition, frozenset())
        if not generations:
            return
        removal = await self._removals.judge(partition, lambda _: True, "")
        for generation in generations if removal.verdict is RemovalVerdict.MAY_GO else ():
            await self._node.host.discard_aside(partition, generation)


FOREIGN_S = 10.0


@dataclass(eq=False)
class ForeignCopies:
    """Foreign copies of one node. ``notes`` say of which life its copies are."""

    node: NodeContext
    notes: ZoneNotes
    zones: StrongZones
    mirrors: MirrorHost
    records: OwnRecords

    def __post_init__(self) -> None:
        self._named: set[PartitionId] = set()

    async def left_alone(self, partition: PartitionId, *, holds: bool, is_assigned: bool) -> float | None:
        """Return when to look again; None: nothing here is of another life, and what is here is noted.
        ``holds``: the node has something of the partition. Raises MetastoreError."""
        if not holds:
            self.notes.forget(partition)
            return None
        intent = self.zones.intent(partition.zone_id)
        cause = self.notes.why_foreign(partition, intent)
        if not cause:
            self._named.discard(partition)
            self.notes.note(partition, intent)
            return None
        if partition not in self._named:
            self._named.add(partition)
            log.error("a copy of another zone is left alone", partition=str(partition), cause=cause)
        member = await self.node.host.status(partition)
        if member is not None and member.life in RUNS:
            await self.node.host.stop(partition, destroy=False)
        mirror = await self.mirrors.status(partition)
        if mirror is not None and mirror.life in RUNS:
            await self.mirrors.stop(partition, destroy=False)
        told = MemberRecord(MemberState.FAILED, "", "", reason=cause) if is_assigned else None
        await self.records.write_member(partition, told)
        return FOREIGN_S
