"""A zone as the catalog keeps it, and its form on the wire (the *intent* that the controllers act on)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NewType

from catalog.core.codec import Codec, Extensible, Form, Record, natural
from catalog.core.quorum import ALL_REPLICAS

ZoneId = NewType("ZoneId", int)
"""Given once, never used again, also after a drop: keys of a dropped zone cannot meet a new one."""
NO_ZONE = ZoneId(0)
"""Below all ids."""

TIMER_OFF = 2_147_483_647
EVERY_NODE = "$..*"
PARTITIONS_LIMIT = 1_000_000
"""Above this a record is taken for damaged, whatever a build allows."""
DEFAULT_ENGINE = "etcd"
STORE_ENGINE = "store"
"""One process a node with the copies of all partitions (``rebalance/tech-notes/store.md``)."""


class ConsistencyMode(Enum):
    STRONG_CONSISTENCY = "STRONG_CONSISTENCY"
    HIGH_AVAILABILITY = "HIGH_AVAILABILITY"


class LossPolicy(Enum):
    """Policy for a zone of store servers while partitions of it are lost, after Ignite 2. ``SAFE`` refuses what
    touches a lost partition; ``ALL`` serves it with what is left (PME-095).

    - IGNORE: nothing is ever lost: the new copies own at once, empty, and everything is allowed.
    - READ_ONLY_SAFE: no write to the zone, reads of the partitions that are there.
    - READ_ONLY_ALL: no write to the zone, reads of all partitions.
    - READ_WRITE_SAFE: reads and writes of the partitions that are there.
    - READ_WRITE_ALL: everything.
    """

    IGNORE = "IGNORE"
    READ_ONLY_SAFE = "READ_ONLY_SAFE"
    READ_ONLY_ALL = "READ_ONLY_ALL"
    READ_WRITE_SAFE = "READ_WRITE_SAFE"
    READ_WRITE_ALL = "READ_WRITE_ALL"


DEFAULT_LOSS_POLICY = LossPolicy.READ_WRITE_SAFE
"""Default of Ignite where data is on disks: an owner that comes back has every acknowledged write."""


class DistributionAlgorithm(Enum):
    RENDEZVOUS = "rendezvous"
    BALANCED = "balanced"


class Strategy(Enum):
    """Effect of a new target on a move that runs."""

    QUEUE = "queue"  # it waits in planned until the move has ended
    UPDATE = "update"  # it replaces pending until the leader has locked pending, then it waits in planned
    CANCEL = "cancel"  # it waits in planned, and the leader cancels the move while that is possible

    @property
    def locks_pending(self) -> bool:
        """A leader takes ``pending.lock`` before it touches a voter, because pending may change before that."""
        return self is not Strategy.QUEUE


@dataclass(frozen=True, slots=True)
class Zone(Extensible):
    """One zone at one catalog version. ``quorum_size`` is the explicit one; None means derived (decision 1).
    ``strategy`` is that of moves that begin; None means the controllers' setting. ``loss_policy``: of zones of
    store servers; None means ``DEFAULT_LOSS_POLICY`` there, and that the zone has none elsewhere."""

    zone_id: ZoneId
    name: str
    partitions: int
    replicas: int
    quorum_size: int | None
    storage_profiles: tuple[str, ...]
    auto_scale_up: int = 0
    auto_scale_down: int = TIMER_OFF
    nodes_filter: str = EVERY_NODE
    consistency_mode: ConsistencyMode = ConsistencyMode.STRONG_CONSISTENCY
    algorithm: DistributionAlgorithm = DistributionAlgorithm.RENDEZVOUS
    strategy: Strategy | None = None
    loss_policy: LossPolicy | None = None
    life: str = field(default="", compare=False)
    """A token of this life of the id, which copies carry: stores that were restored together may give an id
    again. It is the statement that created the zone; empty: one of an earlier build did."""

    @property
    def all_replicas(self) -> bool:
        return self.replicas == ALL_REPLICAS


@dataclass(frozen=True, slots=True)
class Node:
    """A node that can hold replicas: what DDL is checked against and placement is computed from.

    ``member_limit`` is the most replication-group members that it can hold at once. Balanced zones give a node
    of ``weight`` 2 twice the share of one of 1, and keep a partition's voters in different ``failure_domain``s;
    empty: a domain of its own.
    """

    name: str
    attributes: tuple[tuple[str, str], ...] = ()
    profiles: tuple[str, ...] = ("default",)
    member_limit: int = 100
    weight: float = 1.0
    failure_domain: str = ""
    engines: tuple[tuple[str, str], ...] = ()
    """Profile -> engine, where it is another than ``DEFAULT_ENGINE``."""

    def engine(self, profile: str) -> str:
        """Return what keeps the members of groups in this profile."""
        return dict(self.engines).get(profile, DEFAULT_ENGINE)

    def holds_profiles(self, profiles: tuple[str, ...]) -> bool:
        """A data node must have *all* of a zone's storage profiles."""
        return set(profiles) <= set(self.profiles)


def zone_engine(zone: Zone, nodes: Iterable[Node]) -> str:
    """Return what keeps the zone's copies on all ``nodes`` that have its profiles; empty where they differ, or
    where there is none."""
    profiles = zone.storage_profiles
    engines = {node.engine(name) for node in nodes if node.holds_profiles(profiles) for name in profiles}
    return engines.pop() if len(engines) == 1 else ""


@dataclass(frozen=True, slots=True)
class Origin(Extensible):
    """User and reason of a version of the catalog; ``verified``: the name was checked.

    ``restores`` asks for a stored target instead of a new placement: that of this event revision, which was in
    force before the operation ``reverses`` (0 and empty: an ordinary version).
    """

    by: str = ""
    verified: bool = False
    reason: str = ""
    statement: str = ""
    restores: int = 0
    reverses: str = ""


@dataclass(frozen=True, slots=True)
class ZoneIntent(Record):
    """Wish of the catalog for one zone as of ``version``; ``dropped`` keeps the last parameters.

    The outbox publishes it to the zone's intent key, which only ever moves to a higher version.
    """

    version: int
    zone: Zone
    dropped: bool = False
    origin: Origin | None = field(default=None, compare=False)


def _partitions(value: Any) -> int:
    if not 1 <= natural(value) <= PARTITIONS_LIMIT:
        raise ValueError(f"not 1 to {PARTITIONS_LIMIT}")
    return int(value)


def _positive(value: Any) -> int:
    if natural(value) < 1:
        raise ValueError("below 1")
    return int(value)


_ZONE = Codec(
    Zone,
    # Left out where they are not set: so an intent is what earlier builds wrote, and can read.
    omit=("strategy", "loss_policy", "life"),
    required=("auto_scale_up", "auto_scale_down", "nodes_filter", "consistency_mode", "algorithm"),
    forms={
        "partitions": Form(_partitions, int),
        "replicas": Form(_positive, int),
    },
)
ZoneIntent.codec = Codec(
    ZoneIntent,
    omit=("origin",),
    required=("dropped",),
    order=("version", "dropped", "zone", "origin"),
    forms={"zone": _ZONE.form},
)
