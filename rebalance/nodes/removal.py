"""May the data of a member or of a mirror go? Asked of the metastore itself, never of a local copy (I3-049).

A metastore that was restored from an older backup knows nothing of later moves, and adopting it changes only
the catalog's part. Until the group has spoken, a node that is assigned nowhere may hold the newest data.
"""

from __future__ import annotations

from collections.abc import Callable
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
from rebalance.core.keyspace.records import ConfigurationRecord
from rebalance.core.keyspace.txn import Compare, Get, KeyValue, Txn, TxnResult, unchanged
from rebalance.nodes.registration import Registration
from rebalance.ports.metastore import Metastore

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
        result = await self._metastore.commit(Txn((), tuple(Get(name) for name in read)))
        try:
            return self._judged(keys, result, names, peer_url)
        except RecordNotReadableError as error:
            # What the key says may be that the data is needed.
            return Removal(RemovalVerdict.KEPT, why=str(error))

    def _judged(
        self,
        keys: PartitionKeys,
        result: TxnResult,
        names: Callable[[Assignments], bool],
        peer_url: str | None,
    ) -> Removal:
        """Raises RecordNotReadableError."""
        items = [result.only(index) for index in (0, 1)]
        epoch = result.only(2)
        recorded = readable(epoch, EpochRecord.decode) or EpochRecord()
        self._registration.adopted(recorded.epoch, result.revision)
        seen = self._registration.revision_floor
        if any(names(placed) for item in items if (placed := readable(item, Assignments.decode)) is not None):
            return Removal(RemovalVerdict.ASSIGNED)
        readable(result.only(4), ZoneIntent.decode)
        if result.revision < seen:
            log.error(
                "the metastore went back in time, nothing is destroyed on its word",
                key=keys.stable,
                revision=result.revision,
                seen=seen,
            )
            return Removal(RemovalVerdict.STORE_IS_BEHIND)
        if peer_url is not None:
            why = why_kept(peer_url, epoch, result.only(3), result.only(4))
            if why:
                return Removal(RemovalVerdict.KEPT, why=why)
        guards = tuple(
            unchanged(key, item.mod_revision if item else 0)
            for key, item in zip((keys.stable, keys.pending), items, strict=True)
        )
        trigger, limits = result.only(5), result.only(6)
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
