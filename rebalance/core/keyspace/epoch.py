"""Epochs: which life of the metastore a revision belongs to, and whether catalog and metastore still agree.

A metastore that is restored from a backup counts its revisions again from an earlier one. Adopting it raises
the epoch, and events are numbered by (epoch, revision), so that no event of the lost life is newer than one of
the present. Both are kept in one integer: what compares events need not know of epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from catalog.core.codec import (
    INTEGER_MAX,
    Codec,
    Extensible,
    Form,
    Record,
    RecordNotReadableError,
    load,
    natural,
    optional,
)
from catalog.core.level import LEVEL, NO_LEVEL, below_level
from catalog.core.metastore_mark import CatalogTruth, MetastoreMark
from catalog.core.zone import ZoneIntent

FIRST_EPOCH = 1
REVISION_BITS = 48
"""Bits for the revision in an event revision. At 10,000 writes a second a metastore counts this far in 890
years; 32,000 epochs fit into 63 bits."""
MAJOR_BITS = 20
EPOCH_MAX = 1 << (63 - REVISION_BITS)


def event_revision(epoch: int, revision: int) -> int:
    """(epoch, revision) as one integer that sorts the same; the plain revision in the first epoch."""
    return ((epoch - FIRST_EPOCH) << REVISION_BITS) | revision


def split_event_revision(event: int) -> tuple[int, int]:
    """(epoch, revision) of an event revision."""
    return (event >> REVISION_BITS) + FIRST_EPOCH, event & ((1 << REVISION_BITS) - 1)


def first_major(epoch: int) -> int:
    """Major versions of the store servers' ring are above this in an epoch of the metastore, and those of each
    epoch before are not, as positions of records name them. For 2,048 epochs of a million joins and ends."""
    return (epoch - FIRST_EPOCH) << MAJOR_BITS


@dataclass(frozen=True, slots=True)
class LostLife(Extensible):
    """State of the metastore that ``node`` has seen and that is there no longer: ``revision`` in ``epoch``."""

    epoch: int
    revision: int
    node: str

    @property
    def reason(self) -> str:
        return (
            f"node {self.node} has seen etcd at revision {self.revision} of epoch {self.epoch}, which it no "
            "longer has: it was restored from an older backup"
        )


@dataclass(frozen=True, slots=True)
class EpochRecord(Record):
    """The ``epoch`` key. ``halted``: why nothing may be written now; empty: everything may. ``lost``: said by
    the first node that notices. The store that went back holds it, so it is gone with that store. ``level``:
    the release level in force."""

    epoch: int = FIRST_EPOCH
    halted: str = ""
    lost: LostLife | None = None
    level: int = NO_LEVEL

    @property
    def lost_life(self) -> LostLife | None:
        """Lost life that was reported; None once it was adopted."""
        return self.lost if self.lost is not None and self.lost.epoch >= self.epoch else None

    def told_by(self, seen: LostLife) -> EpochRecord | None:
        """The record once the node of ``seen`` has told that the metastore went back; None: it is told."""
        return None if self.lost_life is not None else replace(self, halted=seen.reason, lost=seen)

    @classmethod
    def decode(cls, value: bytes | None) -> EpochRecord:
        """Decode the key; None is a store that has no such key yet. Raises RecordNotReadableError, also where
        the level in force is above this build's: it writes nothing then."""
        if value is not None and level_in(value) > LEVEL:
            raise RecordNotReadableError(below_level(level_in(value), "this build"))
        record: EpochRecord = cls() if value is None else cls.codec.decode(value)
        return record


def level_in(value: bytes | None) -> int:
    """The level in force, as the ``epoch`` key says it: every later format has the field, too. 0: it says
    none."""
    if value is None:
        return NO_LEVEL
    try:
        level = load(value, INTEGER_MAX).get("level", NO_LEVEL)
    except RecordNotReadableError:
        return NO_LEVEL
    return level if type(level) is int and level > NO_LEVEL else NO_LEVEL


def _epoch(value: Any) -> int:
    if not FIRST_EPOCH <= natural(value) <= EPOCH_MAX:
        raise ValueError(f"not {FIRST_EPOCH} to {EPOCH_MAX}")
    return int(value)


_EPOCH = Form(_epoch, int)
EpochRecord.codec = Codec(
    EpochRecord,
    omit=("lost", "level"),
    required=("epoch", "halted"),
    forms={"epoch": _EPOCH, "lost": optional(Codec(LostLife, forms={"epoch": _EPOCH}).form)},
    levelled="level",
)


@dataclass(frozen=True, slots=True)
class MetastoreTruth:
    """The metastore's side, read at one revision, after the catalog's side and not before it.

    ``epoch``: None when the key is absent. ``mark_revision`` is the mod_revision of the mark (0: absent) and
    ``mark_nonce`` its value. ``sent_version`` is the version of the intent of ``CatalogTruth.sent``; 0: absent.
    """

    epoch: int | None
    mark_revision: int
    mark_nonce: str
    cluster_id: str
    sent_version: int = 0
    lost: LostLife | None = None


class DivergenceKind(Enum):
    METASTORE_WENT_BACK = "METASTORE_WENT_BACK"
    METASTORE_REPLACED = "METASTORE_REPLACED"
    CATALOG_WENT_BACK = "CATALOG_WENT_BACK"


@dataclass(frozen=True, slots=True)
class Divergence:
    """``reason`` says what was found and what was expected."""

    kind: DivergenceKind
    reason: str


def find_divergence(
    catalog: CatalogTruth, metastore: MetastoreTruth, newest: ZoneIntent | None
) -> Divergence | None:
    """Find the reason why catalog and metastore do not belong together; None when they do.

    ``newest`` is the metastore's intent of the highest version, read before ``catalog`` was.

    The revision of the mark is compared and not that of the store: a restored store soon counts beyond it.
    """
    if newest is not None and newest.version > catalog.version:
        return Divergence(
            DivergenceKind.CATALOG_WENT_BACK,
            f"etcd holds catalog version {newest.version} of zone {newest.zone.name}, the catalog is at "
            f"version {catalog.version}: it was restored from an older backup, or is another one",
        )
    if newest is not None and not catalog.knows_intent:
        return Divergence(
            DivergenceKind.CATALOG_WENT_BACK,
            f"etcd holds a version {newest.version} of zone {newest.zone.name} that the catalog never made: "
            "it was restored from an older backup, or is another one",
        )
    sent = catalog.sent
    if sent is not None and metastore.sent_version < sent.version:
        return Divergence(
            DivergenceKind.METASTORE_WENT_BACK,
            f"version {sent.version} of zone {sent.zone_id} was published to etcd and is not there: etcd was "
            "restored from an older backup, or is another one",
        )
    divergence = _of_mark(catalog.mark, metastore) if catalog.mark is not None else None
    if divergence is None and metastore.lost is not None:
        # Catalog and metastore may have been restored together: the nodes were not.
        return Divergence(DivergenceKind.METASTORE_WENT_BACK, metastore.lost.reason)
    return divergence


def _of_mark(mark: MetastoreMark, metastore: MetastoreTruth) -> Divergence | None:
    if metastore.epoch is not None and metastore.epoch > mark.epoch:
        return Divergence(
            DivergenceKind.CATALOG_WENT_BACK,
            f"etcd is in epoch {metastore.epoch}, the catalog knows {mark.epoch}: it was restored from an "
            "older backup",
        )
    if metastore.cluster_id != mark.cluster_id:
        return Divergence(
            DivergenceKind.METASTORE_REPLACED,
            f"etcd is cluster {metastore.cluster_id}, the catalog knows cluster {mark.cluster_id}",
        )
    if metastore.epoch is None or metastore.epoch < mark.epoch:
        stored = "no epoch" if metastore.epoch is None else f"epoch {metastore.epoch}"
        return Divergence(
            DivergenceKind.METASTORE_WENT_BACK,
            f"etcd has {stored}, the catalog knows {mark.epoch}: it was restored from an older backup, or an "
            "adoption was interrupted",
        )
    if metastore.mark_revision < mark.revision:
        return Divergence(
            DivergenceKind.METASTORE_WENT_BACK,
            f"etcd was seen at revision {mark.revision} and knows only up to {metastore.mark_revision} of it: "
            "it was restored from an older backup",
        )
    if metastore.mark_revision == mark.revision and metastore.mark_nonce != mark.nonce:
        return Divergence(
            DivergenceKind.METASTORE_REPLACED,
            f"etcd holds another value at revision {mark.revision} than the one that was seen there",
        )
    return None
