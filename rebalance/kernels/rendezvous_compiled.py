"""Rendezvous placement in machine code: the same answers as ``rendezvous``, about ten times as fast.

The first step of the mix is linear, so a key is one addition of what the node gives and what the partition
gives, and five cheap steps. A block of partitions is worked on side by side in the vector registers: a network
of minimum and maximum keeps each one's lowest keys, without a branch and without a node's number. The mix is a
bijection, so the node is recovered in the end by inverting the few keys that are left; nodes whose hashes
collide have equal keys, and take their places in tie order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from rebalance.kernels.compiled import compiled

Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Kernel = Callable[[Keys, Numbers, npt.NDArray[np.int32], Numbers, npt.NDArray[np.int32]], None]

BLOCK = 512
"""Partitions side by side: their lowest keys stay in the first-level cache up to
``rendezvous.ARGMIN_REPLICAS_MAX`` replicas."""

_STEP = (1 << 21) - 1
_UNDO_265 = np.uint64(pow(265, -1, 1 << 64))
_UNDO_21 = np.uint64(pow(21, -1, 1 << 64))
_UNDO_LAST = np.uint64(pow((1 << 31) + 1, -1, 1 << 64))
_SIGN = np.uint64(1 << 63)
_HIGHEST = np.uint64((1 << 64) - 1)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@compiled
def mix(key: np.uint64) -> np.uint64:
    """Mix everything behind the linear step, the sign bit flipped so that unsigned order is the signed one. The
    factors are written as shifts and sums, which vector units do without a 64-bit multiplication."""
    key ^= key >> np.uint64(24)
    key = key + (key << np.uint64(3)) + (key << np.uint64(8))
    key ^= key >> np.uint64(14)
    key = key + (key << np.uint64(2)) + (key << np.uint64(4))
    key ^= key >> np.uint64(28)
    return (key + (key << np.uint64(31))) ^ _SIGN


@compiled
def unmix(key: np.uint64) -> np.uint64:
    """The inverse of ``mix``."""
    key = (key ^ _SIGN) * _UNDO_LAST
    key ^= (key >> np.uint64(28)) ^ (key >> np.uint64(56))
    key *= _UNDO_21
    key ^= (key >> np.uint64(14)) ^ (key >> np.uint64(28)) ^ (key >> np.uint64(42)) ^ (key >> np.uint64(56))
    key *= _UNDO_265
    return key ^ (key >> np.uint64(24)) ^ (key >> np.uint64(48))


@compiled
def partition_term(number: np.int64) -> np.uint64:
    """Return a partition's part of the linear step."""
    return (np.uint64(number) << np.uint64(32)) * np.uint64(_STEP)


@cache
def kernel(replicas: int) -> Kernel:
    """The kernel for so many replicas: a constant in the code, so that its loops unroll. Each costs a step of
    the network for every key; beyond ``rendezvous.ARGMIN_REPLICAS_MAX``, sorting is faster.

    It takes the nodes' terms uint64 [N] in tie order, partition numbers int64 [P], the nodes' positions int32
    [N], the table of ``rank_table``, and fills int32 [P, replicas].
    """

    @compiled
    def place_rows(
        terms: Keys,
        numbers: Numbers,
        order: npt.NDArray[np.int32],
        table: Numbers,
        matrix: npt.NDArray[np.int32],
    ) -> None:
        lowest = np.empty(replicas * BLOCK, dtype=np.uint64)
        base = np.zeros(BLOCK, dtype=np.uint64)
        for start in range(0, len(numbers), BLOCK):
            size = min(BLOCK, len(numbers) - start)
            for lane in range(size):
                base[lane] = partition_term(numbers[start + lane])
            lowest[:] = _HIGHEST
            # Two nodes at a time: what is kept is read and written half as often.
            for pair in range(len(terms) // 2):
                one, two = terms[2 * pair], terms[2 * pair + 1]
                for lane in range(BLOCK):
                    first, second = mix(base[lane] + one), mix(base[lane] + two)
                    for place in range(replicas):
                        kept = lowest[place * BLOCK + lane]
                        lower = min(kept, first)
                        first = max(kept, first)
                        lowest[place * BLOCK + lane] = min(lower, second)
                        second = max(lower, second)
            for term in terms[len(terms) // 2 * 2 :]:
                for lane in range(BLOCK):
                    key = mix(base[lane] + term)
                    for place in range(replicas):
                        kept = lowest[place * BLOCK + lane]
                        lowest[place * BLOCK + lane] = min(kept, key)
                        key = max(kept, key)
            for place in range(replicas):
                for lane in range(BLOCK):
                    lowest[place * BLOCK + lane] = unmix(lowest[place * BLOCK + lane]) - base[lane]
            for lane in range(size):
                before, rank = np.uint64(0), 0
                for place in range(replicas):
                    term = lowest[place * BLOCK + lane]
                    rank = rank + 1 if place and term == before else _rank(term, terms, table)
                    before = term
                    matrix[start + lane, place] = order[rank]

    return place_rows


@compiled
def _rank(term: np.uint64, terms: Keys, table: Numbers) -> int:
    """The first node in tie order with this term."""
    mask = len(table) - 1
    at = np.int64(((term * _SPREAD) >> np.uint64(32)) & np.uint64(mask))
    while terms[table[at]] != term:
        at = (at + 1) & mask
    return int(table[at])


def rank_table(terms: Keys) -> Numbers:
    """Return where each term stands among ``terms`` uint64 [N]: an open hash table, int64 [a power of two], at
    most a quarter full. Of equal terms the first one is found; free places point to node 0 and do no harm."""
    table = np.full(1 << (4 * len(terms) - 1).bit_length(), -1, dtype=np.int64)
    _enter(terms, table)
    return np.maximum(table, 0)


@compiled
def _enter(terms: Keys, table: Numbers) -> None:
    mask = len(table) - 1
    for rank in range(len(terms)):
        at = np.int64(((terms[rank] * _SPREAD) >> np.uint64(32)) & np.uint64(mask))
        while table[at] >= 0 and terms[table[at]] != terms[rank]:
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = rank
