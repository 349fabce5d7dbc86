"""Running a plan: its statement or its drains, and where the operation that follows is to be seen (VOL-009)."""

from __future__ import annotations

from app.console import actions, begun_page
from app.console.fragments import link
from app.console.plan import PlanPage, Wish, plan_id_now
from app.console.shared import Site
from app.sql.change_plan import refuse_other


async def run_plan(site: Site, plan: PlanPage, by: str, reason: str) -> str:
    """The address to follow it at. Raises StatementError; nothing is run when the plan would be another now."""
    revision = site.services.mirror.revision
    if plan.statement:
        await site.services.sql.run_planned(plan.statement, str(plan.plan_id))
    else:
        refuse_other(plan.plan_id, plan_id_now(plan.asked, await site.snapshot()))
    for node in plan.asked.nodes:
        act = actions.drain if plan.asked.wish is Wish.OUT else actions.undrain
        await act(site, node, by, reason)
    zones = [each.answer.zone for each in plan.zones]
    # Of several zones, the list of operations that go on; nobody waits here for a controller to name them.
    return begun_page.address(zones[0], revision) if len(zones) == 1 else link("operations", show="open")
