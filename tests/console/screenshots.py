"""``make screenshots``: pictures of the console for the documentation, light and dark; of some scenes alone
where they are named."""

from __future__ import annotations

import sys

from playwright.sync_api import Page, expect, sync_playwright

from tests.fixtures.console_pages import settled
from tests.fixtures.console_stage import ROOT, Chromium, Stage, Theme, Visit, load

TARGET = ROOT / "docs" / "screenshots"
THEMES: tuple[Theme, ...] = ("light", "dark")
PICTURES = {
    "overview": "",
    "zones": "zones",
    "zone": "zones/SESSIONS",
    "map": "map?zone=SESSIONS",
    "partition": "zones/SESSIONS/partitions/3",
    "nodes": "nodes",
    "operations": "operations",
    "rebalance": "rebalance",
    "plan": "plan?wish=out&nodes=n1",
    "sql": "sql?text=SELECT+node_name,+zone_name,+partition_id,+role%0AFROM+assignments%0AORDER+BY+1,+2,+3",
    "what-if": "what-if?zone=TELEMETRY&add=n9,n10&remove=n1",
    "audit": "audit",
}
RECOVERY = {"recovery": "recovery?zone=REFERENCE"}
LARGE_MAP = "map?zone=LARGE"
BYTES_MAX = 200_000
READ_MS = 300_000
"""65,000 partitions on a busy machine."""


def shoot(visit: Visit, name: str, path: str, theme: Theme) -> None:
    page = visit.open(path, READ_MS)
    settled(page)
    if name == "sql":
        page.get_by_role("button", name="Run").click()
        page.get_by_role("heading", name="Result 1").wait_for()
    if name == "recovery":
        page.get_by_role("button", name="Dry run").click()
        page.get_by_role("heading", name="can be reset").wait_for()
    page.wait_for_timeout(1500)
    keep(page, name, theme)


def shoot_login(visit: Visit, theme: Theme) -> None:
    load(visit.page, f"{visit.url}login")
    expect(visit.page.get_by_role("button", name="Log in")).to_be_visible(timeout=READ_MS)
    keep(visit.page, "login", theme)


def keep(page: Page, name: str, theme: Theme) -> None:
    target = TARGET / f"{name}-{theme}.png"
    page.screenshot(path=target)
    size = target.stat().st_size
    print(f"{target.relative_to(ROOT)}: {size:,} bytes")
    if size >= BYTES_MAX:
        raise SystemExit(f"{target.name} is too large: at most {BYTES_MAX:,} bytes")


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    scenes = {"small": PICTURES, "lost": RECOVERY, "large": {"map-large": LARGE_MAP}}
    scenes = {name: scenes[name] for name in sys.argv[1:] or scenes}
    with sync_playwright() as playwright:
        browser = Chromium.launch(playwright)
        for scene, pictures in scenes.items():
            stage = Stage.start(scene)
            try:
                if scene == "large":
                    stage.tell("down node-012")
                for theme in THEMES:
                    with browser.visiting(stage, theme) as visit:
                        if scene == "small":
                            shoot_login(visit, theme)
                        load(visit.page, stage.link())
                        expect(visit.page.get_by_role("button", name="Log out")).to_be_visible(timeout=READ_MS)
                        for name, path in pictures.items():
                            shoot(visit, name, path, theme)
            finally:
                stage.stop()
        browser.close()


if __name__ == "__main__":
    main()
