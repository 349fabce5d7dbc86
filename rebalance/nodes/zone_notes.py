"""What a node notes of zones beside their copies: it stays when the metastore goes back in time."""

from __future__ import annotations

import json
from pathlib import Path

import structlog

from catalog.core.zone import NO_ZONE, ZoneId

log = structlog.get_logger(__name__)

FORMAT = 1
_FILE = "zones.json"


class ZoneNotes:
    """``zones.json`` in the data directory. ``highest``: of the zones that the node was ever to hold something
    of, as a voter, a learner or a store server's copy."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / _FILE
        self.highest = self._read()

    def holds(self, zone_id: ZoneId) -> None:
        """Noted before anything of the zone is on the disk. A full disk, which takes no copy, ends no node."""
        if zone_id <= self.highest:
            return
        self.highest = zone_id
        draft = self._path.with_suffix(".draft")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps({"v": FORMAT, "highest": zone_id}))
            draft.replace(self._path)
        except OSError as error:
            log.warning("zones are not noted", path=str(self._path), error=str(error))

    def _read(self) -> ZoneId:
        """What is damaged says nothing: the members that lie there are noted when the node begins."""
        try:
            document = json.loads(self._path.read_text())
            return ZoneId(int(document["highest"]))
        except (OSError, ValueError, KeyError, TypeError):
            return NO_ZONE
