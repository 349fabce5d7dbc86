"""What alerts are judged by: one plain value, put together from the mirror and from what a server knows
itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.views.answer_state import OK


@dataclass(frozen=True, slots=True)
class InstallationFacts:
    """``catalog`` and ``metastore``: "ok" or what is wrong. ``mirror_age_s``: how long ago the mirror was seen
    to hold all that the metastore has. ``controller`` None: no controller leads.

    ``replicas_missing``: partitions by zone that have fewer replicas than the zone asks for, none of them on
    its way; ``replicas_broken``: those with a replica that has failed on a node that lives.
    ``without_majority``: partitions by zone, by the voters of stable that live and run; of a store zone those
    without a leader or an in-sync copy. ``absent_nodes``: replicas that are kept on nodes that are gone and not
    drained. ``full_disks``: members by node that ended for want of space. All five are None until partitions
    were counted once. ``full_nodes``: those whose disk has hardly any left. ``stuck_moves``: seconds since the
    last progress, by operation. ``metastore_full``: the alarm in etcd's words. ``certificate_s``: seconds for
    which the certificate of the API is still valid; None: there is none."""

    catalog: str = OK
    metastore: str = OK
    mirror_age_s: float = 0.0
    controller: str | None = ""
    spark: str = "ready"
    spark_message: str = ""
    divergence: str = ""
    metastore_full: str = ""
    relay_lag_s: float = 0.0
    certificate_s: float | None = None
    without_majority: Mapping[str, int] | None = field(default_factory=dict)
    replicas_missing: Mapping[str, int] | None = field(default_factory=dict)
    replicas_broken: Mapping[str, int] | None = field(default_factory=dict)
    absent_nodes: Mapping[str, int] | None = field(default_factory=dict)
    full_disks: Mapping[str, int] | None = field(default_factory=dict)
    full_nodes: frozenset[str] = frozenset()
    stuck_moves: Mapping[str, float] = field(default_factory=dict)
