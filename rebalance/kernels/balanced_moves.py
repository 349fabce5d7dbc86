"""The compiled part of balanced placement: who gives a copy, and who takes it.

``cells`` int32 [P, R] holds node numbers, -1 where a copy is still to be placed. A *stage* settles columns
``first`` to ``last`` of every row against ``targets`` int64 [N], under two rules: no node twice in a row, at
most ``cap[domain[node]]`` of the stage's cells of a row in one failure domain (without domains every node is
one of its own). ``was`` int32 [P, W] tells who holds a copy already: placing one there moves no data.

Rows are visited in ``order`` int64 [P], so that what moves is spread over the zone. All is deterministic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rebalance.kernels.compiled import compiled
from rebalance.kernels.rendezvous_compiled import mix, partition_term

Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Terms = npt.NDArray[np.uint64]


class ColumnStage(NamedTuple):
    """The columns that are settled together, and the rule of failure domains that holds in them."""

    first: int
    last: int
    domain: Counts
    cap: Counts


@compiled
def row_order(rows: int, seed: np.uint64) -> npt.NDArray[np.int64]:
    """Every row once, int64 [P], in an order that looks random and differs from seed to seed.

    Two nodes that join one after the other must not take the same rows: a node that shares all its partitions
    with one other node leaves no room for it when it goes. A keyed bijection on the next power of two, walked
    until it lands on a row.
    """
    bits = np.uint64(1)
    while (np.uint64(1) << bits) < np.uint64(rows):
        bits += np.uint64(1)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    half = (bits + np.uint64(1)) // np.uint64(2)
    factors = ((seed << np.uint64(1)) | np.uint64(1), ((seed >> np.uint64(24)) << np.uint64(1)) | np.uint64(1))
    order = np.empty(rows, dtype=np.int64)
    for row in range(rows):
        at = np.uint64(row)
        while True:
            for factor in factors:
                at = (at * factor + (seed >> np.uint64(7))) & mask
                at ^= at >> half
                at = (at * np.uint64(0x9E3779B97F4A7C15)) & mask
                at ^= at >> half
            if at < np.uint64(rows):
                break
        order[row] = at
    return order


@compiled
def key(term: np.uint64, row: int) -> np.uint64:
    """The rendezvous key of a node (its ``term``) and a partition, as unsigned order."""
    return mix(partition_term(np.int64(row)) + term)


@compiled
def contains(row: npt.NDArray[np.int32], node: int) -> bool:
    is_there = False
    for other in row:
        is_there |= other == node
    return is_there


@compiled
def fits(row: npt.NDArray[np.int32], stage: ColumnStage, slot: int, node: int) -> bool:
    """Check that ``node`` may stand in ``slot`` instead of what stands there."""
    inside = 0
    for column in range(len(row)):
        other = row[column]
        if column == slot or other < 0:
            continue
        if other == node:
            return False
        if stage.first <= column < stage.last and stage.domain[other] == stage.domain[node]:
            inside += 1
    return bool(inside < stage.cap[stage.domain[node]])


@compiled
def count_cells(cells: Cells, first: int, last: int, nodes: int) -> Counts:
    count = np.zeros(nodes, dtype=np.int64)
    for row in range(cells.shape[0]):
        for column in range(first, last):
            if cells[row, column] >= 0:
                count[cells[row, column]] += 1
    return count


@compiled
def trim(candidates: Cells, width: int, targets: Counts, domain: Counts, cap: Counts, order: Counts) -> Cells:
    """The first ``width`` survivors of each row of ``candidates`` int32 [P, W], -1 for holes behind them.

    Who has most above its share gives way first; so does, before anybody else, a node whose failure domain is
    over its cap. Order is kept.
    """
    rows, columns = candidates.shape
    count = count_cells(candidates, 0, columns, len(targets))
    kept = np.full((rows, width), -1, dtype=np.int32)
    inside = np.zeros(len(cap), dtype=np.int64)
    mine = np.empty(columns, dtype=np.int32)
    for row in order:
        size, crowds = 0, 0
        for column in range(columns):
            node = candidates[row, column]
            mine[column] = node
            if node >= 0:
                size += 1
                inside[domain[node]] += 1
                crowds += inside[domain[node]] > cap[domain[node]]
        while size > width or crowds > 0:
            worst = _first_to_go(mine, count, targets, inside, domain, cap)
            node = mine[worst]
            mine[worst] = -1
            crowds -= inside[domain[node]] > cap[domain[node]]
            inside[domain[node]] -= 1
            count[node] -= 1
            size -= 1
        at = 0
        for node in mine:
            if node >= 0:
                kept[row, at] = node
                inside[domain[node]] = 0
                at += 1
    return kept


@compiled
def pack(candidates: Cells, width: int) -> Cells:
    """``trim`` where no row has more than ``width`` candidates and domains do not matter: holes go last."""
    kept = np.full((candidates.shape[0], width), -1, dtype=np.int32)
    for row in range(candidates.shape[0]):
        at = 0
        for node in candidates[row]:
            if node >= 0:
                kept[row, at] = node
                at += 1
    return kept


@compiled
def _first_to_go(
    row: npt.NDArray[np.int32], count: Counts, targets: Counts, inside: Counts, domain: Counts, cap: Counts
) -> int:
    """The column of the node in a crowded domain, else of any, with most above its share; last of equals."""
    worst, most, crowded = -1, np.int64(0), False
    for column in range(len(row)):
        node = row[column]
        if node < 0:
            continue
        over = inside[domain[node]] > cap[domain[node]]
        surplus = count[node] - targets[node]
        if worst < 0 or (over and not crowded) or (over == crowded and surplus >= most):
            worst, most, crowded = column, surplus, over
    return worst


@compiled
def _taker(
    cells: Cells,
    was: Cells,
    stage: ColumnStage,
    row: int,
    slot: int,
    open_nodes: Counts,
    place: Counts,
    terms: Terms,
) -> int:
    """The node with room that takes this cell: a holder of the partition's data before any other, then the
    lowest key; -1: nobody fits. ``place`` int64 [N] is where a node stands in ``open_nodes``, -1 for
    one without room."""
    best, best_key = -1, np.uint64(0)
    for node in was[row]:
        if node >= 0 and place[node] >= 0 and fits(cells[row], stage, slot, node):
            mine = key(terms[node], row)
            if best < 0 or mine < best_key:
                best, best_key = int(node), mine
    if best >= 0:
        return best
    for node in open_nodes:
        mine = key(terms[node], row)
        if best >= 0 and mine >= best_key:
            continue
        if fits(cells[row], stage, slot, node):
            best, best_key = int(node), mine
    return best


@compiled
def fill_and_shed(
    cells: Cells, was: Cells, stage: ColumnStage, targets: Counts, terms: Terms, order: Counts
) -> int:
    """Fill holes, then move copies from nodes above their target to nodes below it. Returns the holes that
    nobody with room could take. Never moves a copy that need not move.

    A sweep moves one copy of a row at most: nodes that join together would else meet in the same rows.
    """
    first, last = stage.first, stage.last
    count = count_cells(cells, first, last, len(targets))
    open_nodes = np.zeros(len(targets), dtype=np.int64)
    place = np.full(len(targets), -1, dtype=np.int64)
    opened, surplus = 0, np.int64(0)
    for node in range(len(targets)):
        if count[node] < targets[node]:
            open_nodes[opened] = node
            place[node] = opened
            opened += 1
        surplus += max(count[node] - targets[node], 0)
    sweep, moved = 0, True
    while opened > 0 and moved:
        moved = False
        for row in order:
            for attempt in range(last - first if sweep == 0 else 1):
                slot = first + attempt if sweep == 0 else _most_above(cells[row], first, last, count, targets)
                if slot < 0 or (sweep == 0 and cells[row, slot] >= 0):
                    continue
                holder = cells[row, slot]
                node = _taker(cells, was, stage, row, slot, open_nodes[:opened], place, terms)
                if node < 0:
                    continue
                if holder >= 0:
                    count[holder] -= 1
                    surplus -= 1
                moved = True
                cells[row, slot] = node
                count[node] += 1
                if count[node] == targets[node]:
                    opened -= 1
                    open_nodes[place[node]] = open_nodes[opened]
                    place[open_nodes[opened]] = place[node]
                    place[node] = -1
            if opened == 0 or (sweep > 0 and surplus == 0):
                break
        if surplus == 0:
            break
        moved = moved or sweep == 0
        sweep += 1
    return _holes(cells, first, last)


@compiled
def _holes(cells: Cells, first: int, last: int) -> int:
    holes = 0
    for row in range(cells.shape[0]):
        for slot in range(first, last):
            holes += cells[row, slot] < 0
    return holes


@compiled
def _most_above(row: npt.NDArray[np.int32], first: int, last: int, count: Counts, targets: Counts) -> int:
    """The slot whose node has most above its target, -1 where none has anything."""
    best, most = -1, np.int64(0)
    for slot in range(first, last):
        if row[slot] >= 0 and count[row[slot]] - targets[row[slot]] > most:
            best, most = slot, count[row[slot]] - targets[row[slot]]
    return best


@compiled
def fill_anyhow(cells: Cells, was: Cells, stage: ColumnStage, targets: Counts) -> int:
    """Give each hole to the node that fits and has least above its target, a holder of the data first. Returns
    the holes that are left: rows in which nobody fits, for the failure domains' sake."""
    count = count_cells(cells, stage.first, stage.last, len(targets))
    left = 0
    for row in range(cells.shape[0]):
        for slot in range(stage.first, stage.last):
            if cells[row, slot] >= 0:
                continue
            best, best_held, best_over = -1, False, np.int64(0)
            for node in range(len(targets)):
                if not fits(cells[row], stage, slot, node):
                    continue
                held, over = contains(was[row], node), count[node] - targets[node]
                if best < 0 or over < best_over or (over == best_over and held and not best_held):
                    best, best_held, best_over = node, held, over
            if best < 0:
                left += 1
                continue
            cells[row, slot] = best
            count[best] += 1
    return left
