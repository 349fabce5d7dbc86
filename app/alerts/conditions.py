"""The level conditions of the alerts' table, as predicates over the facts: what is so now, by labels."""

from __future__ import annotations

from collections.abc import Mapping

from app.alerts.facts import InstallationFacts
from app.core.alert_state import Findings
from app.views.answer_state import OK

CERTIFICATE_S = 7 * 86_400.0
"""A certificate that ends within so long is to be renewed now."""
RELAY_LATE_S = 30.0
NONE: Findings = {}


def _whole(text: str) -> Findings:
    """Of the installation as a whole."""
    return {(): text}


def _each(label: str, counts: Mapping[str, int] | None, one: str, many: str) -> Findings | None:
    """An alert for each zone or node; ``one`` and ``many`` say what is counted. None: nothing was yet."""
    if counts is None:
        return None
    return {
        ((label, name),): f"{count} {one if count == 1 else many} {name}"
        for name, count in counts.items()
        if count
    }


def partition_without_majority(facts: InstallationFacts) -> Findings | None:
    of = "without a majority of voters in zone"
    return _each("zone", facts.without_majority, f"partition {of}", f"partitions {of}")


def partition_degraded(facts: InstallationFacts) -> Findings | None:
    of = "with fewer replicas in order than wanted in zone"
    return _each("zone", facts.degraded, f"partition {of}", f"partitions {of}")


def replicas_missing(facts: InstallationFacts) -> Findings | None:
    of = "with fewer replicas than wanted in zone"
    return _each("zone", facts.replicas_missing, f"partition {of}", f"partitions {of}")


def replica_broken(facts: InstallationFacts) -> Findings | None:
    of = "with a broken replica in zone"
    return _each("zone", facts.replicas_broken, f"partition {of}", f"partitions {of}")


def store_server_down(facts: InstallationFacts) -> Findings:
    return {(("node", node),): f"no store server takes part for node {node}" for node in facts.servers_down}


def no_controller(facts: InstallationFacts) -> Findings:
    return (
        NONE if facts.controller is not None else _whole("no controller leads, so nothing is placed or moved")
    )


def metastore_unreachable(facts: InstallationFacts) -> Findings:
    return NONE if facts.metastore == OK else _whole(f"the metastore does not answer: {facts.metastore}")


def catalog_unreachable(facts: InstallationFacts) -> Findings:
    return NONE if facts.catalog == OK else _whole(f"the catalog does not answer: {facts.catalog}")


def metastore_space(facts: InstallationFacts) -> Findings:
    full = facts.metastore_full
    return _whole(f"etcd refuses writes for want of space: {full}") if full else NONE


def divergence(facts: InstallationFacts) -> Findings:
    return _whole(f"nothing is written: {facts.divergence}") if facts.divergence else NONE


def disk_full(facts: InstallationFacts) -> Findings | None:
    of = "ended because the disk is full on node"
    ended = _each("node", facts.full_disks, f"member {of}", f"members {of}")
    if ended is None:
        return None
    full: Findings = {(("node", node),): f"the disk of node {node} is full" for node in facts.full_nodes}
    return {**full, **ended}


def spark_away(facts: InstallationFacts) -> Findings:
    """One that is started again and again is away as well."""
    if facts.spark not in ("starting", "down"):
        return NONE
    message = f": {facts.spark_message}" if facts.spark_message else ""
    return _whole(f"placements are computed without Spark, which is {facts.spark}{message}")


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
    return (
        _whole(f"a catalog version has waited for {lag_s:.0f} s to be published")
        if lag_s >= RELAY_LATE_S
        else NONE
    )


def _duration(seconds: float) -> str:
    for unit, length_s in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"
