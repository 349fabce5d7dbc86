"""Running a plan: its statement or its drains, and where the operation that follows is to be seen (VOL-009)."""

from __future__ import annotations

from app.console import actions, begun_page
from app.console.fragments import link
from app.console.plan import PlanPage, Wish, stamp_of
from app.console.shared import Site
from catalog.core.errors import ErrorKind, RefusedError


async def run_plan(site: Site, plan: PlanPage, by: str, reason: str) -> str:
    """The address to follow it at. Raises StatementError; nothing is run when the plan would be another now."""
    snapshot = await site.snapshot()
    if stamp_of(snapshot) != plan.stamp:
        message = "zones or nodes have changed since the plan was made: nothing was run, make it again"
        raise RefusedError(ErrorKind.CATALOG_VERSION_CONFLICT, message)
    revision = site.services.mirror.revision
    if plan.statement:
        await site.services.sql.run_guarded(plan.statement, plan.catalog_version)
    for node in plan.asked.nodes:
        if plan.asked.wish is Wish.OUT:
            await actions.drain(site, node, by, reason)
        else:
            await actions.undrain(site, node)
    zones = [change.answer.zone for change in plan.zones]
    # Of several zones, the list of operations that go on; nobody waits here for a controller to name them.
    return begun_page.address(zones[0], revision) if len(zones) == 1 else link("operations", show="open")
