"""The outcome of an exchange as it is committed before anybody is told of it, and all outcomes together.

Outcomes are a chain: each names the version of the one before. So a coordinator that takes over, or one that
joined while all others died, comes upon the outcome that was committed, and uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.store_positions import NO_RECORD, StorePosition
from rebalance.core.partition_maps.topology_version import NO_VERSION, TopologyVersion


class GoneServer(NamedTuple):
    """A server that the ring removed with the event of ``version``; ``in_order``: it left by itself, with
    everything on its disk, and did not fail."""

    version: TopologyVersion
    name: str
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """``in_sync``: whose copies may own, by name. They have every write that was acknowledged, less those that
    left or failed since; the last one stays, as nobody else can bring the partition back.
    ``filling``: copies that the primary waits for, too, while they are filled. ``position``: a copy in the set
    has at least this. ``epoch``: the exchange that made the primary, which is
    the first of ``effective``. ``is_lost``: until a member of the set is back, or it is reset."""

    in_sync: tuple[str, ...] = ()
    filling: tuple[str, ...] = ()
    position: StorePosition = NO_RECORD
    epoch: int = 0
    effective: tuple[str, ...] = ()
    is_lost: bool = False

    def without(self, nodes: Iterable[str]) -> PartitionOutcome:
        """Return the outcome after these nodes went, one after the other."""
        left = self.in_sync
        for node in nodes:
            if node in left and len(left) > 1:
                left = tuple(name for name in left if name != node)
        return self if left == self.in_sync else replace(self, in_sync=left)


Outcomes = Mapping[ZoneId, tuple[PartitionOutcome, ...]]
"""One for each partition."""


@dataclass(frozen=True, slots=True)
class ResultRecord:
    """``exchange`` to ``version``: as in the full message. ``previous``: the version of the result before.
    ``changed``: where the outcome is another than before."""

    exchange: TopologyVersion
    version: TopologyVersion
    previous: TopologyVersion
    changed: Mapping[ZoneId, Mapping[int, PartitionOutcome]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResultState:
    """State of all results up to that of ``version``."""

    version: TopologyVersion = NO_VERSION
    outcomes: Outcomes = field(default_factory=dict)

    def after(self, record: ResultRecord) -> ResultState:
        """Raises ValueError for a record that does not follow."""
        if record.previous != self.version:
            raise ValueError(
                f"the result of {record.exchange} follows that of {record.previous}, not that of {self.version}"
            )
        outcomes = dict(self.outcomes)
        for zone, changed in record.changed.items():
            before = outcomes.get(zone, ())
            count = max(len(before), max(changed, default=-1) + 1)
            padded = (*before, *(PartitionOutcome() for _ in range(count - len(before))))
            outcomes[zone] = tuple(changed.get(number, item) for number, item in enumerate(padded))
        return ResultState(record.version, outcomes)

    def after_message(
        self, version: TopologyVersion, outcomes: Outcomes, zones: Collection[ZoneId]
    ) -> ResultState:
        """Return the state after a full message of that version. A zone that is deactivated is not in it, and
        its sets hold; one that is not among ``zones`` was stopped."""
        kept = {zone: each for zone, each in self.outcomes.items() if zone in zones}
        return ResultState(version, {**kept, **outcomes})


def changed_outcomes(before: Outcomes, after: Outcomes) -> dict[ZoneId, dict[int, PartitionOutcome]]:
    """Return what a result of ``after`` must say."""
    changed = {}
    for zone, outcomes in after.items():
        known = before.get(zone, ())
        differing = {
            number: item
            for number, item in enumerate(outcomes)
            if number >= len(known) or (known[number] is not item and known[number] != item)
        }
        if differing:
            changed[zone] = differing
    return changed
