"""Which parts of an installation are degraded, and why: a pure function of what was observed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from app.contract.health import InstallationPart, LostPartitions
from catalog.core.zone import Zone
from rebalance.core.causes import Cause, cause_of

LATE_S = 30.0
"""What has waited this long is reported: a placement on Spark takes seconds, its start up to twenty."""

HELD_BY = frozenset((Cause.FOREIGN_DIRECTORY, Cause.STORE_DAMAGED))
"""Causes for which a node's process waits, and somebody has to come."""


@dataclass(frozen=True, slots=True)
class DegradedCause:
    """``cause``: a word, and after a colon what is known of it."""

    part: InstallationPart
    cause: str


@dataclass(frozen=True, slots=True)
class ObservedParts:
    """``catalog`` and ``metastore``: "ok" or what is wrong. ``tasks``: process, task and cause of each
    background task that is in trouble. ``unreadable``: causes of keys that cannot be read."""

    catalog: str
    metastore: str
    controller: str | None
    spark: str
    spark_message: str
    nodes: int
    outbox_s: float
    zone_s: float
    zone_id: int | None
    tasks: tuple[tuple[str, str, str], ...]
    unreadable: tuple[str, ...] = ()
    store_servers_down: tuple[str, ...] = ()
    lost_partitions: tuple[LostPartitions, ...] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """From the body of ``/readyz``."""
        queue = body["queue"]
        tasks = (
            (process["process"], str(trouble.get("task")), str(trouble.get("cause")))
            for process in body["background"]["processes"]
            for trouble in process["troubles"]
        )
        return cls(
            body["catalog"],
            body["metastore"],
            body["controller"],
            body["spark"],
            body["spark_message"],
            body["nodes"],
            queue["outbox_oldest_seconds"],
            queue["zone_oldest_seconds"],
            queue["zone_id"],
            tuple(tasks),
            tuple(body["unreadable"]),
            tuple(body["store_servers_down"]),
            tuple(body["lost_partitions"]),
        )


def judged(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of ``/readyz`` with what follows from its parts."""
    degraded = [{"part": cause.part.value, "cause": cause.cause} for cause in judge(ObservedParts.of(body))]
    state = "not ready" if not body["ready"] else "degraded" if degraded else "ready"
    return {"state": "", **body, "degraded": degraded} | {"state": state}


def of_zones(body: Mapping[str, Any], zones: Collection[Zone]) -> dict[str, Any]:
    """As if there were no zones but these."""
    names, ids = {zone.name for zone in zones}, {zone.zone_id for zone in zones}
    lost, queue = [each for each in body["lost_partitions"] if each["zone"] in names], body["queue"]
    if queue["zone_id"] not in ids:
        queue = {**queue, "zone_id": None, "zone_oldest_seconds": 0.0}
    return judged({**body, "lost_partitions": lost, "queue": queue})


def judge(observed: ObservedParts) -> tuple[DegradedCause, ...]:
    """Empty: all is well. A part that cannot be seen because the metastore is silent is not named beside it."""
    return tuple(_causes(observed))


def _causes(observed: ObservedParts) -> Iterator[DegradedCause]:
    if observed.catalog != "ok":
        yield DegradedCause(InstallationPart.CATALOG, Cause.CATALOG_UNAVAILABLE.text(observed.catalog))
    if observed.metastore != "ok":
        yield DegradedCause(InstallationPart.METASTORE, Cause.METASTORE_UNAVAILABLE.text(observed.metastore))
    else:
        if observed.controller is None:
            yield DegradedCause(
                InstallationPart.CONTROLLER,
                Cause.NO_LEADER.text("no controller leads, so nothing is placed or moved"),
            )
        elif observed.spark == "down":
            message = Cause.SPARK_DOWN.text(f"{observed.spark_message}; placements are computed without it")
            yield DegradedCause(InstallationPart.SPARK, message)
        if not observed.nodes:
            yield DegradedCause(InstallationPart.NODES, Cause.NO_NODE.text("no node is alive"))
        if observed.store_servers_down:
            names = ", ".join(observed.store_servers_down)
            yield DegradedCause(
                InstallationPart.NODES, Cause.SERVER_DOWN.text(f"no store server takes part for {names}")
            )
        for lost in observed.lost_partitions:
            count, zone = lost["partitions"], lost["zone"]
            left = f"{count} partition{'s have' if count > 1 else ' has'} no in-sync copy left"
            yield DegradedCause(InstallationPart.ZONES, Cause.PARTITION_LOST.text(f"{left} in zone {zone}"))
        for unreadable in observed.unreadable:
            yield DegradedCause(InstallationPart.METASTORE, unreadable)
    if observed.outbox_s >= LATE_S:
        yield DegradedCause(
            InstallationPart.QUEUE,
            Cause.OUTBOX_LATE.text(f"a version has not been published for {observed.outbox_s:.0f} s"),
        )
    if observed.zone_s >= LATE_S:
        waits = f"zone {observed.zone_id} has waited for its placement for {observed.zone_s:.0f} s"
        yield DegradedCause(InstallationPart.QUEUE, Cause.ZONE_LATE.text(waits))
    for process, task, cause in observed.tasks:
        if cause_of(cause) in HELD_BY:
            yield DegradedCause(InstallationPart.NODES, cause)
            continue
        yield DegradedCause(InstallationPart.BACKGROUND, Cause.TASK_ENDED.text(f"{process}, {task}: {cause}"))
