"""Mark of what a server has finished, on its disk: it does not serve under a metastore that was restored from
an earlier state until an operator has adopted it."""

from __future__ import annotations

from rebalance.core.partition_maps.store_positions import epoch_of, version_of
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.store.core.disk_changes import KeepMark, StoreReader
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
