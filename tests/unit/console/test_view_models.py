"""Overview, nodes, limits and addresses, as the pages show them."""

from __future__ import annotations

import pytest

from app.console.fragments import link, render, shares, size
from app.console.nodes_page import holdings, node_rows
from app.console.plan import quoted
from app.console.rebalance_page import changed_limits
from app.console.shared import ConsoleEvent
from app.console.zone_grid import (
    CopyCell,
    HealthCell,
    MoveCell,
    NodeLoad,
    PartitionReading,
    Role,
    ZoneGrid,
    cell,
)
from app.console.zone_states import ZoneState, health_bar, skew_of, stuck, tiles, unsettled, zone_state
from app.console.zones_page import named_in
from catalog.core.zone import Node, Zone, ZoneId
from rebalance.core.causes.cause import Cause
from rebalance.core.causes.cause_table import CAUSES
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.moves.drain import Drain

READY = {
    "ready": True,
    "catalog": "ok",
    "metastore": "ok",
    "nodes": 3,
    "spark": "ready",
    "spark_message": "local",
    "controller": "c1",
}


def zone(name: str) -> Zone:
    return Zone(ZoneId(1), name, 4, 3, None, ("default",))


def state(name: str, *causes: str, whole: str = "") -> ZoneState:
    """A zone with a partition for each cause, "" for one that is done."""
    grid = ZoneGrid(len(causes))
    healthy = (("a", cell(Role.LEADER, CopyCell.HEALTHY)),)
    grid.place(
        range(len(causes)),
        [
            PartitionReading(healthy, MoveCell.WAITING if cause else MoveCell.DONE, HealthCell.AVAILABLE, cause)
            for cause in causes
        ],
    )
    return zone_state(zone(name), grid, whole)


@pytest.mark.parametrize(
    ("changed", "known", "tones"),
    [
        ({}, 3, ["ok", "ok", "ok", "ok", "ok"]),
        ({"metastore": "no answer within 1 s"}, 3, ["ok", "bad", "ok", "ok", "ok"]),
        ({"controller": None, "spark": "unknown"}, 3, ["ok", "ok", "bad", "idle", "ok"]),
        ({"spark": "starting"}, 5, ["ok", "ok", "ok", "warn", "bad"]),
        ({}, 0, ["ok", "ok", "ok", "ok", "warn"]),
    ],
)
def test_tiles_say_what_is_wrong(changed: dict, known: int, tones: list[str]) -> None:
    assert [tile.tone for tile in tiles({**READY, **changed}, min(known, 3), known)] == tones


def test_missing_nodes_are_counted() -> None:
    assert tiles(READY, 3, 5)[-1].value == "3 of 5 alive"


def test_causes_of_all_zones_by_their_first_word() -> None:
    states = [
        state("A", "NODE_DOWN: n1", "NODE_DOWN: n1", "NODE_DOWN: n2", ""),
        state("B", "NODE_DOWN: n1", "PAUSED: by ada"),
    ]
    first, second = stuck(states)
    assert (first.word, first.partitions, first.detail, first.zones) == ("NODE_DOWN", 4, "n1", ("A", "B"))
    assert first.advice == CAUSES[Cause.NODE_DOWN].action
    assert (second.word, second.detail) == ("PAUSED", "by ada")


def test_what_is_not_settled_comes_furthest_first() -> None:
    states = [state("A", ""), state("B", "X", ""), state("C", "X", "X")]
    assert [each.zone.name for each in unsettled(states)] == ["C", "B"]
    assert health_bar(states) == [(HealthCell.AVAILABLE, 5)]


def test_a_zone_without_a_placement_waits_as_a_whole() -> None:
    found = state("A", "", "", whole="NO_DATA_NODES")
    assert (found.moves.waiting, found.word, found.causes) == (2, "waiting", (("NO_DATA_NODES", 2),))


def test_skew_counts_data_nodes_that_hold_nothing() -> None:
    loads = {"a": NodeLoad(replicas=4, voters=4, leaders=1), "b": NodeLoad(replicas=4, voters=2)}
    assert skew_of(loads, ["a", "b", "c"])["replicas"].max_min == 4
    assert skew_of(loads, ["a", "b"])["replicas"].max_min == 0
    assert skew_of({}, [])["voters"].max_min == 0


def test_nodes_that_are_missed_are_listed() -> None:
    live = {"a": NodeRecord(Node("a", member_limit=10), "i"), "b": NodeRecord(Node("b"), "i")}
    loads = {"a": NodeLoad(replicas=5), "gone": NodeLoad(replicas=1), "empty": NodeLoad()}
    rows = {row["name"]: row for row in node_rows(live, {"b": Drain("x", "", 0)}, loads, {})}
    assert {name: row["state"] for name, row in rows.items()} == {"a": "alive", "b": "drained", "gone": "down"}
    assert (rows["a"]["filled"], rows["gone"]["filled"]) == (50, None)
    page = render("node", name="gone", row=rows["gone"], drain=None, held=[])
    assert "<dt>attributes</dt><dd>unknown</dd>" in page
    assert "<dt>failure domain</dt><dd>unknown</dd>" in page


def test_a_limit_is_of_members_and_not_of_copies_in_stores() -> None:
    live = {"a": NodeRecord(Node("a", member_limit=100), "i")}
    (row,) = node_rows(live, {}, {"a": NodeLoad(replicas=3_796)}, {"a": 3_756})
    assert (row["members"], row["filled"]) == (40, 40)
    page = render("node", name="a", row=row, drain=None, held=[])
    assert "<dt>replicas</dt><dd>3,796</dd>" in page
    assert "<dd>40 of at most 100</dd>" in page


def test_what_a_dead_node_held_is_listed_by_zone() -> None:
    grid = ZoneGrid(2)
    down = (("gone", cell(Role.VOTER, CopyCell.DOWN)),)
    grid.place(range(2), [PartitionReading(down, MoveCell.WAITING, HealthCell.DEGRADED, "NODE_DOWN: gone")] * 2)
    held = holdings({"B": ZoneGrid(1), "A": grid}, "gone")
    assert held == [("A", NodeLoad(replicas=2, voters=2, troubled=2))]
    (row,) = node_rows({}, {}, {"gone": held[0][1]}, {})
    page = render("node", name="gone", row=row, drain=None, held=held)
    assert '<a href="/console/zones/A">A</a></th><td class="num">2</td>' in page


def test_a_table_that_is_cut_says_so() -> None:
    rows = [{"zone": "A", "partition": n, "loss": "MAJORITY", "detail": ""} for n in range(1_000)]
    check = {
        "can_stop": False,
        "members": 1_727,
        "copies": 0,
        "losses": {"MAJORITY": 1_727},
        "partitions": rows,
        "metastore_silent_since": None,
    }
    assert "Showing the first 30 of 1,727" in render("node_stop", check=check)
    silent = {**check, "metastore_silent_since": "2026-01-02T03:04:05Z"}
    assert "It is unknown whether the node can stop now" in render("node_stop", check=silent)


def test_bytes_that_are_not_reported_are_unknown() -> None:
    parts = {"total": 5_000, "done": 2_783, "moving": 0, "waiting": 0}
    progress = {"partitions": parts, "bytes": {"copied": 0, "estimated": 0}, "seconds_left": None}
    operation = {"state": "RUNNING", "cause": "", "progress": progress}
    assert "copied <strong>unknown</strong>" in render("operation_progress", operation=operation)
    parts["done"] = 0
    assert "copied <strong>0 " in render("operation_progress", operation=operation)


@pytest.mark.parametrize(
    ("shown", "fields", "change"),
    [
        ({"cluster_moves": 8}, {"cluster_moves": 8.0}, {}),
        ({"cluster_moves": 8}, {"cluster_moves": None}, {"cluster_moves": None}),
        ({"cluster_moves": None}, {"cluster_moves": 3.0}, {"cluster_moves": 3}),
        ({"zone_moves": 1}, {"zone_moves": 2.0}, {"zone_moves": 2}),
        ({"ha_reset_s": None}, {"ha_reset_s": 20.0}, {"ha_reset_s": 20}),
        ({"one_operation": False}, {"one_operation": True}, {"one_operation": True}),
        ({"one_operation": False}, {"one_operation": False}, {}),
        ({"windows": []}, {"windows": ""}, {}),
        ({"windows": ["22:00-04:00"]}, {"windows": "22:00-04:00 ;"}, {}),
        ({"windows": ["22:00-04:00"]}, {"windows": ""}, {"windows": []}),
        ({"windows": []}, {"windows": "1:00-2:00;Sun 3:00-4:00"}, {"windows": ["1:00-2:00", "Sun 3:00-4:00"]}),
    ],
)
def test_only_what_differs_is_changed(shown: dict, fields: dict, change: dict) -> None:
    assert changed_limits(shown, fields) == change


@pytest.mark.parametrize(
    ("asked", "url"),
    [
        (link(), "/console"),
        (link("zones", "A/B é"), "/console/zones/A%2FB%20%C3%A9"),
        (link("map", zone="A&B", from_=3, to=None, show=""), "/console/map?zone=A%26B&from=3"),
    ],
)
def test_addresses_are_quoted(asked: str, url: str) -> None:
    assert asked == url


def test_markup_in_names_stays_text() -> None:
    shown = render("overview_changes", events=[ConsoleEvent(1, "now", "<script>alert(1)</script>")])
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_history_of_a_zone_is_of_whole_names() -> None:
    events = tuple(
        ConsoleEvent(at, "", text)
        for at, text in enumerate(["DROP ZONE ab", 'ALTER ZONE "A" X', "create zone a"])
    )
    assert [each.version for each in named_in(events, "A")] == [1, 2]


@pytest.mark.parametrize(("counts", "found"), [([], []), ([0, 0], [0.0, 0.0]), ([1, 1], [50.0, 50.0])])
def test_shares(counts: list[int], found: list[float]) -> None:
    assert shares(counts) == found


def test_a_small_share_can_be_seen() -> None:
    wide = shares([65_000, 1])
    assert wide[1] > 0.9
    assert sum(wide) == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1 << 20, "1.0 MiB"), (1 << 60, "1,048,576.0 TiB")],
)
def test_sizes(bytes_: int, text: str) -> None:
    assert size(bytes_) == text


def test_names_are_quoted_for_sql() -> None:
    assert quoted('a"b') == '"a""b"'
