"""Marks on a server's disk: what it has finished, and which lives of zone ids its copies are of.

By the first it does not serve under a metastore that was restored from an earlier state until an operator has
adopted it, by the second not with the copies of a lost zone. Copies of a zone that both stores were restored
without are at rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from catalog.core.zone import ZoneId
from rebalance.core.causes.cause import Cause
from rebalance.core.partition_maps.partition_map import epoch_of, version_of
from rebalance.core.partition_maps.topology_version import TopologyVersion, ZoneSpec
from rebalance.store.core.disk_changes import KeepMark, StoreReader
from rebalance.store.core.log_records import PartitionKey
from rebalance.store.core.ring_records import StoreStart

FINISHED_MARK = "finished"


class FinishedMark:
    """The highest (epoch of the metastore, version) that was finished here."""

    def __init__(self, reader: StoreReader, start: StoreStart) -> None:
        stored = reader.mark(FINISHED_MARK)
        self._epoch = start.metastore_epoch
        self._known = self._epoch, epoch_of(start.ring.cluster.version)
        self._told = epoch_of(start.finished)
        self._highest = (0, 0)
        if stored is not None:
            epoch, version = stored.split()
            self._highest = int(epoch), int(version)

    @property
    def refusal(self) -> str:
        """Return why the server must not begin; empty: it may."""
        if self._known >= self._highest:
            return ""
        highest, known = _named(self._highest), _named(self._known)
        return (
            f"the metastore was restored from a backup: it is at {known}, and this server finished {highest}; "
            "restore the newer one, or go on with what is there: `zonectl metastore adopt`"
        )

    def has_missed(self, epoch: int) -> bool:
        """Check for an exchange of that epoch whose end this disk, which served before it, never heard. Of a
        new disk, or one from before the metastore was adopted, nobody knows; one that was rolled back has less
        than the server has told."""
        metastore_epoch, version = self._highest
        return metastore_epoch == self._epoch and 0 < version < epoch and version >= self._told

    def finished(self, version: TopologyVersion) -> KeepMark:
        self._highest = max(self._highest, (self._epoch, epoch_of(version)))
        return KeepMark(FINISHED_MARK, "{} {}".format(*self._highest).encode())


def _named(mark: tuple[int, int]) -> str:
    epoch, version = mark
    return f"version {version_of(version)} of epoch {epoch}"


class ZoneLives:
    """``resting``: zones of which the disk has copies and the ring has none, and which the catalog does not
    call dropped: both stores were restored without them. These copies stay as they are. ``copies``: of this
    server, as they come and go."""

    def __init__(
        self, reader: StoreReader, resting: Collection[ZoneId], copies: Collection[PartitionKey]
    ) -> None:
        self._reader = reader
        self._copies = copies
        self._resting = set(resting)
        self._noted: dict[ZoneId, str] = {}

    def is_resting(self, zone_id: ZoneId) -> bool:
        return zone_id in self._resting

    def refusal(self, zones: Iterable[ZoneSpec]) -> str:
        """Return why the server must not serve with ``zones`` in the ring; empty: it may. Copies with another
        token are of a lost zone, and there is room for one copy of an id."""
        for spec in zones:
            life = self._of(spec.zone_id)
            is_other = spec.life and life not in ("", spec.life)
            if is_other and any(zone_id == spec.zone_id for zone_id, _ in self._copies):
                return Cause.FOREIGN_COPY.text(
                    f"the copies of zone {spec.zone_id} in this store are of a lost zone of this id (life "
                    f"{life}), and not of the one of now (life {spec.life})"
                )
        return ""

    def opened(self, zones: Iterable[ZoneSpec]) -> list[KeepMark]:
        """The ring has these zones, and this server's copies of them are theirs."""
        marks = []
        for spec in zones:
            self._resting.discard(spec.zone_id)
            if spec.life and self._of(spec.zone_id) != spec.life:
                self._noted[spec.zone_id] = spec.life
                marks.append(KeepMark(_name(spec.zone_id), spec.life.encode()))
        return marks

    def _of(self, zone_id: ZoneId) -> str:
        if zone_id not in self._noted:
            self._noted[zone_id] = (self._reader.mark(_name(zone_id)) or b"").decode(errors="replace")
        return self._noted[zone_id]


def _name(zone_id: ZoneId) -> str:
    return f"life {zone_id}"
