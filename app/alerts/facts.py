"""What alerts are judged by: one plain value, put together from the mirror and from what a server knows
itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.views.answer_state import OK


@dataclass(frozen=True, slots=True)
class InstallationFacts:
    """``catalog`` and ``metastore``: "ok" or what is wrong. ``mirror_age_s``: how long ago the mirror was seen
    to hold all that the metastore has. ``is_settling``: the metastore is silent, or was a moment ago, and what
    ended meanwhile is not told yet. ``controller`` None: no controller leads.

    Partitions by zone: ``without_majority``, by the voters of stable that live and run, of a store zone those
    without a leader or an in-sync copy; ``unserved``, all that take no writes, those that never had a leader
    among them; ``degraded``, that serve with a replica less and do not move; ``replicas_missing``, that have
    fewer replicas than the zone asks for, none of them on its way; ``below_quorum``, those of them that are
    short because too few nodes match for the zone's QUORUM SIZE; ``replicas_broken``, with a replica that has
    failed on a node that lives. ``absent_nodes``: replicas by node that is gone and not drained; 0: only zones
    count on it. ``full_disks``: members by node that ended for want of space. All eight are None until
    partitions were counted once.

    ``full_nodes``: those whose disk has hardly any left. ``servers_down``: living nodes whose store server
    takes no part. ``stuck_moves``: seconds since the last progress, by operation. ``metastore_full``: the alarm
    in etcd's words. ``certificates``: by process the file of what ends first of the certificates that it has
    loaded, and for how many seconds it is still valid.

    What only readiness tells: ``nodes``, that live; ``lost``, partitions of store zones without an in-sync
    copy; ``not_agreed``, why statements wait for the metastore; ``unreadable``, causes of keys that cannot be
    read; ``tasks``, process, task and cause of background tasks that are in trouble; ``waiting``, a zone and
    the seconds for which it has waited for its placement."""

    catalog: str = OK
    metastore: str = OK
    mirror_age_s: float = 0.0
    is_settling: bool = False
    controller: str | None = ""
    spark: str = "ready"
    spark_message: str = ""
    divergence: str = ""
    metastore_full: str = ""
    relay_lag_s: float = 0.0
    certificates: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    without_majority: Mapping[str, int] | None = field(default_factory=dict)
    replicas_missing: Mapping[str, int] | None = field(default_factory=dict)
    below_quorum: Mapping[str, int] | None = field(default_factory=dict)
    replicas_broken: Mapping[str, int] | None = field(default_factory=dict)
    unserved: Mapping[str, int] | None = field(default_factory=dict)
    degraded: Mapping[str, int] | None = field(default_factory=dict)
    absent_nodes: Mapping[str, int] | None = field(default_factory=dict)
    full_disks: Mapping[str, int] | None = field(default_factory=dict)
    full_nodes: frozenset[str] = frozenset()
    servers_down: tuple[str, ...] = ()
    stuck_moves: Mapping[str, float] = field(default_factory=dict)
    nodes: int = 1
    lost: Mapping[str, int] = field(default_factory=dict)
    not_agreed: str = ""
    unreadable: tuple[str, ...] = ()
    tasks: tuple[tuple[str, str, str], ...] = ()
    waiting: tuple[str, float] | None = None

    @property
    def is_counted(self) -> bool:
        return self.unserved is not None
