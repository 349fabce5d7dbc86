"""Running a plan: its statement or its drains, and where the operation that follows is to be seen (VOL-009)."""

from __future__ import annotations

from app.console import actions
from app.console.fragments import link
from app.console.plan import Plan, Wish, stamp_of
from app.console.shared import Site
from catalog.core.errors import ErrorKind, RefusedError
from rebalance.core.operation import Operation

BEGUN_S = 15.0
"""A controller names the operation when the placement is computed; later the list of operations shows it."""


async def run_plan(site: Site, plan: Plan, by: str, reason: str) -> str:
    """The address to follow it at. Raises StatementError; nothing is run when the plan would be another now."""
    snapshot = await site.snapshot()
    if stamp_of(snapshot) != plan.stamp:
        message = "zones or nodes have changed since the plan was made: nothing was run, make it again"
        raise RefusedError(ErrorKind.CATALOG_VERSION_CONFLICT, message)
    revision = site.services.mirror.revision
    if plan.statement:
        await site.services.run_guarded(plan.statement, plan.catalog_version)
    for node in plan.asked.nodes:
        if plan.asked.wish is Wish.OUT:
            await actions.drain(site, node, by, reason)
        else:
            await actions.undrain(site, node)
    return await _address(site, plan, revision)


async def _address(site: Site, plan: Plan, revision: int) -> str:
    """Of the operation of the one zone that moves; of several zones, the list of operations that go on."""
    zones = {each.zone_id: each.answer.zone for each in plan.zones}
    mirror, prefix = site.services.mirror, site.services.views.keyspace.operations

    def begun() -> list[str]:
        newer = (item for item in mirror.below(prefix) if item.create_revision > revision)
        found = (Operation.decode(item.value) for item in newer)
        return [each.operation_id for each in found if each.zone_id in zones]

    if len(zones) != 1:
        return link("operations", show="open")
    if await mirror.wait_until(lambda: bool(begun()), BEGUN_S):
        return link("operations", begun()[-1])
    (zone,) = zones.values()
    return link("operations", zone=zone)
