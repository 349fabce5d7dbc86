"""Messages of nodes about partition maps, from node to node and never over the ring (PME-061).

With an exchange id a message belongs to an exchange; without one it tells of a change of states afterwards
(PME-122). Every message may be lost, repeated or overtaken: senders repeat, receivers compare.

The outcome of an exchange is committed before anybody is told of it. Outcomes are a chain: each names the
version of the one before. So a coordinator that takes over, or one that joined while all others died, comes
upon the outcome that was committed, and uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, FullMap, MapStamp, SingleMap, StorePosition
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


Lists = tuple[tuple[str, ...], ...]
"""Nodes by partition, the primary first."""


@dataclass(frozen=True, slots=True)
class CopyId:
    """One copy of a partition."""

    zone: ZoneId
    partition: int
    node: str


@dataclass(frozen=True, slots=True)
class SingleMessage:
    """A node's local state (PME-016, PME-062, PME-065).

    ``basis``: the last finished exchange of the sender. ``history``: by zone and partition the earliest
    position from which its log can replay updates (PME-055). ``wants_affinity``: it cannot compute assignments
    by itself (PME-036).
    ``since``: in an update without an exchange, of maps that have only what changed after those of these
    sequences. One without maps asks for the full maps.
    """

    sender: str
    order: int
    exchange: TopologyVersion | None
    basis: TopologyVersion
    maps: Mapping[ZoneId, SingleMap] = field(default_factory=dict)
    history: Mapping[tuple[ZoneId, int], StorePosition] = field(default_factory=dict)
    is_client: bool = False
    wants_affinity: bool = False
    since: Mapping[ZoneId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Supplier:
    """A node that replays updates to a copy that is behind, and the position after which it begins."""

    node: str
    position: StorePosition


@dataclass(frozen=True, slots=True)
class FullMessage:
    """The coordinator's decision (PME-100..105).

    - ``exchange`` to ``version``: the exchange, and the last one that was merged into it (PME-073).
    - ``order``: join order of the coordinator that sends it.
    - ``maps``: cluster-wide states. ``positions``: by zone and partition that of the newest update.
    - ``reload``: copies to be cleared and filled from the start. ``suppliers``: who replays to whom.
    - ``joined_affinity``: effective assignments of every zone, for nodes that joined. ``affinity_diff``: for
      the others where the effective assignment is not the ideal one. ``ideal``: for nodes that cannot compute
      it.
    - ``basis``: the exchange that decided the states, where clients that came and went made the version higher.
    - ``lost``: partitions without an owner. ``rebalanced``: nothing is late and nothing moves.
    - ``outcomes``: what was committed of the exchange; empty where results are not kept.
    - ``digests``: by zone that of the ideal lists that the coordinator has.
    - ``since``: in an update without an exchange, of maps that have only what changed after those of these
      stamps.
    """

    exchange: TopologyVersion | None
    version: TopologyVersion
    order: int
    maps: Mapping[ZoneId, FullMap]
    positions: Mapping[tuple[ZoneId, int], StorePosition] = field(default_factory=dict)
    reload: frozenset[CopyId] = frozenset()
    suppliers: Mapping[CopyId, Supplier] = field(default_factory=dict)
    joined_affinity: Mapping[ZoneId, Lists] = field(default_factory=dict)
    affinity_diff: Mapping[ZoneId, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    ideal: Mapping[ZoneId, Lists] = field(default_factory=dict)
    lost: Mapping[ZoneId, frozenset[int]] = field(default_factory=dict)
    rebalanced: bool = False
    basis: TopologyVersion | None = None
    outcomes: Outcomes = field(default_factory=dict)
    digests: Mapping[ZoneId, int] = field(default_factory=dict)
    since: Mapping[ZoneId, MapStamp] = field(default_factory=dict)

    def covers(self, version: TopologyVersion) -> bool:
        """Check that the exchange of ``version`` ended with this message."""
        return self.exchange is not None and self.exchange <= version <= self.version


@dataclass(frozen=True, slots=True)
class SingleRequest:
    """A new coordinator asks for what it needs to finish an exchange that the one before it began. The answer
    is the single map or, from a node that has finished it already, the full message."""

    sender: str
    order: int
    exchange: TopologyVersion


@dataclass(frozen=True, slots=True)
class LatchCount:
    """The sender has no open update of an earlier version (PME-047)."""

    sender: str
    exchange: TopologyVersion


@dataclass(frozen=True, slots=True)
class LatchOpen:
    """Every server has counted down (PME-048)."""

    exchange: TopologyVersion
    order: int


Message = SingleMessage | FullMessage | SingleRequest | LatchCount | LatchOpen
