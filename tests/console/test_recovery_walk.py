"""A majority of real members is killed and the way back is taken through the console alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from app.security.administrator import LOCAL_ADMIN
from tests.e2e.installation import Installation, wait_for, without_spark
from tests.fixtures.console_stage import Chromium
from tests.fixtures.recovery_commands import freeze

ENDED_MS = 240_000
ZONE = "CREATE ZONE shop (PARTITIONS 1, REPLICAS 3) STORAGE PROFILES ['default']"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("console")
    whole = Installation(directory / "data", 4, without_spark(directory))
    whole.start()
    yield whole
    whole.stop()


@pytest.mark.thorough("test_recovery walks through it on a stage")
@pytest.mark.slow("a majority is killed and its lease waited for")
@pytest.mark.timeout(1_800)
def test_a_lost_majority_is_recovered_in_the_console(chromium: Chromium, installation: Installation) -> None:
    """Recover a lost majority, from the cause on the overview to a group that takes writes again, with what was
    acknowledged before."""
    installation.execute(ZONE)
    key = "/api/v1/zones/SHOP/kv/k"
    assert installation.request("PUT", key, {"value": "kept"}).status_code == 200
    voters = installation.partitions("SHOP")[0]["stable"]["peers"]
    frozen = [freeze(installation, name) for name in voters[1:]]
    try:
        access = installation.access
        with chromium.visiting(f"{access.url}/console/", link=access.console_link()) as visit:
            page = visit.open("")
            page.get_by_role("link", name="recovery of SHOP").click(timeout=ENDED_MS)
            expect(page.get_by_text("1 of 1 partitions has no majority")).to_be_visible()
            _make_dry_run(page)
            best = page.get_by_role("row", name=re.compile(f"^{voters[0]} voter"))
            expect(best).to_contain_text("the survivor")
            page.get_by_role("button", name="Reset partitions").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Names of the dead nodes").fill(", ".join(voters[1:]))
            expect(dialog.get_by_label("Your name")).to_have_value(LOCAL_ADMIN)
            dialog.get_by_label("Reason").fill("two nodes burnt")
            dialog.get_by_role("button", name="Reset", exact=True).click()
            expect(dialog).to_be_hidden()
            ended = page.get_by_text(re.compile("1 of 1 partition has been recovered"))
            expect(ended).to_be_visible(timeout=ENDED_MS)
            expect(page.get_by_text("every group of the zone has a majority")).to_be_visible()
        wait_for("a write", lambda: installation.request("PUT", f"{key}2", {"value": "new"}).is_success)
        assert installation.get(key)["value"] == "kept"
        peers = installation.partitions("SHOP")[0]["stable"]["peers"]
        assert voters[0] in peers
        assert not set(peers) & set(voters[1:])
    finally:
        for agent in frozen:
            agent.resume()


def _make_dry_run(page: Page) -> None:
    """Again while the copy has not told how far it goes: the page names it then."""
    answered = page.get_by_role("heading", name=re.compile("can be reset"))
    possible = page.get_by_role("heading", name="1 of 1 partitions can be reset")

    def is_possible() -> bool:
        page.get_by_role("button", name="Dry run").click()
        expect(answered).to_be_visible()
        return bool(possible.is_visible())

    wait_for("a copy that has told how far it goes", is_possible, pause_s=1.0)
