"""The compiled part of balanced placement: who gives a copy, who takes it, and ways round where all is stuck.

``cells`` int32 [P, R] holds node numbers, -1 where a copy is still to be placed. A *stage* settles columns
``first`` to ``last`` of every row against ``wanted`` int64 [N], under two rules: no node twice in a row, and at
most ``cap[domain[node]]`` of the stage's cells of a row in one failure domain (without domains every node is
one of its own). ``was`` int32 [P, W] tells who holds a copy already: placing one there moves no data.

Rows are visited in ``order`` int64 [P], so that what moves is spread over the zone. All is deterministic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rebalance.kernels.compiled import compiled
from rebalance.kernels.rendezvous_compiled import mix, partition_term

Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Terms = npt.NDArray[np.uint64]

FREE_ONLY, ANY_MOVE = 0, 1


@compiled
def row_order(rows: int, seed: np.uint64) -> npt.NDArray[np.int64]:
    """Every row once, int64 [P], in an order that looks random and differs from seed to seed.

    Two nodes that join one after the other must not take the same rows: whoever shares all its partitions with
    one other node leaves no room for it when it goes. A keyed bijection on the next power of two, walked until
    it lands on a row.
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
    found = False
    for each in row:
        found |= each == node
    return found


@compiled
def fits(
    row: npt.NDArray[np.int32], first: int, last: int, slot: int, node: int, domain: Counts, cap: Counts
) -> bool:
    """Whether ``node`` may stand in ``slot`` instead of what stands there."""
    inside = 0
    for column in range(len(row)):
        each = row[column]
        if column == slot or each < 0:
            continue
        if each == node:
            return False
        if first <= column < last and domain[each] == domain[node]:
            inside += 1
    return bool(inside < cap[domain[node]])


@compiled
def count_cells(cells: Cells, first: int, last: int, nodes: int) -> Counts:
    count = np.zeros(nodes, dtype=np.int64)
    for row in range(cells.shape[0]):
        for column in range(first, last):
            if cells[row, column] >= 0:
                count[cells[row, column]] += 1
    return count


@compiled
def trim(candidates: Cells, width: int, wanted: Counts, domain: Counts, cap: Counts, order: Counts) -> Cells:
    """The first ``width`` survivors of each row of ``candidates`` int32 [P, W], -1 for holes behind them.

    Who has most above its share gives way first; so does, before anybody else, a node whose failure domain is
    over its cap. Order is kept.
    """
    rows, columns = candidates.shape
    count = count_cells(candidates, 0, columns, len(wanted))
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
            worst = _first_to_go(mine, count, wanted, inside, domain, cap)
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
def _first_to_go(
    row: npt.NDArray[np.int32], count: Counts, wanted: Counts, inside: Counts, domain: Counts, cap: Counts
) -> int:
    """The column of the node in a crowded domain, else of any, with most above its share; last of equals."""
    worst, most, crowded = -1, np.int64(0), False
    for column in range(len(row)):
        node = row[column]
        if node < 0:
            continue
        over = inside[domain[node]] > cap[domain[node]]
        surplus = count[node] - wanted[node]
        if worst < 0 or (over and not crowded) or (over == crowded and surplus >= most):
            worst, most, crowded = column, surplus, over
    return worst


@compiled
def _taker(
    cells: Cells,
    was: Cells,
    row: int,
    first: int,
    last: int,
    slot: int,
    open_nodes: npt.NDArray[np.int64],
    opened: int,
    domain: Counts,
    cap: Counts,
    terms: Terms,
) -> int:
    """The position in ``open_nodes`` of the one with room that takes this cell: a holder of the partition's
    data before any other, then the lowest key. -1: nobody fits."""
    best, best_held, best_key = -1, False, np.uint64(0)
    for position in range(opened):
        node = open_nodes[position]
        held = contains(was[row], node)
        if best >= 0 and best_held and not held:
            continue
        mine = key(terms[node], row)
        if best >= 0 and held == best_held and mine >= best_key:
            continue
        if fits(cells[row], first, last, slot, node, domain, cap):
            best, best_held, best_key = position, held, mine
    return best


@compiled
def fill_and_shed(
    cells: Cells,
    was: Cells,
    first: int,
    last: int,
    wanted: Counts,
    domain: Counts,
    cap: Counts,
    terms: Terms,
    order: Counts,
) -> int:
    """Fill holes, then move copies from nodes above their target to nodes below it. Returns the holes that
    nobody with room could take. Never moves a copy that need not move.

    A sweep moves one copy of a row at most: nodes that join together would else meet in the same rows.
    """
    count = count_cells(cells, first, last, len(wanted))
    open_nodes = np.zeros(len(wanted), dtype=np.int64)
    opened, surplus = 0, np.int64(0)
    for node in range(len(wanted)):
        if count[node] < wanted[node]:
            open_nodes[opened] = node
            opened += 1
        surplus += max(count[node] - wanted[node], 0)
    sweep, moved = 0, True
    while opened > 0 and moved:
        moved = False
        for row in order:
            for attempt in range(last - first if sweep == 0 else 1):
                slot = first + attempt if sweep == 0 else _most_above(cells[row], first, last, count, wanted)
                if slot < 0 or (sweep == 0 and cells[row, slot] >= 0):
                    continue
                holder = cells[row, slot]
                at = _taker(cells, was, row, first, last, slot, open_nodes, opened, domain, cap, terms)
                if at < 0:
                    continue
                node = open_nodes[at]
                if holder >= 0:
                    count[holder] -= 1
                    surplus -= 1
                moved = True
                cells[row, slot] = node
                count[node] += 1
                if count[node] == wanted[node]:
                    opened -= 1
                    open_nodes[at] = open_nodes[opened]
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
def _most_above(row: npt.NDArray[np.int32], first: int, last: int, count: Counts, wanted: Counts) -> int:
    """The slot whose node has most above its target, -1 where none has anything."""
    best, most = -1, np.int64(0)
    for slot in range(first, last):
        if row[slot] >= 0 and count[row[slot]] - wanted[row[slot]] > most:
            best, most = slot, count[row[slot]] - wanted[row[slot]]
    return best


@compiled
def fill_anyhow(
    cells: Cells,
    was: Cells,
    first: int,
    last: int,
    wanted: Counts,
    domain: Counts,
    cap: Counts,
    terms: Terms,
) -> int:
    """Give each hole to whoever fits and has least above its target, a holder of the data first. Returns the
    holes that are left: rows in which nobody fits, for the failure domains' sake."""
    count = count_cells(cells, first, last, len(wanted))
    left = 0
    for row in range(cells.shape[0]):
        for slot in range(first, last):
            if cells[row, slot] >= 0:
                continue
            best, best_held, best_over = -1, False, np.int64(0)
            for node in range(len(wanted)):
                if not fits(cells[row], first, last, slot, node, domain, cap):
                    continue
                held, over = contains(was[row], node), count[node] - wanted[node]
                if best < 0 or over < best_over or (over == best_over and held and not best_held):
                    best, best_held, best_over = node, held, over
            if best < 0:
                left += 1
                continue
            cells[row, slot] = best
            count[best] += 1
    return left


@compiled
def _index(cells: Cells, first: int, last: int, nodes: int) -> tuple[Counts, Counts]:
    """Where each node stands: positions ``row * width + slot``, of node n from starts[n] to starts[n + 1]."""
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
    return starts, where


@compiled
def _search(
    cells: Cells,
    was: Cells,
    first: int,
    last: int,
    sources: npt.NDArray[np.bool_],
    sinks: npt.NDArray[np.bool_],
    domain: Counts,
    cap: Counts,
    mode: int,
    starts: Counts,
    where: Counts,
    barred: npt.NDArray[np.bool_],
    parent: Counts,
    via: Counts,
) -> int:
    """Breadth first from nodes that should give to one that should take; the taker's number, or -1.

    ``parent`` and ``via`` (a position as in ``_index``) tell the steps. An entry of the index that is out of
    date is passed over.
    """
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
                if node < 0 or seen[node] or not fits(cells[row], first, last, slot, node, domain, cap):
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
def _apply(
    cells: Cells,
    first: int,
    last: int,
    taker: int,
    parent: Counts,
    via: Counts,
    domain: Counts,
    cap: Counts,
    barred: npt.NDArray[np.bool_],
) -> int:
    """Do the steps of a path, or none of them: the giver at its beginning, or -1 when a row that two steps use
    does not allow both. Such a row is barred from the next search."""
    width = cells.shape[1]
    node = taker
    while parent[node] >= 0:
        row, slot = via[node] // width, via[node] % width
        if not fits(cells[row], first, last, slot, node, domain, cap):
            barred[row] = True
            while taker != node:
                cells[via[taker] // width, via[taker] % width] = parent[taker]
                taker = parent[taker]
            return -1
        cells[row, slot] = node
        node = parent[node]
    return node


@compiled
def repair(
    cells: Cells,
    was: Cells,
    first: int,
    last: int,
    low: Counts,
    high: Counts,
    domain: Counts,
    cap: Counts,
    mode: int,
) -> int:
    """Bring every count between ``low`` and ``high`` by chains of moves; returns how far they still are off.

    FREE_ONLY: only steps that move no data which was in place before.
    """
    nodes = len(low)
    count = count_cells(cells, first, last, nodes)
    barred = np.zeros(cells.shape[0], dtype=np.bool_)
    parent, via = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    starts, where = _index(cells, first, last, nodes)
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
        taker = _search(
            cells, was, first, last, sources, sinks, domain, cap, mode, starts, where, barred, parent, via
        )
        if taker < 0 and above > 0 and below > 0:
            sinks = count < high
            taker = _search(
                cells, was, first, last, sources, sinks, domain, cap, mode, starts, where, barred, parent, via
            )
        if taker < 0:
            if fresh:
                return int(above + below)
            starts, where = _index(cells, first, last, nodes)
            barred[:] = False
            fresh = True
            continue
        giver = _apply(cells, first, last, taker, parent, via, domain, cap, barred)
        if giver >= 0:
            count[giver] -= 1
            count[taker] += 1
            fresh = False
