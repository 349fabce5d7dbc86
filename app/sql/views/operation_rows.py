"""Rows of the views that are about operations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from app.contract.columns import Facts
from app.contract.zones import Progress
from app.sql.views.view_snapshot import SystemSnapshot
from app.views.operation_views import OperationFilter, OperationViews
from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.operations.operation import Operation, operation_id

Row = tuple[Any, ...]
NOT_PLACED: Row = (None, None, None, None, None)


def operation_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """Rebalances that are not over: of zones that live and of dropped ones that are still cleaned up."""
    for zone in snapshot.catalog.zones:
        snapshot.checkpoint()
        version = snapshot.views.version_of(zone, snapshot.catalog.version)
        yield from _progress(snapshot, snapshot.views.progress(zone.zone_id, version, zone), zone.name)
    lives = {zone.zone_id for zone in snapshot.catalog.zones}
    for item in snapshot.keys.below(snapshot.keyspace.intents):
        intent = read(item, ZoneIntent.decode)
        if isinstance(intent, Unreadable):
            continue
        if intent.dropped and intent.zone.zone_id not in lives:
            snapshot.checkpoint()
            progress = snapshot.views.progress(intent.zone.zone_id, intent.version)
            yield from _progress(snapshot, progress, intent.zone.name)


def remembered_operations(snapshot: SystemSnapshot) -> Iterator[Facts]:
    """Every operation that is remembered, the newest first."""
    views = OperationViews(snapshot.keys, snapshot.keyspace, snapshot.views)
    for operation, item in views.listed(OperationFilter()):
        snapshot.checkpoint()
        yield views.facts(operation, item, snapshot.taken_at_ms)


def _progress(snapshot: SystemSnapshot, progress: Progress, name: str) -> Iterator[Row]:
    if progress["state"] == "CONVERGED":
        return
    counts = progress["partitions"]
    zone_id = ZoneId(progress["zone_id"])
    intent = snapshot.keys.get(snapshot.keyspace.intent(zone_id))
    data_nodes = snapshot.keys.get(snapshot.keyspace.data_nodes(zone_id))
    revisions = [item.mod_revision for item in (intent, data_nodes) if item is not None]
    yield (
        zone_id,
        name,
        progress["catalog_version"],
        max(revisions, default=None),
        "MOVING" if counts["moving"] or not counts["waiting"] else "WAITING",
        counts["total"],
        counts["done"],
        counts["moving"],
        counts["waiting"],
        json.dumps(progress["causes"], ensure_ascii=False),
        progress["engine"],
        *_of_record(snapshot, zone_id),
    )


def _of_record(snapshot: SystemSnapshot, zone_id: ZoneId) -> Row:
    """Id, kind, state, who asked and since when, of the operation of the zone's newest target."""
    pointer = read(snapshot.keys.get(snapshot.keyspace.target_pointer(zone_id)), TargetPointer.decode)
    if not isinstance(pointer, TargetPointer):
        return NOT_PLACED
    name = operation_id(zone_id, pointer.event_revision)
    operation = read(snapshot.keys.get(snapshot.keyspace.operation(name)), Operation.decode)
    if not isinstance(operation, Operation):
        return NOT_PLACED
    state, by = operation.state.value, operation.by or None
    return operation.operation_id, operation.kind.value, state, by, operation.started_ms
