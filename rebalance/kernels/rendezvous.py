"""Rendezvous (highest random weight) placement over whole zones, bit for bit as Ignite 3 computes it.

For partition ``p`` every node gets a 64-bit key from a Wang mix of (hash of its name, p); the nodes with the
lowest *signed* keys hold the replicas, in that order. The mix is a bijection, so keys tie only where the names'
32-bit hashes collide ("Aa", "BB"); ties go by the names' UTF-16 code units. Each partition is independent of
the others: a zone can be cut anywhere, and a node that joins or leaves moves only its own share.

The algorithm sees names only through ``NodeDictionary``: hashes in tie order. That is what travels to the
executors of a cluster, so that a string is hashed once per node and not once per cell.

Source: IEP-038, PME-077. Memory: the result plus about 0.5 MB, whatever the size of the zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.int32]
Partitions = range | npt.NDArray[np.int64]

CHUNK_BYTES = 256 * 1024
"""Bytes of keys worked on at a time: small enough to stay in a core's second-level cache."""

ARGMIN_REPLICAS_MAX = 12
"""Maximum number of replicas found by as many passes of argmin; beyond, one stable sort is faster."""

COMPILED_KEYS_MIN = 1 << 21
"""Number of keys (about 10 ms of numpy) from which the compiled kernel is worth loading and, the first time on
a machine, compiling."""

PARTITION_LIMIT = 1 << 31
"""Partition numbers are non-negative int32 values."""

_TAKEN = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_SIGN = np.uint64(1 << 63)
HIGHEST_KEY_PARTITION = 1_224_901_242
"""The one partition number for which the mix can yield the highest signed key, which is also the mark of a
node that is already taken: found by inverting the mix. There the sort is used, which needs no mark."""


@dataclass(frozen=True, slots=True)
class NodeDictionary:
    """Nodes as the algorithm sees them. ``hashes`` is int32 [N], sorted by the names' UTF-16 code units (the
    tie order); ``order`` is int32 [N]: the position of each of them in the caller's sequence of names."""

    hashes: npt.NDArray[np.int32]
    order: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.hashes)


def name_hash(name: str) -> int:
    """The 32-bit polynomial hash ``h = 31 h + unit`` over UTF-16 code units, as a signed int."""
    units = np.frombuffer(name.encode("utf-16-le", "surrogatepass"), dtype="<u2").astype(np.uint32)
    powers = np.full(len(units), 31, dtype=np.uint32)
    if len(units):
        powers[-1] = 1
    weights = np.cumprod(powers[::-1], dtype=np.uint32)[::-1]
    return int(np.sum(units * weights, dtype=np.uint32).astype(np.int32))


def node_dictionary(nodes: Sequence[str]) -> NodeDictionary:
    """Hash and order the names of N nodes. Raises ValueError when a name is there twice."""
    if len(set(nodes)) != len(nodes):
        twice = [name for name, count in Counter(nodes).items() if count > 1]
        raise ValueError(f"nodes are named twice: {', '.join(map(repr, twice[:5]))}")
    tie_order = sorted(range(len(nodes)), key=lambda i: nodes[i].encode("utf-16-be", "surrogatepass"))
    hashes = np.array([name_hash(nodes[i]) for i in tie_order], dtype=np.int32)
    return NodeDictionary(hashes, np.array(tie_order, dtype=np.int32))


def effective_replicas(nodes: int, replicas: int) -> int:
    """Columns of the matrix: ``min(replicas, nodes)``; ALL is any number that is large enough. With 0 or 1
    nodes every node is taken, whatever ``replicas`` is. Raises ValueError below one replica."""
    if nodes > 1 and replicas < 1:
        raise ValueError(f"replicas must be at least 1, not {replicas}")
    return nodes if nodes <= 1 else min(replicas, nodes)


def voters(consensus: int, width: int) -> int:
    """Return how many of the first columns are peers; the rest are learners (IEP-016, IEP-035, IEP-038).

    ``consensus`` is ``min(2q - 1, r)``, ``width`` the columns of the matrix. Column 0 is always a peer, so that
    a group has a voter even when asked for none.
    """
    return min(max(consensus, 1), width)


def place(nodes: Sequence[str], partitions: Partitions, replicas: int) -> Matrix:
    """Indexes into ``nodes`` in preference order: int32 [P, min(replicas, N)].

    ``partitions`` are the numbers to place, a range or an int64 array [P], in any order. Raises ValueError for
    fewer than one replica, for a name that is there twice, for partition numbers outside 0..2^31-1.
    """
    return place_hashed(node_dictionary(nodes), partitions, replicas)


def place_hashed(dictionary: NodeDictionary, partitions: Partitions, replicas: int) -> Matrix:
    """``place`` for names that are hashed already: int32 [P, min(replicas, N)], errors as there."""
    numbers = _checked_numbers(partitions)
    width = effective_replicas(len(dictionary), replicas)
    matrix = np.zeros((len(numbers), width), dtype=np.int32)
    if len(dictionary) <= 1 or len(numbers) == 0:
        return matrix
    node_terms = node_terms_of(dictionary.hashes)
    is_large = len(numbers) * len(dictionary) >= COMPILED_KEYS_MIN and width <= ARGMIN_REPLICAS_MAX
    # The mark of an empty place in its network is a key like any other to the compiled kernel.
    if is_large and not np.any(numbers == HIGHEST_KEY_PARTITION):
        # It loads numba.
        from rebalance.kernels.rendezvous_compiled import kernel, rank_table

        kernel(width)(node_terms, numbers, dictionary.order, rank_table(node_terms), matrix)
    else:
        _place_by_argmin(dictionary, numbers, node_terms, matrix)
    return matrix


def _place_by_argmin(
    dictionary: NodeDictionary,
    numbers: npt.NDArray[np.int64],
    node_terms: npt.NDArray[np.uint64],
    matrix: Matrix,
) -> None:
    """Fill ``matrix`` chunk by chunk with numpy."""
    width = matrix.shape[1]
    rows = max(1, CHUNK_BYTES // (8 * len(dictionary)))
    keys = np.empty((min(rows, len(numbers)), len(dictionary)), dtype=np.uint64)
    scratch = np.empty_like(keys)
    sort = width > ARGMIN_REPLICAS_MAX or bool(np.any(numbers == HIGHEST_KEY_PARTITION))
    for start in range(0, len(numbers), rows):
        chunk = numbers[start : start + rows]
        chunk_keys = keys[: len(chunk)]
        _mix_into(chunk_keys, scratch[: len(chunk)], node_terms, chunk)
        ranks = _sorted_ranks(chunk_keys, width) if sort else _lowest_ranks(chunk_keys, width)
        np.take(dictionary.order, ranks, out=matrix[start : start + len(chunk)])


def _checked_numbers(partitions: Partitions) -> npt.NDArray[np.int64]:
    if isinstance(partitions, range):
        numbers = np.arange(partitions.start, partitions.stop, partitions.step, dtype=np.int64)
    else:
        numbers = np.asarray(partitions, dtype=np.int64)
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= PARTITION_LIMIT):
        raise ValueError(
            f"partition numbers are 0..{PARTITION_LIMIT - 1}, not {numbers.min()}..{numbers.max()}"
        )
    return numbers


def node_terms_of(hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """Return the nodes' parts of the first mix step: uint64 [N].

    ``~k + (k << 21)`` is ``k * (2^21 - 1) - 1``: linear, so what the node gives and what the partition gives
    can be computed apart and added.
    """
    unsigned = hashes.view(np.uint32).astype(np.uint64)
    return unsigned * np.uint64((1 << 21) - 1) - np.uint64(1)


def _mix_into(
    keys: npt.NDArray[np.uint64],
    scratch: npt.NDArray[np.uint64],
    node_terms: npt.NDArray[np.uint64],
    numbers: npt.NDArray[np.int64],
) -> None:
    """Fill ``keys`` [rows, N] with the mixed keys, the sign bit flipped so that unsigned order is the signed
    one. Arithmetic is modulo 2^64."""
    partition_terms = (numbers.astype(np.uint64) << np.uint64(32)) * np.uint64((1 << 21) - 1)
    np.add(partition_terms[:, None], node_terms[None, :], out=keys)
    np.right_shift(keys, np.uint64(24), out=scratch)
    np.bitwise_xor(keys, scratch, out=keys)
    np.multiply(keys, np.uint64(265), out=keys)
    np.right_shift(keys, np.uint64(14), out=scratch)
    np.bitwise_xor(keys, scratch, out=keys)
    np.multiply(keys, np.uint64(21), out=keys)
    np.right_shift(keys, np.uint64(28), out=scratch)
    np.bitwise_xor(keys, scratch, out=keys)
    np.multiply(keys, np.uint64((1 << 31) + 1), out=keys)
    np.bitwise_xor(keys, _SIGN, out=keys)


def _lowest_ranks(keys: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.intp]:
    """Columns of the ``width`` lowest keys of each row, ascending; the first of equal ones. Spoils ``keys``."""
    rows = np.arange(len(keys))
    ranks = np.empty((len(keys), width), dtype=np.intp)
    for column in range(width):
        lowest = np.argmin(keys, axis=1)
        ranks[:, column] = lowest
        keys[rows, lowest] = _TAKEN
    return ranks


def _sorted_ranks(keys: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.intp]:
    """The same answer as ``_lowest_ranks`` by a stable sort of each row."""
    return np.argsort(keys, axis=1, kind="stable")[:, :width]
