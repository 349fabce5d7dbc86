"""A node's notes of zones beside their copies: they stay when the metastore goes back in time."""

from __future__ import annotations

import json
from pathlib import Path

import structlog

from catalog.core.zone import NO_ZONE, ZoneId, ZoneIntent
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId

log = structlog.get_logger(__name__)

FORMAT = 1
_FILE = "zones.json"


class ZoneNotes:
    """``zones.json`` in the data directory. ``highest``: of the zones that the node was ever to hold something
    of, as a voter, a learner or a store server's copy. For each partition of which it has a member or a mirror
    the token of the zone's life; a copy without one was made by an earlier build, and is of any life."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / _FILE
        self.highest = NO_ZONE
        self._lives: dict[str, str] = {}
        self._read()

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
        """A full disk, which takes no copy, ends no node."""
        draft = self._path.with_suffix(".draft")
        document = {"v": FORMAT, "highest": self.highest, "lives": self._lives}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(document))
            draft.replace(self._path)
        except OSError as error:
            log.warning("zones are not noted", path=str(self._path), error=str(error))

    def _read(self) -> None:
        """Read the notes; damaged ones say nothing, and the members that lie there are noted when the node
        begins."""
        try:
            document = json.loads(self._path.read_text())
            self.highest = ZoneId(int(document["highest"]))
            self._lives = {str(name): str(life) for name, life in document.get("lives", {}).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
