"""The level conditions of the alerts' table: predicates over the facts, which give the present state by labels.
The facts are one plain value, made from the mirror and from a server's own knowledge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.core.alerts import Findings
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


CERTIFICATE_S = 7 * 86_400.0
"""A certificate that ends within so long is to be renewed now."""
RELAY_LATE_S = 30.0


def whole(holds: object, text: str) -> Findings:
    """Return one finding for the installation as a whole, if ``holds``."""
    return {(): text} if holds else {}


def _each(label: str, counts: Mapping[str, int] | None, one: str, many: str) -> Findings | None:
    """An alert for each zone or node; ``one`` and ``many`` say what is counted. None: nothing was yet."""
    if counts is None:
        return None
    return {
        ((label, name),): f"{count} {one if count == 1 else many} {name}"
        for name, count in counts.items()
        if count
    }


def in_zones(counts: Mapping[str, int] | None, so: str) -> Findings | None:
    """An alert for each zone with partitions that are ``so``. None: they were not counted yet."""
    return _each("zone", counts, f"partition {so} in zone", f"partitions {so} in zone")


def store_server_down(facts: InstallationFacts) -> Findings:
    return {(("node", node),): f"no store server takes part for node {node}" for node in facts.servers_down}


def disk_full(facts: InstallationFacts) -> Findings | None:
    of = "ended because the disk is full on node"
    ended = _each("node", facts.full_disks, f"member {of}", f"members {of}")
    if ended is None:
        return None
    full: Findings = {(("node", node),): f"the disk of node {node} is full" for node in facts.full_nodes}
    return {**full, **ended}


def spark_away(facts: InstallationFacts) -> Findings:
    """One that is started again and again is away as well."""
    message = f": {facts.spark_message}" if facts.spark_message else ""
    away = facts.spark in ("starting", "down")
    return whole(away, f"placements are computed without Spark, which is {facts.spark}{message}")


def certificate_expires(facts: InstallationFacts) -> Findings:
    return {
        (("process", process),): f"certificate {file}, which process {process} has loaded, "
        + (f"ends in {_duration(left_s)}" if left_s > 0 else "has expired")
        for process, (file, left_s) in facts.certificates.items()
        if left_s < CERTIFICATE_S
    }


def move_stuck(facts: InstallationFacts) -> Findings:
    return {
        (("operation", operation),): f"operation {operation} has made no progress for {_duration(still_s)}"
        for operation, still_s in facts.stuck_moves.items()
    }


def node_down(facts: InstallationFacts) -> Findings | None:
    if facts.absent_nodes is None:
        return None
    return {
        (("node", node),): f"node {node} is down; {count} replica{'' if count == 1 else 's'} not served"
        for node, count in facts.absent_nodes.items()
    }


def relay_lag(facts: InstallationFacts) -> Findings:
    lag_s = facts.relay_lag_s
    return whole(lag_s >= RELAY_LATE_S, f"a catalog version has waited for {lag_s:.0f} s to be published")


def _duration(seconds: float) -> str:
    for unit, length_s in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"
