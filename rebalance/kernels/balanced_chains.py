"""The compiled part of balanced placement that resolves what is stuck: chains of moves.

Where nobody below its target fits into a row of a node above it, a third node may: a chain of moves from row to
row brings one copy from the giver to the taker. Notions and arrays are those of ``balanced_moves``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rebalance.kernels.balanced_moves import Cells, ColumnStage, Counts, contains, count_cells, fits
from rebalance.kernels.compiled import compiled

FREE_ONLY, ANY_MOVE = 0, 1


class CellIndex(NamedTuple):
    """Positions of the cells of each node: ``row * width + slot``, of node n from starts[n] to starts[n +
    1]."""

    starts: Counts
    where: Counts


class Ends(NamedTuple):
    """Nodes at which a chain may begin, and those at which it may end: bool [N] each."""

    sources: npt.NDArray[np.bool_]
    sinks: npt.NDArray[np.bool_]


class Steps(NamedTuple):
    """Steps of a search, for each node that it has reached, int64 [N] each: the node that gives to it (-1: it
    is a source), and the position of the copy, as in ``CellIndex``."""

    parent: Counts
    via: Counts


@compiled
def no_steps(nodes: int) -> Steps:
    return Steps(np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64))


@compiled
def index_cells(cells: Cells, first: int, last: int, nodes: int) -> CellIndex:
    count = count_cells(cells, first, last, nodes)
    starts = np.zeros(nodes + 1, dtype=np.int64)
    for node in range(nodes):
        starts[node + 1] = starts[node] + count[node]
    at = starts[:-1].copy()
    where = np.zeros(starts[nodes], dtype=np.int64)
    width = cells.shape[1]
    for row in range(cells.shape[0]):
        for slot in range(first, last):
            node = cells[row, slot]
            if node >= 0:
                where[at[node]] = row * width + slot
                at[node] += 1
    return CellIndex(starts, where)


@compiled
def _search(
    cells: Cells,
    was: Cells,
    stage: ColumnStage,
    ends: Ends,
    mode: int,
    index: CellIndex,
    barred: npt.NDArray[np.bool_],
    steps: Steps,
) -> int:
    """Breadth first from nodes that should give to one that should take; the taker's number, or -1.

    An entry of the index that is out of date is passed over.
    """
    (sources, sinks), (parent, via), (starts, where) = ends, steps, index
    nodes, width = len(sources), cells.shape[1]
    queue = np.zeros(nodes, dtype=np.int64)
    seen = sources.copy()
    unseen = np.flatnonzero(~sources)
    head, tail, remaining = 0, 0, len(unseen)
    for node in range(nodes):
        parent[node] = -1
        if sources[node]:
            queue[tail] = node
            tail += 1
    while head < tail and tail < nodes:
        giver = queue[head]
        head += 1
        for entry in range(starts[giver], starts[giver + 1]):
            row, slot = where[entry] // width, where[entry] % width
            if cells[row, slot] != giver or barred[row]:
                continue
            # A copy that is new in this row costs nothing to place elsewhere; one that was there may only give
            # way to another that was.
            paid = mode == ANY_MOVE or not contains(was[row], giver)
            position = 0
            while position < (remaining if paid else was.shape[1]):
                node = int(unseen[position] if paid else was[row, position])
                if paid and seen[node]:
                    remaining -= 1
                    unseen[position] = unseen[remaining]
                    continue
                position += 1
                if node < 0 or seen[node] or not fits(cells[row], stage, slot, node):
                    continue
                seen[node] = True
                parent[node], via[node] = giver, where[entry]
                if sinks[node]:
                    return int(node)
                queue[tail] = node
                tail += 1
            if tail == nodes:
                break
    return -1


@compiled
def _apply(cells: Cells, stage: ColumnStage, taker: int, steps: Steps, barred: npt.NDArray[np.bool_]) -> int:
    """Do the steps of a path, or none of them: the giver at its beginning, or -1 when a row that two steps use
    does not allow both. Such a row is barred from the next search."""
    parent, via = steps
    width = cells.shape[1]
    node = taker
    while parent[node] >= 0:
        row, slot = via[node] // width, via[node] % width
        if not fits(cells[row], stage, slot, node):
            barred[row] = True
            while taker != node:
                cells[via[taker] // width, via[taker] % width] = parent[taker]
                taker = parent[taker]
            return -1
        cells[row, slot] = node
        node = parent[node]
    return node


@compiled
def repair(cells: Cells, was: Cells, stage: ColumnStage, low: Counts, high: Counts, mode: int) -> int:
    """Bring every count between ``low`` and ``high`` by chains of moves; returns how far they still are off.

    FREE_ONLY: only steps that move no data which was in place before.
    """
    nodes = len(low)
    count = count_cells(cells, stage.first, stage.last, nodes)
    barred = np.zeros(cells.shape[0], dtype=np.bool_)
    steps, index = no_steps(nodes), index_cells(cells, stage.first, stage.last, nodes)
    fresh = True
    while True:
        above = np.maximum(count - high, 0).sum()
        below = np.maximum(low - count, 0).sum()
        if above == 0 and below == 0:
            return 0
        if above > 0:
            sources = count > high
            sinks = count < low if below > 0 else count < high
        else:
            sources, sinks = count > low, count < low
        taker = _search(cells, was, stage, Ends(sources, sinks), mode, index, barred, steps)
        if taker < 0 and above > 0 and below > 0:
            taker = _search(cells, was, stage, Ends(sources, count < high), mode, index, barred, steps)
        if taker < 0:
            if fresh:
                return int(above + below)
            index = index_cells(cells, stage.first, stage.last, nodes)
            barred[:] = False
            fresh = True
            continue
        giver = _apply(cells, stage, taker, steps, barred)
        if giver >= 0:
            count[giver] -= 1
            count[taker] += 1
            fresh = False
