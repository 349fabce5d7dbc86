"""Partition maps as arrays and as bytes, against the plain maps of the core."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyReport, CopyState, SingleMap, union
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.kernels.partition_map import (
    CHECKSUM,
    STATE_NAMES,
    DamagedMapError,
    FullArrays,
    MapHeader,
    SingleArrays,
    decode_integers,
    decode_map,
    encode_integers,
    encode_map,
    encode_states,
    merge,
)

PARTITIONS = 5
NAMES = ("a", "b", "c")
HEADER = MapHeader(7, 9, 3, 2, 161)

REPORT = st.builds(
    CopyReport,
    st.sampled_from(CopyState),
    st.sampled_from((0, 1, 2, 2**40)),
    st.integers(0, 2),
    st.integers(0, 3),
    st.booleans(),
)
COPIES = st.dictionaries(st.integers(0, PARTITIONS - 1), REPORT)
REPORTS = st.tuples(COPIES, COPIES, COPIES)


def arrays(copies: dict[int, CopyReport]) -> SingleArrays:
    rows = list(copies.items())
    return SingleArrays(
        np.array([number for number, _ in rows], dtype=np.int32),
        np.array([STATE_NAMES.index(each.state.value) for _, each in rows], dtype=np.uint8),
        np.array([each.counter for _, each in rows], dtype=np.int64),
        np.array([each.size for _, each in rows], dtype=np.int64),
        np.array([each.term for _, each in rows], dtype=np.int64),
        np.array([each.leads for _, each in rows], dtype=np.bool_),
    )


def merged(reports: tuple[dict[int, CopyReport], ...]) -> FullArrays:
    return merge(NAMES, [arrays(each) for each in reports], PARTITIONS)


def plain(full: FullArrays) -> dict[str, dict[int, tuple[str, int, int]]]:
    found: dict[str, dict[int, tuple[str, int, int]]] = {name: {} for name in full.names}
    for index, number in enumerate(full.owners_of_copies):
        values = STATE_NAMES[full.states[index]], int(full.counters[index]), int(full.sizes[index])
        found[full.names[full.nodes[index]]][int(number)] = values
    return found


def same(one: FullArrays, other: FullArrays) -> None:
    assert one.names == other.names
    for name in ("starts", "nodes", "states", "counters", "sizes", "leaders", "terms"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert getattr(one, name).dtype == getattr(other, name).dtype


@pytest.mark.row("PME-017", "PME-098")
@given(REPORTS)
def test_the_merge_is_the_union(reports: tuple[dict[int, CopyReport], ...]) -> None:
    """PME-017, PME-098: the same as the union of the core, copy by copy; of those that lead, the highest
    term."""
    full = merged(reports)
    version = TopologyVersion(4)
    singles = {
        name: SingleMap(ZoneId(7), name, version, 1, copies)
        for name, copies in zip(NAMES, reports, strict=True)
    }
    expected = union(ZoneId(7), version, "a", 1, singles)
    assert plain(full) == {
        name: {number: (each.state.value, each.counter, each.size) for number, each in copies.items()}
        for name, copies in expected.nodes.items()
    }
    for number in range(PARTITIONS):
        leading = {name: each for name, each in expected.reports(number).items() if each.leads}
        leader = full.leaders[number]
        assert (leader == -1) == (not leading)
        if leading:
            assert full.terms[number] == max(each.term for each in leading.values())
            assert leading[NAMES[leader]].term == full.terms[number]


@pytest.mark.row("PME-107")
@given(REPORTS)
def test_round_trip(reports: tuple[dict[int, CopyReport], ...]) -> None:
    """PME-107."""
    full = merged(reports)
    header, found = decode_map(encode_map(HEADER, full))
    assert header == HEADER
    same(found, full)


@given(st.lists(st.integers(-(2**62), 2**62)))
def test_integers(values: list[int]) -> None:
    found = decode_integers(encode_integers(np.array(values, dtype=np.int64)))
    assert found.tolist() == values


FULL = merge(
    NAMES,
    [arrays({number: CopyReport(CopyState.OWNING, 9, 3) for number in range(PARTITIONS)}) for _ in NAMES],
    PARTITIONS,
)


@given(st.data())
def test_damaged_bytes_are_refused(data: st.DataObject) -> None:
    """A byte that is changed, missing or too many is noticed, whatever it is."""
    good = bytearray(encode_map(HEADER, FULL))
    at = data.draw(st.integers(0, len(good) - 1))
    kind = data.draw(st.sampled_from(("change", "cut", "more")))
    if kind == "change":
        good[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del good[at:]
    else:
        good.insert(at, data.draw(st.integers(0, 255)))
    with pytest.raises(DamagedMapError):
        decode_map(bytes(good))


@given(st.data())
def test_wrong_bytes_under_a_right_checksum_are_refused(data: st.DataObject) -> None:
    """DamagedMapError alone is raised, and no map that differs from its header is decoded."""
    good = bytearray(encode_map(HEADER, FULL))[: -CHECKSUM.size]
    at = data.draw(st.integers(6, len(good) - 1))
    good[at] ^= data.draw(st.integers(1, 255))
    try:
        _, found = decode_map(bytes(good) + CHECKSUM.pack(zlib.crc32(good)))
    except DamagedMapError:
        return
    assert found.copies == FULL.copies


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are too few"),
        (b"x" * 100, "begins with b'ZKPM'"),
        (b"ZKPM\x09" + b"\0" * 100, "format 9 is not known; this build reads 1"),
        (encode_map(HEADER, FULL)[:-7], "checksum"),
    ],
)
def test_messages(data: bytes, message: str) -> None:
    with pytest.raises(DamagedMapError, match=message):
        decode_map(data)


def test_a_map_of_another_kind_is_refused() -> None:
    good = bytearray(encode_map(HEADER, FULL))[: -CHECKSUM.size]
    good[5] = 1
    with pytest.raises(DamagedMapError, match="kind 1 is not known; this build reads 0"):
        decode_map(bytes(good) + CHECKSUM.pack(zlib.crc32(good)))


def test_what_cannot_be_merged() -> None:
    one = arrays({PARTITIONS: CopyReport(CopyState.OWNING)})
    none = arrays({})
    with pytest.raises(ValueError, match="node b reports partition 5; the zone has 0 to 4"):
        merge(NAMES, [none, one, none], PARTITIONS)
    twice = arrays({1: CopyReport(CopyState.OWNING)})
    doubled = SingleArrays(*(np.concatenate([getattr(twice, name)] * 2) for name in SingleArrays.__slots__))
    with pytest.raises(ValueError, match="node c reports partition 1 twice"):
        merge(NAMES, [none, none, doubled], PARTITIONS)


@pytest.mark.row("PME-107")
@pytest.mark.parametrize(("states", "bits"), [((1,), 0), ((0, 1), 1), ((0, 1, 2), 2), ((0, 1, 2, 4), 2)])
def test_bits_of_states(states: tuple[int, ...], bits: int) -> None:
    """PME-107: no more than two bits a copy for up to four states that occur, whatever their order; no bits at
    all where all are the same."""
    random = np.random.default_rng(1)
    drawn = random.choice(np.array(states, dtype=np.uint8), 80_000)
    assert len(encode_states(drawn)) <= 80_000 * bits / 8 + 100
