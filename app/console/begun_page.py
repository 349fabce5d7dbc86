"""``/console/operations/begun``: the operation of a change, from the moment at which the change was made.

A controller names the operation with its placement, which may take a while: Spark starts, no controller leads,
a timer runs. Until then the page says what that waits for; then it becomes the operation's own.
"""

from __future__ import annotations

from fastapi import Request

from app.console import actions
from app.console.controls import action_link
from app.console.feed import Topic
from app.console.fragments import Fragment, link, render
from app.console.frame import console_page, page_frame, replace_page
from app.console.shared import Site
from app.console.viewer import shown_cause
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import ZoneId
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.readable import read
from rebalance.core.operations.operation import Operation


def address(zone: str, revision: int) -> str:
    """Return the address of the first operation of ``zone`` that is younger than the metastore's
    ``revision``."""
    return link("operations", "begun", zone=zone, after=revision)


def begun(site: Site, zone_id: ZoneId, after: int) -> str:
    """The operation's name; empty: it is not there yet."""
    services = site.services
    items = services.mirror.below(services.views.keyspace.zone_operations(zone_id))
    newer = (item for item in items if item.create_revision > after)
    first = min(newer, key=lambda item: item.create_revision, default=None)
    operation = read(first, Operation.decode)
    return operation.operation_id if isinstance(operation, Operation) else ""


def wait_of(site: Site, zone_id: ZoneId, catalog: CatalogSnapshot) -> str:
    """Return what naming it waits for; empty: the zone's data nodes are what they were."""
    intent = site.feed.intents.get(zone_id)
    committed = next((zone for zone in catalog.zones if zone.zone_id == zone_id), None)
    if intent is None or (intent.version < catalog.version and intent.zone != committed):
        return Cause.INTENT_NOT_PUBLISHED.text()
    return shown_cause(site.services.views.whole_wait(intent))


def register(site: Site) -> None:
    @console_page("/operations/begun")
    async def operation_begun(request: Request, zone: str, after: int) -> None:
        with page_frame(site, request, "Operation", "operations") as frame:
            target = await site.zone(zone)
            head = Fragment()
            note = "The change is committed. Its moves are being computed."
            head.show(render("title", title=f"Operation of {target.name}", note=note))
            waiting = Fragment("panel")
            action_link("All operations of the zone", link("operations", zone=target.name))

            async def draw() -> None:
                name = begun(site, target.zone_id, after)
                if name:
                    replace_page(link("operations", name))
                    return
                limits, _ = await actions.limits(site)
                own = [pause for pause in limits["zone_pauses"] if pause["zone_id"] == target.zone_id]
                pause = limits["pause"] or next(iter(own), None)
                cause = wait_of(site, target.zone_id, await site.catalog())
                waiting.show(render("operation_begun", cause=cause, pause=pause))

            await frame.live(draw, Topic.ZONES, Topic.NODES, Topic.LIMITS, Topic.OPERATIONS)
