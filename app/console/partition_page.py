"""``/console/zones/{zone}/partitions/{number}``: where it is, why it is there, and what it waits for."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from nicegui import ui

from app.api.zones import get_partition
from app.console.actions import body
from app.console.feed import Topic
from app.console.fragments import Fragment, link, render
from app.console.frame import console_page, page_frame
from app.console.plan import quoted
from app.console.shared import Site
from app.console.viewer import page_refusal
from app.console.zone_grid import has_lost_majority
from app.sql.statements.results import ResultSet
from rebalance.core.keyspace.keys import PartitionId


def reasons(answer: ResultSet) -> list[dict[str, Any]]:
    """Rows of EXPLAIN PARTITION by column name, in lower case."""
    names = [column.name.lower() for column in answer.columns]
    return [dict(zip(names, row, strict=True)) for row in answer.rows]


def register(site: Site) -> None:
    @console_page("/zones/{zone:segment}/partitions/{number}")
    async def partition(request: Request, zone: str, number: int) -> None:
        with page_frame(site, request, f"{zone} partition {number}", "map") as frame:
            head = Fragment()
            with ui.element("div").classes("two"):
                state, phases = Fragment("panel"), Fragment("panel")
            why, members, failures = Fragment("panel"), Fragment("panel"), Fragment("panel")

            async def draw() -> None:
                owner = await site.zone(zone)
                document = body(await get_partition(owner.name, number, site.services))
                rows = reasons(await site.ask(f"EXPLAIN PARTITION {quoted(owner.name)}.{number}"))
                head.show(render("partition_head", zone=owner, number=number))
                view, _ = site.services.views.view(partition_id, None)
                lost = has_lost_majority(view, site.services.views.alive())
                is_led = lost and page_refusal("/recovery") is None
                recovery = link("recovery", zone=owner.name, partitions=number) if is_led else ""
                state.show(render("partition_state", partition=document, recovery=recovery))
                phases.show(render("partition_phases", phases=document["phases"]))
                why.show(render("partition_reasons", rows=rows))
                members.show(
                    render("partition_members", members=document["members"], copies=document["copies"])
                )
                failures.show(render("partition_failures", failures=document["failures"]))

            partition_id = PartitionId((await site.zone(zone)).zone_id, number)
            await frame.live(draw, partition_id, Topic.ZONES, Topic.NODES, Topic.LIMITS)
