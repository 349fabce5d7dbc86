"""The map of a zone: partitions by nodes, gathered into so many columns as fit a screen.

Eight partitions get a column each; 65,000 are gathered into ranges, whose cells are coloured by how many copies
the node holds of them, or by the worst that is the matter with one. A click opens a range, down to single
partitions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from app.console.charts import css
from app.console.fragments import natural
from app.console.zone_grid import (
    CODES,
    COPY_OF,
    ROLE_OF,
    CopyCell,
    HealthCell,
    MoveCell,
    Numbers,
    Role,
    ZoneGrid,
)

COLUMNS_MAX = 96
LABELLED_CELLS_MAX = 400
NODES_SEEN = 24
"""Rows that a screen has place for."""
SHARES = (0.75, 1.25, 1.75)
"""Limits, as parts of an even share: below the first a node holds few, above the second many, above the last
very many."""


class Colour(IntEnum):
    """Colour of a cell. BELOW to FAR: how many copies of a range the node holds against an even share of
    them."""

    BELOW = 1
    EVEN = 2
    VOTER = 3
    ABOVE = 4
    FAR = 11
    LEADER = 5
    LEARNER = 6
    UNREAD = 7
    LEAVING = 8
    JOINING = 9
    TROUBLE = 10


class Shown(StrEnum):
    """Partitions that the map shows."""

    EVERY = "all"
    UNSETTLED = "unsettled"
    MOVING = "moving"
    WAITING = "waiting"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class Range:
    """A column: partitions ``first`` to ``last``, of which ``count`` are shown."""

    first: int
    last: int
    count: int

    @property
    def label(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True, slots=True)
class HeatMap:
    """``cells``: [column, node, Colour, replicas, leaders, learners, leaving, joining, troubled], one for each
    pair that has a copy. ``selected`` partitions of ``total``."""

    nodes: tuple[str, ...]
    ranges: tuple[Range, ...]
    cells: tuple[tuple[int, ...], ...]
    selected: int
    total: int

    @property
    def is_single(self) -> bool:
        """Every column is one partition."""
        return all(part.count == 1 for part in self.ranges)

    @property
    def is_labelled(self) -> bool:
        return self.is_single and len(self.nodes) * len(self.ranges) <= LABELLED_CELLS_MAX


def chosen(grid: ZoneGrid, shown: Shown, first: int = 0, last: int | None = None) -> Numbers:
    """Numbers of the partitions to show, ascending: of ``first`` to ``last`` those that ``shown`` names."""
    last = grid.partitions - 1 if last is None else min(last, grid.partitions - 1)
    selected = {
        Shown.EVERY: np.ones(grid.partitions, dtype=np.bool_),
        Shown.UNSETTLED: grid.moves > MoveCell.DONE,
        Shown.MOVING: grid.moves == MoveCell.MOVING,
        Shown.WAITING: grid.moves == MoveCell.WAITING,
        Shown.UNHEALTHY: grid.health > HealthCell.AVAILABLE,
    }[shown]
    numbers = np.arange(max(first, 0), last + 1, dtype=np.int64)
    shown_numbers: Numbers = numbers[selected[numbers]]
    return shown_numbers


def heat_map(
    grid: ZoneGrid, numbers: Numbers, nodes: Sequence[str] = (), columns_max: int = COLUMNS_MAX
) -> HeatMap:
    """``nodes``: shown also when they hold nothing."""
    columns = min(columns_max, len(numbers))
    edges = np.linspace(0, len(numbers), columns + 1).astype(np.int64)
    ranges = tuple(
        Range(int(numbers[start]), int(numbers[end - 1]), int(end - start))
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    )
    held = (grid.nodes[at] for at in np.flatnonzero(grid.cells[numbers].any(axis=0)).tolist())
    names = tuple(sorted({*nodes, *held}, key=natural))
    return HeatMap(names, ranges, _cells(grid, numbers, edges, names), len(numbers), grid.partitions)


def changed_columns(before: HeatMap | None, after: HeatMap) -> list[int] | None:
    """Columns whose cells differ, ascending; None: the ranges or nodes are others, so all of them do."""
    if before is None or (before.nodes, before.ranges) != (after.nodes, after.ranges):
        return None
    return sorted({cell[0] for cell in set(before.cells) ^ set(after.cells)})


def _cells(
    grid: ZoneGrid, numbers: Numbers, edges: Numbers, names: tuple[str, ...]
) -> tuple[tuple[int, ...], ...]:
    """Cells of HeatMap, by column and then in the order of ``names``; ``edges`` int64 [columns + 1] say where
    the columns begin in ``numbers``."""
    columns = len(edges) - 1
    cells = grid.cells[numbers]
    # Twice as fast as nonzero of two dimensions.
    rows, at = np.divmod(np.flatnonzero(cells.ravel() != 0), max(cells.shape[1], 1))
    place = {name: number for number, name in enumerate(names)}
    order = np.array([place.get(name, 0) for name in grid.nodes], dtype=np.int64)
    column = np.searchsorted(edges[1:], rows, side="right")
    key = (column * len(names) + (order[at] if len(at) else at)) * CODES + cells[rows, at]
    table = np.bincount(key, minlength=columns * len(names) * CODES)
    counts = _counted(table.reshape(columns, len(names), CODES))
    colours = _colours(counts, np.diff(edges))
    where, node = np.nonzero(counts.sum(axis=0))
    parts = (where, node, colours[where, node], *counts[:6, where, node])
    return tuple(zip(*(part.tolist() for part in parts), strict=True))


def _counted(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64 [7, columns, nodes]: replicas, leaders, learners, leaving, joining, troubled, unread."""
    present = np.arange(CODES) > 0
    kinds = (
        present,
        ROLE_OF == Role.LEADER,
        ROLE_OF == Role.LEARNER,
        COPY_OF == CopyCell.LEAVING,
        (COPY_OF == CopyCell.JOINING) | (COPY_OF == CopyCell.NOT_BEGUN),
        COPY_OF >= CopyCell.BROKEN,
        COPY_OF == CopyCell.UNREAD,
    )
    return np.stack([table[:, :, kind & present].sum(axis=2) for kind in kinds])


def _colours(counts: npt.NDArray[np.int64], in_range: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """``Colour`` by column and node; later ones win."""
    replicas, leaders, learners, leaving, joining, troubled, unread = counts
    even = replicas.sum(axis=1, keepdims=True) / max(replicas.shape[1], 1)
    levels = np.array([Colour.BELOW, Colour.EVEN, Colour.ABOVE, Colour.FAR], dtype=np.int64)
    colours: npt.NDArray[np.int64] = levels[np.digitize(replicas / np.maximum(even, 1e-9), SHARES)]
    single = (in_range == 1)[:, None]
    for colour, where in (
        (Colour.VOTER, single & (replicas > 0)),
        (Colour.LEADER, single & (leaders > 0)),
        (Colour.LEARNER, (learners == replicas) & (learners > 0)),
        (Colour.UNREAD, (unread == replicas) & (unread > 0)),
        (Colour.LEAVING, leaving > 0),
        (Colour.JOINING, joining > 0),
        (Colour.TROUBLE, troubled > 0),
    ):
        colours[where] = colour
    return colours


_OF_RANGES = (
    (Colour.BELOW, "below average", "less than 75 % of an even share of the replicas"),
    (Colour.EVEN, "average", "75 to 125 % of an even share"),
    (Colour.ABOVE, "above average", "125 to 175 % of an even share"),
    (Colour.FAR, "far above average", "more than 175 % of an even share"),
)
_OF_PARTITIONS = (
    (Colour.LEADER, "leader", "leads the group of the partition"),
    (Colour.VOTER, "voter", "votes, and does not lead"),
)
_OF_BOTH = (
    (Colour.LEARNER, "learner", "only replicas that do not vote"),
    (Colour.LEAVING, "leaving", "removed at the end of the move"),
    (Colour.JOINING, "joining", "catching up, or not started yet"),
    (Colour.TROUBLE, "down or broken", "the node is down, or the replica has failed"),
    (Colour.UNREAD, "not read yet", "as the target assignment says; its state has not been read yet"),
)


def legend(drawn: HeatMap) -> tuple[tuple[Colour, str, str], ...]:
    """Colour, word and what it means."""
    return (*(_OF_PARTITIONS if drawn.is_single else _OF_RANGES), *_OF_BOTH)


_TOOLTIP = """(p) => {
  const {xAxis, yAxis} = getElement(document.querySelector('.map')).options;
  const escaped = (text) => text.replace(/[&<>]/g, (c) => '&#' + c.charCodeAt(0) + ';');
  const [x, y, , replicas, leaders, learners, leaving, joining, troubled] = p.value;
  const counts = [[replicas, 'replicas'], [leaders, 'leaders'], [learners, 'learners'],
    [leaving, 'leaving'], [joining, 'joining'], [troubled, 'down or broken']];
  const parts = counts.filter(([n]) => n).map(([n, word]) => n.toLocaleString('en') + ' ' + word);
  const range = xAxis.data[x];
  const where = range.includes('–') ? 'partitions ' : 'partition ';
  return '<b>' + escaped(yAxis.data[y]) + '</b><br>' + where + range + '<br>' + parts.join('<br>');
}"""
"""The names of nodes are read from the chart's axes: in the script itself there is no data."""


_WORDS = {
    int(Colour.VOTER): "{cell|voter}",
    int(Colour.LEADER): "{leader|leader}",
    int(Colour.LEARNER): "{cell|learner}",
    int(Colour.LEAVING): "{cell|leaving}",
    int(Colour.JOINING): "{joining|joining}",
    int(Colour.TROUBLE): "{trouble|down}",
}
"""Each in a style of its own: no ink can be read on all of the colours."""
_LABEL = f"(p) => ({json.dumps(_WORDS)})[p.value[2]] ?? ''"


def chart_options(drawn: HeatMap) -> dict[str, Any]:
    """ECharts options; colours are the style sheet's, read in the browser."""
    names = [part.label for part in drawn.ranges]
    label = {":color": css("--ink")}
    axis = {
        "type": "category",
        "axisLabel": label,
        "splitArea": {"show": False},
        "axisTick": {"show": False},
        "axisLine": {"lineStyle": {":color": css("--line")}},
    }
    return {
        "animation": False,
        "aria": {"enabled": True, "label": {"description": summary(drawn)}},
        "tooltip": {
            ":formatter": _TOOLTIP,
            ":backgroundColor": css("--panel"),
            "textStyle": {":color": css("--ink")},
            ":borderColor": css("--line"),
        },
        "grid": {"left": 8, "right": 8, "top": 8, "bottom": 8, "containLabel": True},
        # Numbers that stand below a hundred nodes are out of sight.
        "xAxis": {**axis, "data": names, "position": "top" if len(drawn.nodes) > NODES_SEEN else "bottom"},
        "yAxis": {**axis, "data": list(drawn.nodes), "inverse": True},
        "visualMap": {
            "show": False,
            "dimension": 2,
            "type": "piecewise",
            "pieces": [
                {"value": int(colour), ":color": css(f"--map-{colour.name.lower()}")} for colour in Colour
            ],
        },
        "series": [
            {
                "type": "heatmap",
                "data": [list(cell) for cell in drawn.cells],
                "progressive": 0,
                "itemStyle": {":borderColor": css("--panel"), "borderWidth": 1 if len(names) <= 48 else 0},
                "label": {
                    "show": drawn.is_labelled,
                    ":formatter": _LABEL,
                    "fontSize": 11,
                    "rich": {
                        style: {":color": css(f"--map-on-{style}"), "fontSize": 11}
                        for style in ("cell", "leader", "joining", "trouble")
                    },
                },
                "emphasis": {"itemStyle": {":borderColor": css("--ink"), "borderWidth": 2}},
            }
        ],
    }


def summary(drawn: HeatMap) -> str:
    """Describe the map for those who do not see the colours."""
    joining, troubled = (sum(cell[at] for cell in drawn.cells) for at in (7, 8))
    return (
        f"{drawn.selected:,} of {drawn.total:,} partitions on {len(drawn.nodes)} nodes; "
        f"{joining:,} replicas joining, {troubled:,} down or broken."
    )
