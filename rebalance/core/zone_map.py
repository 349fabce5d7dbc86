"""Which full partition map of a zone holds: a pointer that names its chunks, and the version that it has.

``version`` is the cluster's topology version for this zone: the major number is that of the recorded topology
(nodes joined or left), the minor one counts changes of primaries since. ``sequence`` counts every published
change.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rebalance.core.topology_version import TopologyVersion

MAP_POINTER_FORMAT = 1
MAP_PERIOD_S = 1.0
"""How often a node writes its map, and the leading controller those of zones, at most."""


@dataclass(frozen=True, slots=True)
class ZoneMapPointer:
    """``coordinator``: the controller that merged it. ``chunks`` keys hold ``size_bytes`` bytes together.

    Three CRC-32 tell what changed: ``primaries``; ``routes``, all that clients route by; ``content``,
    everything.
    """

    version: TopologyVersion
    sequence: int
    coordinator: str
    chunks: int
    size_bytes: int
    primaries: int
    routes: int
    content: int

    @property
    def tag(self) -> str:
        """Names this state of the map, for caches: equal tags, equal maps."""
        return f"{self.version}-{self.sequence}"

    def encode(self) -> bytes:
        document = {"v": MAP_POINTER_FORMAT, **asdict(self), "version": str(self.version)}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> ZoneMapPointer:
        """Raises ValueError for a format that this build does not know."""
        found = json.loads(value)
        if found.pop("v") != MAP_POINTER_FORMAT:
            raise ValueError(
                f"partition map pointer format is not known; this build reads {MAP_POINTER_FORMAT}"
            )
        return cls(**{**found, "version": TopologyVersion.parse(found["version"])})


def next_version(before: ZoneMapPointer | None, topology: int, primaries: int) -> TopologyVersion:
    """The version of a map that is merged now. It never goes back, also if the record of the topology did."""
    if before is None or topology > before.version.major:
        return TopologyVersion(topology)
    return before.version.next_minor if primaries != before.primaries else before.version
