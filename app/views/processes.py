"""Processes that have registered: their upgrade, as the API shows it, and their addresses, as Prometheus reads
them by its service discovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from app.contract.columns import Facts, body_of
from app.contract.maintenance import BuildBody, ScrapeTarget, StepBody, UpgradeBody
from catalog.core.level import inactive
from catalog.core.zone import ZoneId
from rebalance.controllers.upgrade import Upgrade
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import ProcessRecord, ProcessRole
from rebalance.core.keyspace.upgrade import newest_version, stray_members, waiting
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.store.core.ownership import StoreOwnership

FINALISE = "`zonectl upgrade finalise`"


def upgrade_body(
    upgrade: Upgrade, can_stop: Callable[[str], Mapping[str, Any]], strays: Iterable[str]
) -> UpgradeBody:
    """The upgrade as the API shows it. ``can_stop``: what would be lost if a node stopped now; it is called for
    the next nodes to replace, until one of them may go."""
    return UpgradeBody(
        state="FINALISED" if upgrade.is_finalised else "MIXED" if upgrade.hindrances else "READY",
        version=newest_version(upgrade.processes),
        level_in_force=upgrade.in_force,
        level=upgrade.level,
        processes=[body_of(BuildBody, Facts(process)) for process in upgrade.processes],
        steps=_steps(upgrade, can_stop),
        hindrances=list(upgrade.hindrances),
        inactive=list(inactive(upgrade.in_force)),
        refused=[str(process) for process in upgrade.refused],
        strays=list(strays),
    )


def strays(
    copy: KeyspaceCopy, keyspace: Keyspace, ownership: StoreOwnership, zones: Mapping[ZoneId, str]
) -> Iterator[str]:
    """Yield the members of groups that are left in store zones, in words. ``zones``: names by id. Over a copy,
    in any thread."""
    for zone_id in sorted(ownership.ring.cluster.zones):
        counts = stray_members(copy.below(keyspace.zone_members(zone_id)), keyspace)
        for node, count in sorted(counts.items()):
            yield f"zone {zones.get(zone_id, zone_id)} on node {node}: {count}"


def notices(upgrade: Upgrade) -> list[str]:
    """Notices about an upgrade for operators, in words; empty: there is nothing to know."""
    told = [
        f"{process} is below release level {upgrade.in_force} and writes nothing: start its newest version"
        for process in upgrade.refused
    ]
    kept_back = inactive(upgrade.in_force)
    if upgrade.hindrances:
        told.append(f"level {upgrade.level} is not finalised: {'; '.join(upgrade.hindrances)}")
    elif not upgrade.is_finalised:
        gains = f" Not before: {'; '.join(kept_back)}" if kept_back else ""
        told.append(f"level {upgrade.level} can be finalised: {FINALISE}.{gains}")
    return told


def _steps(upgrade: Upgrade, can_stop: Callable[[str], Mapping[str, Any]]) -> list[StepBody]:
    steps: list[StepBody] = []
    next_name = ""
    for process in waiting(upgrade.processes):
        why_not = f"after {next_name}" if next_name else ""
        if not why_not and process.role == ProcessRole.NODE.value:
            verdict = can_stop(process.name)
            losses = ", ".join(f"{count} {loss}" for loss, count in verdict["losses"].items())
            why_not = "" if verdict["can_stop"] else f"it cannot be stopped now: {losses or 'nobody can tell'}"
        if not why_not:
            next_name = process.name
        steps.append(
            {
                "process": process.name,
                "role": process.role,
                "version": process.version,
                "may_go": not why_not,
                "why_not": why_not,
            }
        )
    return steps


def scrape_targets(mirror: KeyspaceCopy, keyspace: Keyspace) -> list[ScrapeTarget]:
    """Targets for Prometheus, in the order of their names. Processes of builds that register no address, and
    entries that cannot be read, are left out: Prometheus's own alert reports what is not scraped."""
    targets: list[ScrapeTarget] = []
    for item in mirror.below(keyspace.processes):
        record = read(item, ProcessRecord.decode)
        if isinstance(record, Unreadable) or not record.metrics:
            continue
        url = urlsplit(record.metrics)
        name = item.key.removeprefix(keyspace.processes)
        labels = {
            "__scheme__": url.scheme,
            "__metrics_path__": url.path or "/metrics",
            "process": name,
            "role": record.role,
        }
        if record.role == ProcessRole.NODE.value:
            labels["node"] = name
        targets.append({"targets": [url.netloc], "labels": labels})
    return targets
