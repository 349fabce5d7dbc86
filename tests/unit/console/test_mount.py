"""The console in the server: started without a visitor, and every page of it drawn once.

NiceGUI's application is a global, so one test draws all pages."""

from __future__ import annotations

import asyncio
import html
import subprocess
import sys
from pathlib import Path

import httpx

from app.bootstrap.server import build_app
from app.console.mount import Console
from tests.console.scenes import small
from tests.console.stage import services_of
from tests.fixtures.open_console import open_console
from tests.unit.sql_world import opened

PAGES = {
    "": "Blocked by",
    "zones": "TELEMETRY",
    "zones/ORDERS": "As a statement",
    "zones/SESSIONS/partitions/3": "Placement by node",
    "map": "Partitions that are not done",
    "map?zone=SESSIONS&show=unsettled&from=3&to=9": "partitions <strong>3</strong> to <strong>9</strong>",
    "map?zone=SESSIONS&show=nonsense&from=x": "partitions <strong>0</strong>",
    "nodes": "Replicas by node",
    "nodes/n8": "Drained by grace: new disks",
    "nodes/nobody": "Node nobody does not exist",
    "operations": "alter zone",
    "operations?zone=ORDERS&show=open": "create zone",
    "operations/9-9": "there is no operation 9-9",
    "rebalance": "Limits",
    "alerts": "No alert fires.",
    "alerts/NodeDown": "How to know that it is over",
    "alerts/Nobody": "there is no alert Nobody",
    "sql?text=SHOW+NODES": "SHOW NODES",
    "what-if?zone=ORDERS&add=n9": "Computing the placement",
    "plan": "No plan yet",
    "plan?wish=nonsense": "change the number of replicas",
    "plan?wish=out&nodes=n1": "Making the plan",
    "audit": "one region may be lost",
    "audit?by=grace": "create zone",
    "audit?subject=NOTHING": "No matching change",
    "zones/NOWHERE": 'zone "NOWHERE" does not exist',
    "map?zone=NOWHERE": 'zone "NOWHERE" does not exist',
    "zones/ORDERS/partitions/99": "zone ORDERS has partitions 0 to 7",
}


async def test_every_page_is_drawn(tmp_path: Path) -> None:
    async with opened(tmp_path, nodes=()) as world, services_of(world) as services:
        await small(world)
        console = Console(rest_s=0)
        running = asyncio.create_task(console.run(services))
        transport = httpx.ASGITransport(build_app(services, console=console))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
                # Nobody has asked for a page yet.
                async with asyncio.timeout(60):
                    await console.started()
                for path, shown in PAGES.items():
                    answer = await client.get(f"/console/{path}")
                    assert answer.status_code == 200, path
                    text = html.unescape(answer.text.replace("\\", ""))
                    assert shown in html.unescape(text), path
                    assert "cannot be drawn" not in text, path
                assert (await client.get("/console/nowhere")).status_code == 404
                assert (await client.get("/healthz")).json() == {"status": "ok"}
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_without_a_console_the_api_is_all_there_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as world, services_of(world) as services:
        transport = httpx.ASGITransport(build_app(services))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.get("/console/")).status_code == 404


def test_the_server_starts_without_the_pages() -> None:
    """The pages are half a second of imports: neither nicegui nor jinja2 is loaded."""
    code = "import app.bootstrap.server, sys; sys.exit('nicegui' in sys.modules or 'jinja2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_nothing_of_a_console_goes_on_when_it_has_ended(tmp_path: Path) -> None:
    """A page whose browser never came has something that would send to it."""
    async with open_console(tmp_path) as console, console.browser("olga") as browser:
        assert (await browser.open("/console/zones")).status_code == 200
        assert senders() != []
    async with asyncio.timeout(60):
        while senders():
            await asyncio.sleep(0.01)


async def test_a_console_that_ends_sends_no_page_away(tmp_path: Path) -> None:
    """A page that is told that it is gone is loaded anew, and stays away where its server ends right then."""
    async with opened(tmp_path) as world, services_of(world) as services:
        console = Console(rest_s=0)
        running = asyncio.create_task(console.run(services))
        transport = httpx.ASGITransport(build_app(services, console=console))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
            async with asyncio.timeout(60):
                await console.started()
            assert (await client.get("/console/_nicegui/kept/gone")).status_code == 410
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for path in ("_nicegui/kept/gone", "zones"):
                answer = await client.get(f"/console/{path}")
                assert answer.status_code == 503
                assert answer.headers["Refresh"] == "2"


def senders() -> list[str]:
    names = (task.get_name() for task in asyncio.all_tasks())
    return [name for name in names if name.startswith("outbox loop")]
