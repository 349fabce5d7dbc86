"""The arrays of a zone against counts made one by one, and the map that is drawn from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.console.heat_map import (
    Colour,
    HeatMap,
    Shown,
    changed_columns,
    chart_options,
    chosen,
    heat_map,
    legend,
    summary,
)
from app.console.zone_grid import (
    COPIES,
    CopyCell,
    HealthCell,
    MoveCell,
    MoveCounts,
    NodeLoad,
    PartitionReading,
    Role,
    ZoneGrid,
    cell,
)

NODES = ("a", "b", "c", "d")
NO_CELL = cell(Role.NONE, CopyCell.NONE)
FEW_COLUMNS = 4

readings = st.builds(
    PartitionReading,
    st.dictionaries(
        st.sampled_from(NODES),
        st.builds(cell, st.sampled_from(Role), st.sampled_from([each for each in CopyCell if each])),
        max_size=3,
    ).map(lambda cells: tuple(cells.items())),
    st.sampled_from([MoveCell.DONE, MoveCell.MOVING, MoveCell.WAITING]),
    st.sampled_from([each for each in HealthCell if each]),
    st.sampled_from(["", "NODE_DOWN: a", "PAUSED: by x"]),
)


def grid_of(*found: PartitionReading) -> ZoneGrid:
    grid = ZoneGrid(len(found))
    grid.place(range(len(found)), found)
    return grid


def plain_loads(found: list[PartitionReading]) -> dict[str, NodeLoad]:
    """One copy after the other."""
    loads: dict[str, NodeLoad] = {}
    for reading in found:
        for node, code in reading.cells:
            role, copy = Role(code // COPIES), CopyCell(code % COPIES)
            held = copy is not CopyCell.NOT_BEGUN
            one = NodeLoad(
                held,
                held and role >= Role.VOTER,
                held and role is Role.LEADER,
                held and role is Role.LEARNER,
                copy is CopyCell.JOINING,
                copy >= CopyCell.BROKEN,
            )
            loads[node] = loads.get(node, NodeLoad()).plus(one)
    return loads


@given(st.lists(readings, min_size=1, max_size=30))
def test_counts_are_those_made_one_by_one(found: list[PartitionReading]) -> None:
    grid = grid_of(*found)
    moves = [reading.move for reading in found]
    assert grid.move_counts() == MoveCounts(
        *(moves.count(each) for each in (MoveCell.DONE, MoveCell.MOVING, MoveCell.WAITING))
    )
    assert grid.loads() == plain_loads(found)
    causes = [reading.cause for reading in found if reading.cause]
    assert grid.cause_counts() == {cause: causes.count(cause) for cause in causes}
    health = [reading.health for reading in found]
    assert grid.health_counts() == {each: health.count(each) for each in HealthCell}


@given(st.lists(readings, min_size=1, max_size=20), st.data())
def test_reading_a_partition_anew_leaves_nothing_of_what_was(
    found: list[PartitionReading], data: st.DataObject
) -> None:
    grid = grid_of(*found)
    number, new = data.draw(st.integers(0, len(found) - 1)), data.draw(readings)
    grid.place([number], [new])
    found[number] = new
    again = grid_of(*found)
    loads = {node: load for node, load in grid.loads().items() if load != NodeLoad()}
    assert loads == {node: load for node, load in again.loads().items() if load != NodeLoad()}
    assert grid.move_counts() == again.move_counts()


@given(st.lists(readings, min_size=1, max_size=30), st.data())
def test_columns_that_differ_and_the_rest_of_before_are_the_whole(
    found: list[PartitionReading], data: st.DataObject
) -> None:
    grid = grid_of(*found)
    first = data.draw(st.integers(0, len(found) - 1))
    numbers = chosen(grid, Shown.EVERY, first)
    before = heat_map(grid, numbers, NODES, FEW_COLUMNS)
    for _ in range(data.draw(st.integers(0, 3))):
        some = sorted(data.draw(st.sets(st.integers(0, len(found) - 1), max_size=3)))
        grid.place(some, [data.draw(readings) for _ in some])
    after = heat_map(grid, numbers, NODES, FEW_COLUMNS)
    columns = changed_columns(before, after)
    assert columns is not None
    kept = [each for each in before.cells if each[0] not in columns]
    sent = [each for each in after.cells if each[0] in columns]
    assert tuple(sorted(kept + sent, key=lambda cell: cell[:2])) == after.cells
    touched = {column for column in columns if _cells_of(before, column) != _cells_of(after, column)}
    assert touched == set(columns), "nothing is sent that is as it was"


def _cells_of(drawn: HeatMap, column: int) -> list[tuple[int, ...]]:
    return [each for each in drawn.cells if each[0] == column]


def test_a_node_that_the_map_does_not_show_has_all_of_it_sent() -> None:
    one = PartitionReading((("a", cell(Role.LEADER, CopyCell.HEALTHY)),), MoveCell.DONE, HealthCell.AVAILABLE)
    grid = grid_of(one, one)
    numbers = chosen(grid, Shown.EVERY)
    before = heat_map(grid, numbers)
    grid.place([1], [replace(one, cells=(("new", cell(Role.LEADER, CopyCell.HEALTHY)),))])
    assert changed_columns(before, heat_map(grid, numbers)) is None
    assert changed_columns(None, before) is None


@given(st.lists(readings, min_size=1, max_size=30))
def test_the_map_shows_every_copy_once(found: list[PartitionReading]) -> None:
    grid = grid_of(*found)
    drawn = heat_map(grid, chosen(grid, Shown.EVERY), NODES, FEW_COLUMNS)
    assert sum(shown[3] for shown in drawn.cells) == sum(len(reading.cells) for reading in found)
    assert sum(each.count for each in drawn.ranges) == len(found) == drawn.selected
    assert len(drawn.ranges) == min(len(found), FEW_COLUMNS)
    assert [each.first for each in drawn.ranges] == sorted(each.first for each in drawn.ranges)
    assert set(NODES) == set(drawn.nodes)


@given(st.lists(readings, min_size=FEW_COLUMNS, max_size=30))
def test_trouble_is_seen_in_a_range_of_many(found: list[PartitionReading]) -> None:
    grid = grid_of(*found)
    drawn = heat_map(grid, chosen(grid, Shown.EVERY), columns_max=FEW_COLUMNS)
    for column, node, colour, *_, troubled in drawn.cells:
        asked, name = drawn.ranges[column], drawn.nodes[node]
        codes = [dict(found[at].cells).get(name, NO_CELL) for at in range(asked.first, asked.last + 1)]
        assert troubled == sum(code % COPIES >= CopyCell.BROKEN for code in codes)
        assert (colour == Colour.TROUBLE) == (troubled > 0)


def one(
    role: Role, copy: CopyCell = CopyCell.HEALTHY, move: MoveCell = MoveCell.DONE, cause: str = ""
) -> PartitionReading:
    return PartitionReading((("a", cell(role, copy)),), move, HealthCell.AVAILABLE, cause)


@pytest.mark.parametrize(
    ("reading", "colour"),
    [
        (one(Role.LEADER), Colour.LEADER),
        (one(Role.VOTER), Colour.VOTER),
        (one(Role.LEARNER), Colour.LEARNER),
        (one(Role.VOTER, CopyCell.UNREAD), Colour.UNREAD),
        (one(Role.VOTER, CopyCell.LEAVING), Colour.LEAVING),
        (one(Role.VOTER, CopyCell.JOINING), Colour.JOINING),
        (one(Role.VOTER, CopyCell.NOT_BEGUN), Colour.JOINING),
        (one(Role.LEADER, CopyCell.DOWN), Colour.TROUBLE),
        (one(Role.NONE, CopyCell.BROKEN), Colour.TROUBLE),
    ],
)
def test_colour_of_a_single_partition(reading: PartitionReading, colour: Colour) -> None:
    grid = grid_of(reading)
    (drawn,) = heat_map(grid, chosen(grid, Shown.EVERY)).cells
    assert drawn[2] == colour


@pytest.mark.parametrize(
    ("held", "colours"),
    [
        ({"a": 10, "b": 10}, {"a": Colour.EVEN, "b": Colour.EVEN}),
        ({"a": 2, "b": 10, "c": 10, "d": 18}, dict(zip("abcd", (1, 2, 2, 11), strict=True))),
        ({"a": 10, "b": 10, "c": 14}, {"a": Colour.EVEN, "b": Colour.EVEN, "c": Colour.EVEN}),
        ({"a": 7, "b": 7, "c": 14}, {"a": Colour.EVEN, "b": Colour.EVEN, "c": Colour.ABOVE}),
    ],
)
def test_a_range_is_coloured_by_even_shares(held: dict[str, int], colours: dict[str, int]) -> None:
    """Colours of nodes by how many of the 20 partitions in one column they hold: below, even, above and far
    above."""
    healthy = cell(Role.VOTER, CopyCell.HEALTHY)
    cells = [tuple((node, healthy) for node, count in held.items() if at < count) for at in range(20)]
    grid = grid_of(*(PartitionReading(each, MoveCell.DONE, HealthCell.AVAILABLE) for each in cells))
    drawn = heat_map(grid, chosen(grid, Shown.EVERY), columns_max=1)
    assert {drawn.nodes[node]: colour for _, node, colour, *_ in drawn.cells} == colours
    assert {word for _, word, _ in legend(drawn)} >= {"average", "learner"}


def test_what_is_shown() -> None:
    moves = [one(Role.VOTER), one(Role.VOTER, move=MoveCell.MOVING), one(Role.VOTER, move=MoveCell.WAITING)] * 4
    grid = grid_of(*moves)
    assert chosen(grid, Shown.MOVING).tolist() == [1, 4, 7, 10]
    assert chosen(grid, Shown.UNSETTLED, 4, 8).tolist() == [4, 5, 7, 8]
    assert chosen(grid, Shown.WAITING, 0, 999).tolist() == [2, 5, 8, 11]
    assert chosen(grid, Shown.UNHEALTHY).tolist() == []
    assert chosen(grid, Shown.EVERY, 50, 60).tolist() == []
    nothing = heat_map(grid, chosen(grid, Shown.UNHEALTHY))
    assert (nothing.cells, nothing.ranges, nothing.selected, nothing.total) == ((), (), 0, 12)


def test_a_target_is_shown_until_partitions_are_read() -> None:
    grid = ZoneGrid(3)
    grid.seed(("a", "b", "c"), np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]], dtype=np.int32), 2)
    assert grid.move_counts() == MoveCounts(unread=3)
    assert grid.loads()["a"] == NodeLoad(replicas=3, voters=2, learners=1)
    assert {shown[2] for shown in heat_map(grid, chosen(grid, Shown.EVERY)).cells} == {Colour.UNREAD}
    assert grid.held_by(["b", "nobody"]).tolist() == [0, 1, 2]


def test_what_was_read_of_an_earlier_target_counts_for_none() -> None:
    """Progress does not begin with what had arrived where it was before."""
    grid = ZoneGrid(3)
    grid.aim(7)
    there = PartitionReading((), MoveCell.DONE, HealthCell.AVAILABLE, arrived=True)
    grid.place(range(3), [there] * 3)
    grid.aim(7)
    assert (grid.move_counts(), grid.arrived.sum()) == (MoveCounts(done=3), 3)
    grid.aim(9)
    assert (grid.move_counts(), grid.arrived.sum()) == (MoveCounts(unread=3), 0)
    grid.place([1], [there])
    assert (grid.move_counts(), grid.arrived.sum()) == (MoveCounts(done=1, unread=2), 1)


def test_columns_grow_with_the_nodes() -> None:
    found = [PartitionReading(((f"n{at}", 18),), MoveCell.DONE, HealthCell.AVAILABLE) for at in range(40)]
    grid = grid_of(*found)
    assert len(grid.nodes) == 40
    assert all(load.replicas == 1 for load in grid.loads().values())


def test_names_are_no_part_of_the_script_of_the_tooltip() -> None:
    name = "</script><b>'\"x"
    grid = grid_of(PartitionReading(((name, 18),), MoveCell.DONE, HealthCell.AVAILABLE))
    drawn = heat_map(grid, chosen(grid, Shown.EVERY))
    options = chart_options(drawn)
    assert "script>" not in options["tooltip"][":formatter"]
    assert options["yAxis"]["data"] == [name]
    assert "1 of 1 partitions on 1 nodes" in summary(drawn)
