"""Reversing an operation: the zone as it was before and the stored target of before, as one catalog version."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from app.sql.engine.executor import CatalogExecutor
from app.sql.views.view_snapshot import SystemSnapshot
from app.views.keyspace_views import KeyspaceViews
from app.views.operation_views import OperationViews
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import PLACED, CatalogSnapshot
from catalog.core.zone import Origin, Zone, ZoneIntent
from catalog.filters.json_path import JSON_PATH
from rebalance.controllers.event import why_not_restorable
from rebalance.controllers.operation_control import OperationControl, Reversible
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.topology.data_nodes import compute_data_nodes
from rebalance.metastore.mirror import KeyspaceMirror

TAKEN_UP_S = 3.0
"""An answer waits so long for a controller to write the operation that goes back."""


@dataclass(frozen=True, slots=True)
class Reversed:
    """``operation_id``: of the operation that goes back; None: no controller has taken it up yet."""

    version: int
    operation_id: str | None


@dataclass(eq=False)
class OperationReverse:
    """Raises RefusedError (REVERSE_IMPOSSIBLE and what reading an operation raises), StoreError and
    MetastoreError."""

    catalog: CatalogExecutor
    control: OperationControl
    mirror: KeyspaceMirror
    keyspace: Keyspace
    views: KeyspaceViews

    def __post_init__(self) -> None:
        self._operations = OperationViews(self.mirror, self.keyspace, self.views)

    async def reverse(self, name: str, by: str, reason: str, *, verified: bool) -> Reversed:
        reversible = await self.control.reversible(name)
        operation = reversible.operation
        before = (await self.catalog.snapshot(operation.before_version)).zone_with_id(operation.zone_id)
        after = (await self.catalog.snapshot(operation.catalog_version)).zone_with_id(operation.zone_id)
        if before is None or after is None:
            raise _impossible(name, "the catalog no longer has the zone's earlier version")
        keys = self.mirror.copy()

        def restored(catalog: CatalogSnapshot) -> Zone:
            now = catalog.zone_with_id(operation.zone_id)
            if now is None:
                raise _impossible(name, "its zone was dropped")
            changed = [setting for setting in PLACED if getattr(now, setting) != getattr(after, setting)]
            if changed:
                differences = ", ".join(f"{setting} is {_setting_text(now, setting)}" for setting in changed)
                raise _impossible(name, f"the catalog has moved on: {differences} in version {catalog.version}")
            zone = replace(now, **{setting: getattr(before, setting) for setting in PLACED})
            snapshot = SystemSnapshot(catalog, keys, self.keyspace, time.time_ns() // 1_000_000)
            self._check_data_nodes(reversible, zone, snapshot)
            return zone

        origin = Origin(
            by=by,
            verified=verified,
            reason=reason,
            restores=reversible.before.pointer.event_revision,
            reverses=name,
        )
        version = await self.catalog.restore(restored, f"REVERSE OPERATION {name}", origin)
        await self.control.end_pause(name)
        await self.mirror.wait_until(lambda: self._operations.reverse_of(operation) is not None, TAKEN_UP_S)
        back = self._operations.reverse_of(operation)
        return Reversed(version, back.operation_id if back is not None else None)

    def _check_data_nodes(self, reversible: Reversible, zone: Zone, snapshot: SystemSnapshot) -> None:
        name, stored = reversible.operation.operation_id, snapshot.views.data_nodes(zone.zone_id)
        intent = ZoneIntent(snapshot.catalog.version + 1, zone)
        nodes = compute_data_nodes(stored, snapshot.presence, intent, JSON_PATH, snapshot.taken_at_ms)
        leaving = sorted(set(reversible.before.pointer.nodes) & set(snapshot.drains))
        why = why_not_restorable(reversible.before, intent, nodes, zone.partitions)
        if why:
            more = f"; {', '.join(leaving)} is leaving: `zonectl node undrain` takes it back" if leaving else ""
            raise _impossible(name, f"of the target before it, {why}{more}")


def _setting_text(zone: Zone, field: str) -> str:
    value: Any = getattr(zone, field)
    return str(getattr(value, "value", value))


def _impossible(name: str, why: str) -> RefusedError:
    return RefusedError(ErrorKind.REVERSE_IMPOSSIBLE, f"operation {name} cannot be reversed: {why}")
