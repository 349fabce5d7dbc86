"""Which full partition map of a zone holds: a pointer that names its chunks, and the version that it has.

``version`` is the cluster's topology version for this zone: the major number is that of the recorded topology
(nodes joined or left), the minor one counts changes of primaries since. ``sequence`` counts every published
change.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.codec import Codec, Form, Record, text
from rebalance.core.partition_maps.topology_version import TopologyVersion

MAP_PERIOD_S = 1.0
"""How often a node writes its map, and the leading controller those of zones, at most."""


@dataclass(frozen=True, slots=True)
class ZoneMapPointer(Record):
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


ZoneMapPointer.codec = Codec(
    ZoneMapPointer, forms={"version": Form(lambda value: TopologyVersion.parse(text(value)), str)}
)


def next_version(before: ZoneMapPointer | None, topology: int, primaries: int) -> TopologyVersion:
    """The version of a map that is merged now. It never goes back, also if the record of the topology did."""
    if before is None or topology > before.version.major:
        return TopologyVersion(topology)
    return before.version.next_minor if primaries != before.primaries else before.version
