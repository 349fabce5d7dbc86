"""Every page in Chromium: free of serious faults for those who read it with help, light and dark, and of
requests to anywhere else; forms and drill-downs do what they say."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from playwright.sync_api import Page, expect

from app.security.administrator import LOCAL_ADMIN
from rebalance.core.admission.limit_options import LIMIT_OPTIONS, LimitKind
from tests.fixtures.console_pages import click_a_cell, faults, settled, tab_to, type_into_editor
from tests.fixtures.console_stage import Chromium, Stage, Theme, Visit
from tests.fixtures.slices import in_every_run

PAGES = (
    "",
    "zones",
    "zones/ORDERS",
    "zones/SESSIONS/partitions/3",
    "map?zone=ORDERS",
    "map?zone=SESSIONS",
    "nodes",
    "nodes/n7",
    "operations",
    "rebalance",
    "plan",
    "plan?wish=out&nodes=n1",
    "plan?wish=in&nodes=n1",
    "sql",
    "what-if?zone=TELEMETRY&add=n9,n10&remove=n1",
    "audit",
    "audit?subject=NOTHING",
    "alerts",
    "alerts/NodeDown",
    "users",
    "account",
    "recovery",
    "recovery?zone=ORDERS",
    "zones/NOWHERE",
)
pytestmark = pytest.mark.timeout(600)
EMPTY_PAGES = ("", "zones", "map", "nodes", "what-if")
LOOKS = [(path, theme) for path in PAGES for theme in ("light", "dark")]
"""The colours of a theme are the same on every page."""
DARK_PAGES = ("zones/ORDERS", "map?zone=ORDERS", "sql")
LOOKED_AT = [(path, theme) for path, theme in LOOKS if theme == "light" or path in DARK_PAGES]


@pytest.fixture(scope="module")
def links() -> dict[str, frozenset[str]]:
    """Paths that pages which were open lead to, by their own: each is drawn once for several tests."""
    return {}


def links_of(page: Page) -> frozenset[str]:
    addresses = page.get_by_role("link").evaluate_all("links => links.map((link) => link.href)")
    return frozenset(address for address in addresses if "#" not in address)


@pytest.mark.parametrize(("path", "theme"), in_every_run(LOOKS, LOOKED_AT))
def test_pages_have_no_serious_fault(
    chromium: Chromium, stage: Stage, links: dict[str, frozenset[str]], path: str, theme: Theme
) -> None:
    with chromium.visiting(stage, theme) as visit:
        page = visit.open(path)
        if path != "zones/NOWHERE":
            settled(page)
        links[path] = links_of(page)
        assert faults(page) == []
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == (theme == "dark")


def test_every_link_leads_to_a_page(visit: Visit, links: dict[str, frozenset[str]]) -> None:
    for path in PAGES:
        if path not in links:
            links[path] = links_of(visit.open(path))
    addresses = frozenset().union(*links.values())
    assert len(addresses) > len(PAGES)
    for address in sorted(addresses):
        assert visit.page.request.get(address).status == 200, address


@pytest.mark.parametrize("path", EMPTY_PAGES)
def test_an_empty_installation_says_what_to_do(chromium: Chromium, empty_stage: Stage, path: str) -> None:
    with chromium.visiting(empty_stage) as visit:
        page = visit.open(path)
        settled(page)
        assert faults(page) == []
        if path != "nodes":
            hint = page.get_by_role("main").get_by_role("link", name=re.compile("SQL editor"))
            expect(hint.first).to_be_visible()


def test_the_keyboard_reaches_the_page_past_the_navigation(visit: Visit) -> None:
    page = visit.open("")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    inside = page.evaluate("document.activeElement.closest('.page') !== null")
    assert inside


@pytest.mark.row("VOL-009")
def test_a_plan_is_made_and_given_up_by_keyboard(visit: Visit) -> None:
    """The first button makes and shows it, the second asks before it runs (VOL-009)."""
    page = visit.open("plan?wish=out")
    tab_to(page, "Skip to the page")
    page.keyboard.press("Enter")
    tab_to(page, "Nodes")
    page.keyboard.type("n1")
    tab_to(page, "Make the plan")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("replicas to copy"))).to_be_visible()
    expect(page).to_have_url(re.compile("nodes=n1"))
    units = page.get_by_role("table").first
    for title in ("Source", "Target node", "Replicas", "To copy (estimate)"):
        expect(units.get_by_role("columnheader", name=title)).to_be_visible()
    tab_to(page, "Run the plan")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("copies are made")
    # It takes the shade behind the dialog for what its buttons stand on.
    assert [each for each in faults(page, ".ask") if not each.startswith("color-contrast")] == []
    expect(dialog.get_by_label("Reason")).to_be_focused()
    tab_to(page, "Cancel")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Run the plan")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Run the plan")).to_be_focused()


def test_what_cannot_be_planned_says_why(visit: Visit) -> None:
    page = visit.open("plan?wish=in&nodes=n1")
    expect(page.get_by_role("alert")).to_contain_text("node n1 is not leaving; nodes that are: n8")
    expect(page.get_by_role("button", name="Run the plan")).to_be_hidden()


def test_the_audit_says_who_did_what_and_is_searched(visit: Visit) -> None:
    page = visit.open("audit")
    row = page.get_by_role("row", name=re.compile("alter zone"))
    expect(row).to_contain_text("ada (not verified)")
    expect(row).to_contain_text("CONSOLE")
    row.get_by_text("Details").click()
    expect(row).to_contain_text("one region may be lost")
    page.get_by_label("User").fill("grace")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("row", name=re.compile("create zone"))).to_have_count(4)
    expect(page.get_by_text("alter zone")).to_have_count(0)
    expect(page).to_have_url(re.compile("by=grace"))


def test_an_open_audit_log_shows_what_is_no_change_of_the_catalog(
    chromium: Chromium, empty_stage: Stage
) -> None:
    with chromium.visiting(empty_stage) as visit:
        page = visit.open("audit?action=CHANGE LOG LEVEL")
        expect(page.get_by_text("No matching change")).to_be_visible()
        change = {"level": "debug", "for_s": 60, "by": "grace", "reason": "a page waits"}
        url = urljoin(visit.url, "/api/v1/log-levels/app.console")
        httpx.put(url, json=change, timeout=60, trust_env=False).raise_for_status()
        expect(page.get_by_role("row", name=re.compile("app.console"))).to_contain_text("a page waits")


def test_the_theme_stays_when_it_was_chosen(visit: Visit) -> None:
    page = visit.open("nodes")
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(page.locator("body.body--dark")).to_be_attached()
    visit.open("zones")
    expect(page.locator("body.body--dark")).to_be_attached()


def test_a_lost_connection_is_told_and_found_again(chromium: Chromium, empty_stage: Stage) -> None:
    """The empty stage is stopped and begins anew."""
    with chromium.visiting(empty_stage) as visit:
        page = visit.open("operations?show=open")
        page.evaluate("window.sameDocument = true")
        empty_stage.stop()
        expect(page.get_by_text("Connection lost")).to_be_visible()
        status = "getComputedStyle(document.querySelector('[role=status]'), '::after').content"
        page.wait_for_function(f"{status}.includes('not connected')")
        empty_stage.restart()
        expect(page.get_by_text("in progress")).to_be_visible()
        page.wait_for_function("!window.sameDocument")
        expect(page.get_by_role("status")).to_contain_text("live")
        expect(page).to_have_url(re.compile("show=open"))


def test_the_map_leads_to_the_reasons_of_a_partition(visit: Visit) -> None:
    page = visit.open("map?zone=SESSIONS")
    page.get_by_label("Partition", exact=True).fill("5")
    page.get_by_role("button", name="Explain placement").click()
    expect(page.get_by_role("heading", name="Partition 5")).to_be_visible()
    reasons = page.get_by_role("table").filter(has_text="Verdict")
    expect(reasons.get_by_role("row", name=re.compile(r"^n7\b"))).to_contain_text("the node is down")
    expect(reasons).to_contain_text("in the rendezvous order")


def test_a_change_that_does_not_succeed_is_shown_on_its_partition(visit: Visit, stage: Stage) -> None:
    """Show a failed change on its partition's page without a reload, and not on another partition's."""
    page = visit.open("zones/SESSIONS/partitions/5")
    panel = page.locator(".panel").filter(has_text="Failed changes")
    expect(panel).to_contain_text("None.")
    stage.tell("fail n1 SESSIONS 5 MEMBER_FAILED: n2: <b>NO_DISK</b>")
    expect(panel.get_by_role("row").nth(1)).to_contain_text("member failed")
    expect(panel).to_contain_text("MEMBER_FAILED: n2: <b>NO_DISK</b>")
    expect(panel.get_by_role("link", name="n1")).to_be_visible()
    assert faults(page) == []
    visit.open("zones/SESSIONS/partitions/6")
    expect(panel).to_contain_text("None.")


def test_a_click_on_the_map_opens_what_it_shows(visit: Visit) -> None:
    page = visit.open("map?zone=ORDERS")
    settled(page)
    click_a_cell(page)
    expect(page.get_by_role("heading", name=re.compile("Partition [345]"))).to_be_visible()


def test_the_address_holds_the_state_of_the_map(chromium: Chromium, visit: Visit, stage: Stage) -> None:
    page = visit.open("map?zone=SESSIONS&show=unsettled&from=2&to=9")
    expect(page.locator(".crumbs")).to_contain_text("partitions 2 to 9 of 24")
    with chromium.visiting(stage) as other:
        again = other.open(page.url.removeprefix(stage.url))
        expect(again.locator(".crumbs")).to_contain_text("partitions 2 to 9 of 24")
        expect(again.get_by_text("not done", exact=True)).to_be_visible()


def test_what_if_tells_movement_and_balance_and_does_nothing(visit: Visit) -> None:
    page = visit.open("what-if?zone=TELEMETRY")
    page.get_by_label("Nodes to add").fill("n9")
    page.get_by_label("Nodes to remove").fill("n1")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name=re.compile("replicas would be copied"))).to_be_visible()
    expect(page.get_by_text("Largest moves")).to_be_visible()
    expect(page).to_have_url(re.compile("remove=n1"))
    page.get_by_label("Nodes to remove").fill("n99")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("alert")).to_contain_text("n99 is not a data node of zone TELEMETRY")


def test_pause_and_resume_need_no_reason(visit: Visit) -> None:
    page = visit.open("rebalance")
    page.get_by_role("button", name="Pause all moves").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Reason", exact=True)).to_be_focused()
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_text(f"All moves are paused by {LOCAL_ADMIN}")).to_be_visible()
    page.get_by_role("button", name="Resume", exact=True).click()
    dialog.get_by_label("Reason").fill("disks are in")
    dialog.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("Moves are not paused.")).to_be_visible()


HINTS_OUTSIDE = """() => [...document.querySelectorAll('.limits .q-field')]
  .filter((field) => field.querySelector('.q-field__messages').getBoundingClientRect().bottom
    > field.getBoundingClientRect().bottom + 1)
  .map((field) => field.innerText)"""
"""Fields whose hint runs over what stands below them."""


def test_limits_are_set_and_refused_as_the_api_does(visit: Visit) -> None:
    page = visit.open("rebalance")
    for option in LIMIT_OPTIONS:
        is_switch = option.kind is LimitKind.SWITCH
        field = page.get_by_role("checkbox", name=option.text) if is_switch else page.get_by_label(option.title)
        expect(field.first).to_be_visible()
    assert page.evaluate(HINTS_OUTSIDE) == []
    page.get_by_label("Away from each node", exact=True).fill("2")
    page.get_by_label("Windows, UTC").fill("nightly")
    page.get_by_role("checkbox", name="Keep copies").click()
    page.get_by_role("button", name="Set limits").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Away from each node: 2")
    dialog.get_by_label("Reason").fill("a slow network")
    dialog.get_by_role("button", name="Set limits").click()
    expect(dialog.get_by_role("alert")).to_contain_text("nightly")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    page.get_by_label("Windows, UTC").fill("22:00-04:00; Sat,Sun 00:00-24:00")
    page.get_by_role("button", name="Set limits").click()
    dialog.get_by_label("Reason").fill("a slow network")
    dialog.get_by_role("button", name="Set limits").click()
    expect(dialog).to_be_hidden()
    visit.open("rebalance")
    expect(page.get_by_label("Away from each node", exact=True)).to_have_value("2")
    expect(page.get_by_label("Windows, UTC")).to_have_value("22:00-04:00; Sat,Sun 00:00-24:00")
    expect(page.get_by_role("checkbox", name="Keep copies")).to_be_checked()


def test_an_operation_is_paused_and_goes_on(visit: Visit) -> None:
    page = visit.open("operations?zone=SESSIONS")
    page.get_by_role("table").get_by_role("row").nth(1).get_by_role("link").first.click()
    for action, reason, state in (("Pause", "look first", "paused"), ("Resume", "looked", "running")):
        page.get_by_role("button", name=action, exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill(reason)
        dialog.get_by_role("button", name=action, exact=True).click()
        expect(dialog).to_be_hidden()
        expect(page.get_by_role("heading", name=re.compile("^Progress"))).to_contain_text(
            re.compile(f"{state}|waiting")
        )
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Cancel", exact=True)).to_have_count(1)
    dialog.get_by_role("button", name="Do not cancel").click()
    expect(dialog).to_be_hidden()
    # A note that fades is between two colours.
    expect(page.locator(".q-notification")).to_have_count(0)
    assert faults(page) == []


def test_a_drain_is_made_and_taken_back(visit: Visit) -> None:
    page = visit.open("nodes/n5")
    for button, reason, state in (("Drain", "old", f"Drained by {LOCAL_ADMIN}"), ("Undrain", "kept", None)):
        page.get_by_role("button", name=button, exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill(reason)
        dialog.get_by_role("button", name=button, exact=True).click()
        expect(dialog).to_be_hidden()
        if state is not None:
            expect(page.get_by_text(state)).to_be_visible()
    expect(page.get_by_role("button", name="Drain", exact=True)).to_be_visible()


def test_whether_a_node_can_stop_is_told_with_what_would_be_lost(visit: Visit) -> None:
    page = visit.open("nodes/n1")
    page.get_by_role("button", name="Check whether it can stop").click()
    expect(page.get_by_role("heading", name=re.compile("The node (can|cannot) stop now"))).to_be_visible()
    expect(page.get_by_text("LEADER").first).to_be_visible()


def test_a_syntax_error_is_marked_where_it_is(visit: Visit) -> None:
    page = visit.open("sql")
    type_into_editor(page, "SHOW ZONES;\nCREATE ZONE b\n  (PARTITIONS 4, REPLICAZ 3)")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("line 3, column 18")
    expect(page.locator(".cm-wrong")).to_have_text("REPLICAZ")
    expect(page.locator(".cm-wrong-line")).to_have_count(1)
    type_into_editor(page, "SHOW ZONES")
    expect(page.locator(".cm-wrong")).to_have_count(0)


def test_a_refusal_of_the_catalog_is_marked_too(visit: Visit) -> None:
    page = visit.open("sql")
    type_into_editor(page, "DROP ZONE nowhere")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("alert")).to_contain_text("ZONE_NOT_FOUND")
    expect(page.locator(".cm-wrong")).to_have_text("nowhere")


def test_answers_are_a_grid_and_files(visit: Visit, tmp_path: Path) -> None:
    page = visit.open("sql")
    type_into_editor(page, "SELECT zone_name, zone_partitions FROM zones ORDER BY 1")
    page.keyboard.press("ControlOrMeta+Enter")
    grid = page.locator(".ag-root-wrapper")
    expect(grid.get_by_text("TELEMETRY")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    target = tmp_path / "zones.csv"
    download.value.save_as(target)
    rows = list(csv.reader(target.read_text().splitlines()))
    assert [row[0] for row in rows[1:]] == ["ORDERS", "REFERENCE", "SESSIONS", "TELEMETRY"]
    visit.page.reload()
    expect(page.locator(".cm-content")).to_contain_text("zone_partitions FROM zones")


def test_explain_shows_what_would_move(visit: Visit) -> None:
    page = visit.open("sql")
    type_into_editor(page, "ALTER ZONE telemetry SET (REPLICAS 5)")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".ag-root-wrapper").get_by_text("STATEMENT", exact=True)).to_be_visible()
    visit.open("zones/TELEMETRY")
    expect(page.locator("dl")).to_contain_text("Replicas3")


def test_the_bars_of_a_zone_add_up_to_its_replicas(visit: Visit) -> None:
    """Count a leader as a voter and as one copy: 8 partitions of 3 replicas are 24."""
    page = visit.open("zones/ORDERS")
    settled(page)
    total = """() => {
      const chart = getElement(document.querySelector('.nicegui-echart'))?.chart;
      const series = chart?.getOption()?.series ?? [];
      return series.flatMap((each) => each.data).reduce((sum, each) => sum + each, 0);
    }"""
    page.wait_for_function(f"({total})() > 0")
    assert page.evaluate(total) == 8 * 3


def test_a_change_is_seen_without_reloading(visit: Visit, stage: Stage) -> None:
    """The last test of its stage, which loses a node."""
    page = visit.open("")
    expect(page.get_by_text("7 of 8 alive")).to_be_visible()
    page.evaluate("window.sameDocument = true")
    stage.tell("down n3")
    expect(page.get_by_text("6 of 8 alive")).to_be_visible()
    assert page.evaluate("window.sameDocument")


OFFERED = """() => [...document.querySelectorAll('.cm-tooltip-autocomplete .cm-completionLabel')]
  .map((label) => label.textContent)"""


def test_the_editor_offers_what_is_ours(visit: Visit, stage: Stage) -> None:
    """Options, views, columns of those that are named, and zones that came while the page was open."""
    page = visit.open("sql")
    written = {
        "ALTER ZONE orders SET (REP": ["REPLICAS"],
        "SELECT * FROM assi": ["assignments"],
        "SELECT 1 FROM zones WHERE zone_na": ["zone_name"],
        "SELECT 1 FROM nodes WHERE zone_": ["zone_storage_profiles"],
        "DROP ZONE TELE": ["TELEMETRY"],
        "ASS": ["assignments"],
        "CREATE USER a PASS": ["PASSWORD"],
    }
    page.wait_for_function("document.querySelector('.cm-content') && document.querySelector('#sql-zones')")
    for text, offered in written.items():
        type_into_editor(page, text[:-1])
        page.keyboard.type(text[-1])
        page.wait_for_function(f"({OFFERED})().length > 0")
        assert page.evaluate(OFFERED) == offered, text
    type_into_editor(page, "DROP ZONE TEL")
    stage.tell("sql CREATE ZONE telex (PARTITIONS 1) STORAGE PROFILES ['default']")
    page.wait_for_function("document.querySelector('#sql-zones').dataset.names.includes('TELEX')")
    page.keyboard.type("E")
    page.wait_for_function(f"({OFFERED})().join() === 'TELEMETRY,TELEX'")
    page.get_by_role("option", name="TELEX").click()
    expect(page.locator(".cm-content")).to_contain_text("DROP ZONE TELEX")
