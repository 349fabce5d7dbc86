"""An operation as its page shows it, of zones whose partitions are too many to be read for each look.

The counts are those of the zone's arrays then, which are read as they change; the rest is the record's.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np

from app.console.cells import MoveCell
from app.console.shared import Site
from app.console.viewer import shown_cause
from app.console.zone_grid import Numbers, ZoneGrid
from app.contract.operations import OperationPlanBody
from app.views.keyspace_views import KeyspaceViews
from app.views.operation_views import OperationViews, history_of
from rebalance.core.causes.cause import Cause
from rebalance.core.operations.operation import OperationKind

Json = dict[str, Any]

PARTITIONS_FEW = 2_000
"""Maximum number of partitions that are read one by one, as the API does."""
NUMBERS_SHOWN = 20
NEXT = Cause.PLANNED_NEXT.text()
"""Cause of a partition that is at rest where it was, and not yet where the operation wants it."""


def grid_of(site: Site, name: str) -> ZoneGrid | None:
    """The arrays that tell how far the operation is; None: the API has to be asked."""
    views = _views(site)
    operation, _ = views.find(name) or (None, None)
    grid = site.feed.grids.get(operation.zone_id) if operation is not None else None
    if operation is None or grid is None or grid.partitions <= PARTITIONS_FEW or operation.is_over:
        return None
    of_whole_zone = operation.kind is not OperationKind.RESET and views.is_newest(operation)
    return grid if of_whole_zone else None


def summary_of(site: Site, name: str, grid: ZoneGrid) -> Json | None:
    """Return the operation as the API describes it, without the plan; None: it is not remembered any more. What
    was done stays done, as the record has it."""
    views = _views(site)
    record = views.find(name)
    if record is None:
        return None
    summary = views.summary(*record, time.time_ns() // 1_000_000)
    progress = summary["progress"]
    # Arrays of an earlier target would count what has arrived there.
    arrived = int(np.count_nonzero(grid.arrived)) if grid.event == record[0].event_revision else 0
    partitions = {
        "total": max(progress["partitions"]["total"], grid.partitions),
        "done": max(progress["partitions"]["done"], arrived),
        "moving": int(np.count_nonzero(~grid.arrived & (grid.moves == MoveCell.MOVING))),
        "waiting": len(_waiting(grid)),
    }
    return {
        **summary,
        "history": history_of(record[0]),
        "progress": {**progress, "partitions": partitions},
        "waiting": waiting_of(grid),
    }


def waiting_of(grid: ZoneGrid) -> list[Json]:
    """Return what waits, by cause, the most frequent first."""
    numbers: dict[str, list[int]] = {}
    for number in _waiting(grid).tolist():
        numbers.setdefault(shown_cause(grid.causes[number]) or NEXT, []).append(number)
    causes = [
        {"cause": cause, "partitions": len(waiting), "numbers": waiting[:NUMBERS_SHOWN]}
        for cause, waiting in numbers.items()
    ]
    return sorted(causes, key=lambda row: (-row["partitions"], row["cause"]))


def _waiting(grid: ZoneGrid) -> Numbers:
    return np.flatnonzero(~grid.arrived & ((grid.moves == MoveCell.WAITING) | (grid.moves == MoveCell.DONE)))


async def plan_of(site: Site, name: str) -> OperationPlanBody | None:
    """Return the plan, in a thread: sizes of all partitions are read for it."""
    keys, keyspace = site.services.mirror.copy(), site.services.views.keyspace
    ownership = site.services.views.ownership

    def plan() -> OperationPlanBody | None:
        views = OperationViews(keys, keyspace, KeyspaceViews(keys, keyspace, ownership=lambda: ownership))
        record = views.find(name)
        return None if record is None else views.plan(record[0])

    return await asyncio.to_thread(plan)


def _views(site: Site) -> OperationViews:
    services = site.services
    return OperationViews(services.mirror, services.views.keyspace, services.views)
