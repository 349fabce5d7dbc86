"""Members that a node starts on its own when its process starts, those that wait for the metastore, and the
notes of it.

A member whose group was founded anew while the node was away must not run: together with others that come
back it would be a majority of a group that nobody counts on. The metastore tells; while it is silent nobody
does, so members wait. An operator may vouch for zones of STRONG_CONSISTENCY, whose groups are founded anew by
hand only; those of HIGH_AVAILABILITY do it by themselves. Notes of zones lie beside their copies
(``ZoneNotes``, ``StrongZones``): they stay when the metastore goes back in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from catalog.core.zone import NO_ZONE, ConsistencyMode, ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read, unreadable_among
from rebalance.core.keyspace.records import GroupRecord, KeptRecord
from rebalance.core.keyspace.txn import KeyValue
from rebalance.hosting.private_files import read_note, write_note
from rebalance.metastore.guarded_update import read_together
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.replica_decision import is_kept, why_fenced
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

_NOTES_FILE = "zones.json"


class ZoneNotes:
    """``zones.json`` in the data directory. ``highest``: of the zones that the node was ever to hold something
    of, as a voter, a learner or a store server's copy. For each partition of which it has a member or a mirror
    the token of the zone's life; a copy without one was made by an earlier build, and is of any life."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / _NOTES_FILE
        # The members that lie beside damaged notes are noted when the node begins.
        self.highest, self._lives = read_note(self._path, _zones_in, (NO_ZONE, dict[str, str]()))

    def holds(self, zone_id: ZoneId) -> None:
        """Noted before anything of the zone is on the disk."""
        if zone_id > self.highest:
            self.highest = zone_id
            self._write()

    def note(self, partition: PartitionId, intent: ZoneIntent | None) -> None:
        """Note that what the node has of the partition is of the life that ``intent`` names, unless one is
        noted."""
        life = intent.zone.life if intent is not None and not intent.dropped else ""
        if life and str(partition) not in self._lives:
            self._lives[str(partition)] = life
            self._write()

    def forget(self, partition: PartitionId) -> None:
        """Forget the life of a partition of which nothing is here any more."""
        if self._lives.pop(str(partition), None) is not None:
            self._write()

    def why_foreign(self, partition: PartitionId, intent: ZoneIntent | None) -> str:
        """The cause for which what is here of the partition must be left alone; empty: it is the zone's, as far
        as anybody can tell."""
        held = self._lives.get(str(partition), "")
        if intent is None or not held or intent.zone.life in ("", held):
            return ""
        return Cause.FOREIGN_COPY.text(
            f"what {self._path.parent} has of {partition} is of a lost zone of this id (life {held}), "
            f"and not of {intent.zone.name} (life {intent.zone.life})"
        )

    def _write(self) -> None:
        write_note(self._path, highest=self.highest, lives=self._lives)


def _zones_in(note: dict[str, Any]) -> tuple[ZoneId, dict[str, str]]:
    lives = {str(name): str(life) for name, life in note.get("lives", {}).items()}
    return ZoneId(int(note["highest"])), lives


T = TypeVar("T")

ASK_FIRST_S = 1.5
_FILE = "strong_zones.json"


class StrongZones:
    """Zones of STRONG_CONSISTENCY that the node has heard of, also in earlier runs. A zone keeps its mode. One
    that is not among them may be of HIGH_AVAILABILITY: perhaps nothing was read of it yet."""

    def __init__(self, data_dir: Path, metastore: Metastore, keyspace: Keyspace) -> None:
        self._file = data_dir / _FILE
        self._keyspace = keyspace
        self.intents = KeyspaceMirror(metastore, keyspace.intents)
        """Intents of all zones; ``run`` keeps it current."""
        self.intents.listen(self._on_intents)
        self._known: frozenset[ZoneId] = read_note(
            self._file, lambda note: frozenset(map(ZoneId, note["zones"])), frozenset()
        )
        self._decoded: dict[ZoneId, tuple[KeyValue | None, ZoneIntent | None]] = {}
        self._is_noted = True
        self._listeners: list[Callable[[], None]] = []

    def __contains__(self, zone_id: object) -> bool:
        return zone_id in self._known

    def listen(self, listener: Callable[[], None]) -> None:
        """Called after the zones have changed."""
        self._listeners.append(listener)

    def intent(self, zone_id: ZoneId) -> ZoneIntent | None:
        """Return the catalog's intent for any zone; None: nothing is known of it, or it cannot be read. Each
        round of each partition asks, so it is decoded once."""
        item = self.intents.get(self._keyspace.intent(zone_id))
        known = self._decoded.get(zone_id)
        if known is None or known[0] is not item:
            intent = read(item, ZoneIntent.decode)
            known = self._decoded[zone_id] = item, None if isinstance(intent, Unreadable) else intent
        return known[1]

    def _on_intents(self, _changed: frozenset[str]) -> None:
        before, strong = self._known, set[ZoneId]()
        for item in self.intents.below(self._keyspace.intents):
            intent = read(item, ZoneIntent.decode)
            if isinstance(intent, Unreadable):
                # It is what it was: a zone keeps its mode.
                strong |= {zone for zone in before if self._keyspace.intent(zone) == item.key}
            elif intent.zone.consistency_mode is ConsistencyMode.STRONG_CONSISTENCY:
                strong.add(intent.zone.zone_id)
        known = frozenset(strong)
        if known != before or not self._is_noted:
            # On a full disk members of zones that are not noted wait at the next start.
            self._is_noted = write_note(self._file, zones=sorted(known))
        if known == before:
            return
        self._known = known
        for listener in self._listeners:
            listener()


@dataclass(eq=False)
class MemberStarts:
    """Starts of one node's members. ``without_metastore``: members of zones that are known to be of
    STRONG_CONSISTENCY start also where the metastore is silent."""

    node: NodeContext
    unreadable: UnreadableLog
    strong: StrongZones
    notes: ZoneNotes
    _: KW_ONLY
    without_metastore: bool

    async def restart_members(self) -> None:
        """Start the members that may run now, once, when the node's process starts. The others start in later
        rounds, as their keys say."""
        partitions = sorted(self.node.host.partitions(), key=str)
        may_run: set[PartitionId] = set()
        unasked: Sequence[PartitionId] = ()
        try:
            async with asyncio.timeout(ASK_FIRST_S):
                for index, partition in enumerate(partitions):
                    unasked = partitions[index:]
                    if not await self._why_fenced(partition):
                        may_run.add(partition)
            unasked = ()
        except (TimeoutError, MetastoreError) as error:
            trusted = [rest for rest in unasked if self.without_metastore and rest.zone_id in self.strong]
            may_run.update(trusted)
            waiting = len(unasked) - len(trusted)
            log.warning("the metastore is silent", unasked=len(trusted), waiting=waiting, error=repr(error))
        await asyncio.gather(
            *(self.node.host.restart(partition) for partition in partitions if partition in may_run)
        )

    async def clearance(self, partition: PartitionId, generation: int) -> str:
        """Return why a member with data of ``generation`` must not run, as the metastore says now; empty: it
        may. A key that cannot be read is no permission here. Raises MetastoreError."""
        return await self._why_fenced(partition, generation)

    async def _why_fenced(self, partition: PartitionId, generation: int | None = None) -> str:
        """Return why it must not run: its group was given up while this node was away, or its copy is only
        kept, or of a lost zone. ``generation`` None: that of the member, for which keys that cannot be read say
        nothing."""
        keyspace, keys = self.node.keyspace, self.node.keyspace.partition(partition)
        names = keys.pending, keys.group, keyspace.kept(partition, self.node.name)
        (pending, group, copy, intent), _ = await read_together(
            self.node.metastore, *names, keyspace.intent(partition.zone_id)
        )
        if foreign := self.notes.why_foreign(partition, self._known(partition, intent, ZoneIntent.decode)):
            return foreign
        status = await self.node.host.status(partition)
        if status is None:
            return ""
        if generation is not None:
            records = (read(pending, Assignments.decode), read(group, GroupRecord.decode))
            if (unreadable := unreadable_among(records)) is not None:
                return Cause.FENCED.text(unreadable.cause)
        of_copy = self._known(partition, copy, KeptRecord.decode)
        if of_copy and is_kept(of_copy, status):
            return Cause.FENCED.text("its copy is only kept")
        return why_fenced(
            self.node.name,
            status.generation if generation is None else generation,
            self._known(partition, pending, Assignments.decode),
            self._known(partition, group, GroupRecord.decode),
        )

    def _known(self, partition: PartitionId, item: KeyValue | None, decode: Callable[[bytes], T]) -> T | None:
        """A key that cannot be read says nothing: what has run before runs on."""
        value = read(item, decode)
        if isinstance(value, Unreadable):
            self.unreadable.waits(partition, value)
            return None
        return value
