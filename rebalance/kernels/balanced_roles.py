"""The compiled part of balanced placement that moves no data: which replicas vote, and which one is primary.

A level *selects* the first ``chosen`` columns of every row out of the first ``among``. Swapping two cells in a
row changes roles only, so evenness is reached by swaps, and by chains of them where one does not do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rebalance.kernels.balanced_chains import CellIndex, Ends, Steps, index_cells, no_steps
from rebalance.kernels.balanced_moves import Cells, Counts, contains, count_cells
from rebalance.kernels.compiled import compiled


@compiled
def swap_directly(cells: Cells, chosen: int, among: int, targets: Counts, order: Counts) -> None:
    """Let the selected node of each row that has most above its target change places with the one below it."""
    count = count_cells(cells, 0, chosen, len(targets))
    surplus = np.maximum(count - targets, 0).sum()
    for row in order:
        if surplus == 0:
            return
        for out in range(chosen):
            giver = cells[row, out]
            if count[giver] <= targets[giver]:
                continue
            best, most = -1, np.int64(0)
            for column in range(chosen, among):
                room = targets[cells[row, column]] - count[cells[row, column]]
                if room > most:
                    best, most = column, room
            if best >= 0:
                taker = cells[row, best]
                cells[row, out], cells[row, best] = taker, giver
                count[giver] -= 1
                count[taker] += 1
                surplus -= 1


@compiled
def _search(cells: Cells, chosen: int, among: int, ends: Ends, index: CellIndex, steps: Steps) -> int:
    (sources, sinks), (parent, via), (starts, where) = ends, steps, index
    nodes, width = len(sources), cells.shape[1]
    queue = np.zeros(nodes, dtype=np.int64)
    seen = sources.copy()
    head, tail = 0, 0
    for node in range(nodes):
        parent[node] = -1
        if sources[node]:
            queue[tail] = node
            tail += 1
    while head < tail:
        giver = queue[head]
        head += 1
        for entry in range(starts[giver], starts[giver + 1]):
            row, slot = where[entry] // width, where[entry] % width
            if cells[row, slot] != giver:
                continue
            for column in range(chosen, among):
                node = cells[row, column]
                if seen[node]:
                    continue
                seen[node] = True
                parent[node], via[node] = giver, where[entry]
                if sinks[node]:
                    return int(node)
                queue[tail] = node
                tail += 1
    return -1


@compiled
def _swap(row: npt.NDArray[np.int32], slot: int, node: int) -> None:
    for column in range(len(row)):
        if row[column] == node:
            row[column] = row[slot]
            row[slot] = node
            return


@compiled
def swap_in_chains(cells: Cells, chosen: int, among: int, low: Counts, high: Counts) -> int:
    """Bring every count of the selected between ``low`` and ``high``; returns how far they still are off.

    Two steps of a chain may use one row: their four nodes are different ones, for a taker is not selected in
    the row of its own step but is in that of the next.
    """
    nodes = len(low)
    count = count_cells(cells, 0, chosen, nodes)
    steps, index = no_steps(nodes), index_cells(cells, 0, chosen, nodes)
    parent, via = steps
    width, fresh = cells.shape[1], True
    while True:
        above = np.maximum(count - high, 0).sum()
        below = np.maximum(low - count, 0).sum()
        if above == 0 and below == 0:
            return 0
        bound = high if above > 0 else low
        ends = Ends(count > bound, count < bound)
        taker = _search(cells, chosen, among, ends, index, steps)
        if taker < 0:
            if fresh:
                return int(above + below)
            index = index_cells(cells, 0, chosen, nodes)
            fresh = True
            continue
        node = taker
        while parent[node] >= 0:
            _swap(cells[via[node] // width], via[node] % width, node)
            count[parent[node]] -= 1
            count[node] += 1
            node = parent[node]
        fresh = False


@compiled
def exchange(cells: Cells, chosen: int, among: int, giver: int, taker: int) -> bool:
    """Let ``giver`` select one less and ``taker`` one more at the price of two moved copies: in one row the
    taker takes the giver's place, in another the giver takes one that is not selected from the taker."""
    rows = cells.shape[0]
    for row in range(rows):
        if contains(cells[row], taker) or not contains(cells[row, :chosen], giver):
            continue
        for other in range(rows):
            if contains(cells[other], giver) or not contains(cells[other, chosen:among], taker):
                continue
            _replace(cells[row], giver, taker)
            _replace(cells[other], taker, giver)
            return True
    return False


@compiled
def _replace(row: npt.NDArray[np.int32], old: int, new: int) -> None:
    for column in range(len(row)):
        if row[column] == old:
            row[column] = new
            return
