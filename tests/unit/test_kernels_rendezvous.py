"""The rendezvous kernel on examples; ``tests/property/test_rendezvous.py`` compares it with a plain version."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from catalog.core.quorum import ALL_REPLICAS, consensus_size
from rebalance.kernels import rendezvous
from rebalance.kernels.rendezvous import name_hash, node_dictionary, place, voters
from tests.fixtures.kernels import only

SEVEN = tuple(f"node-{number}" for number in range(7))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("polygenelubricants", -(2**31)), ("😀", 1772899)],
)
def test_names_hash_as_java_hashes_them(name: str, expected: int) -> None:
    assert name_hash(name) == expected


@pytest.mark.row("IEP-019", "IEP-034")
def test_example_of_seven_nodes() -> None:
    """IEP-034, IEP-019: 7 replicas with q=2 are 3 voters + 4 learners; 10 nodes, 7 replicas, q=3 are 5 + 2."""
    matrix = place(SEVEN, range(25), 7)
    assert matrix.shape == (25, 7)
    assert voters(consensus_size(2, 7, 7), matrix.shape[1]) == 3
    ten = place([f"n{number}" for number in range(10)], range(25), 7)
    assert ten.shape == (25, 7)
    assert voters(consensus_size(3, 7, 10), ten.shape[1]) == 5


@pytest.mark.row("IEP-016", "IEP-035", "IEP-037")
def test_voters_come_first_and_the_first_is_one_of_them() -> None:
    """IEP-016, IEP-035, IEP-037: the leading columns vote, and column 0, the preferred primary, always does."""
    assert [voters(consensus, 5) for consensus in (0, 1, 3, 5, 9)] == [1, 1, 3, 5, 5]
    assert voters(3, 0) == 0


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("replicas", [1, 2, 3, 5, 8])
def test_each_partition_has_its_replicas_and_voters(nodes: int, replicas: int) -> None:
    """S182: a grid of nodes, replicas and consensus sizes; every partition has as many as asked for."""
    names = [f"n{number}" for number in range(nodes)]
    for partitions in (1, 25):
        matrix = place(names, range(partitions), replicas)
        for consensus in range(1, replicas + 1):
            width = min(replicas, nodes)
            assert matrix.shape == (partitions, width)
            assert all(len(set(row)) == width for row in matrix.tolist())
            assert voters(consensus, width) == min(consensus, width)


def test_every_node_holds_every_partition() -> None:
    """S183: ALL over 50 nodes and 10,000 partitions with 4 voters each."""
    matrix = place([f"n{number}" for number in range(50)], range(10_000), ALL_REPLICAS)
    assert np.array_equal(np.sort(matrix, axis=1), np.tile(np.arange(50), (10_000, 1)))
    assert voters(4, matrix.shape[1]) == 4


EVEN_SIGMAS = 5.0


@pytest.mark.row("IEP-036")
@pytest.mark.parametrize("replicas", [3, 5, 7, ALL_REPLICAS])
@pytest.mark.parametrize("nodes", [7, 20, 60])
def test_votes_are_as_even_as_replicas(nodes: int, replicas: int) -> None:
    """IEP-036: on no node the number of either is further from the mean than chance would have it, for voters
    beside learners as for all replicas, and for those that come first."""
    partitions = 4096
    matrix = place([f"n{number}" for number in range(nodes)], range(partitions), replicas)
    for width in (matrix.shape[1], voters(2, matrix.shape[1]), 1):
        held = np.bincount(matrix[:, :width].ravel(), minlength=nodes)
        share = width / nodes
        spread = EVEN_SIGMAS * np.sqrt(partitions * share * (1 - share))
        assert np.abs(held - partitions * share).max() <= spread, width


@pytest.mark.row("IEP-038")
def test_fewer_replicas_are_a_prefix_of_more() -> None:
    """IEP-038: the order is the algorithm's ranking; more replicas only append to it."""
    full = place(SEVEN, range(128), ALL_REPLICAS)
    for replicas in range(1, 7):
        assert np.array_equal(place(SEVEN, range(128), replicas), full[:, :replicas])


@pytest.mark.parametrize("replicas", [0, 1, 3, ALL_REPLICAS])
def test_no_node_and_one_node_ignore_the_replicas(replicas: int) -> None:
    assert place((), range(4), replicas).shape == (4, 0)
    assert place(("only",), range(4), replicas).tolist() == [[0]] * 4


def test_fewer_nodes_than_replicas_take_all_of_them() -> None:
    matrix = place(("a", "b", "c"), range(50), 5)
    assert np.array_equal(np.sort(matrix, axis=1), np.tile(np.arange(3), (50, 1)))


def test_colliding_hashes_go_by_utf16_code_units() -> None:
    """ "Aa" and "BB" always tie: "Aa" is first, wherever the caller puts it."""
    for nodes in (("Aa", "BB"), ("BB", "Aa")):
        firsts = place(nodes, range(64), 2)[:, 0]
        assert {nodes[index] for index in firsts} == {"Aa"}


def test_tie_order_is_of_utf16_code_units_and_not_of_code_points() -> None:
    """U+1D400 is after U+FF21 as a code point, but its first UTF-16 unit is before it."""
    dictionary = node_dictionary(("\uff21", "\U0001d400"))
    assert dictionary.order.tolist() == [1, 0]


@pytest.mark.row("PME-077")
def test_the_same_nodes_in_another_order_give_the_same_names() -> None:
    """PME-077: deterministic for the same node set."""
    backwards = SEVEN[::-1]
    matrix, other = place(SEVEN, range(200), 3), place(backwards, range(200), 3)
    assert np.array_equal(np.array(SEVEN)[matrix], np.array(backwards)[other])


def test_partition_numbers_may_be_any() -> None:
    numbers = np.array([5, 0, 64_999, 5, 2**31 - 1])
    matrix = place(SEVEN, numbers, 3)
    assert matrix.dtype == np.int32
    for row, number in zip(matrix, numbers.tolist(), strict=True):
        assert np.array_equal(row, place(SEVEN, range(number, number + 1), 3)[0])
    assert place(SEVEN, range(0), 3).shape == (0, 3)


def _name_with_hash(wanted: int) -> str:
    digits = []
    rest = wanted % 2**32
    while rest:
        rest, digit = divmod(rest, 31)
        digits.append(digit)
    return "".join(map(chr, reversed(digits)))


def test_the_highest_key_is_a_key_like_any_other() -> None:
    """One hash mixes to the highest signed key at one partition; nodes that share it are still all found."""
    name = _name_with_hash(0x96B1EA6E)
    twin = chr(ord(name[0]) - 1) + chr(ord(name[1]) + 31) + name[2:]
    assert name_hash(name) == name_hash(twin)
    partition = rendezvous.HIGHEST_KEY_PARTITION
    matrix = place((name, twin, "other"), range(partition, partition + 1), 3)
    assert sorted(matrix[0].tolist()) == [0, 1, 2]
    assert matrix[0, 0] == 2


@pytest.mark.parametrize(
    ("nodes", "partitions", "replicas", "message"),
    [
        (("a", "b"), range(3), 0, "at least 1, not 0"),
        (("a", "b", "a"), range(3), 2, "named twice: 'a'"),
        (("a", "b"), range(-1, 3), 2, "partition numbers"),
        (("a", "b"), range(2**31, 2**31 + 1), 2, "partition numbers"),
    ],
)
def test_wrong_input_says_what_is_wrong(
    nodes: tuple[str, ...], partitions: range, replicas: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        place(nodes, partitions, replicas)


@pytest.mark.parametrize("kernel", ["numpy", "compiled"])
def test_memory_is_the_result_and_a_chunk(kernel: str) -> None:
    """65,536 partitions x 1,000 nodes would be 524 MB of keys."""
    dictionary = node_dictionary([f"node-{number}" for number in range(1000)])
    with only(kernel):
        # Compiling takes memory too, once.
        rendezvous.place_hashed(dictionary, range(10), 3)
        tracemalloc.start()
        try:
            matrix = rendezvous.place_hashed(dictionary, range(65_536), 3)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < matrix.nbytes + 4_000_000
