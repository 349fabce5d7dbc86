"""The release level: what it keeps back, which schema it needs, and how the `epoch` key holds it."""

from __future__ import annotations

import json

import pytest

from app.cli.exits import ExitCode
from catalog.core.codec import RecordNotReadableError
from catalog.core.level import BELOW_LEVEL_CODE, LEVEL, LEVELS, below_level, inactive, level_of, schema_of
from catalog.core.zone import Node
from catalog.store.migrate import known_schemas
from rebalance.core.keyspace.epoch import EpochRecord, level_in
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.topology.node_presence import Topology, living

KEYSPACE = Keyspace()
LATER = json.dumps({"v": 3, "epoch": 1, "halted": "", "level": LEVEL + 1, "more": True}).encode()


def test_levels_are_numbered_one_after_the_other_and_this_build_has_the_last() -> None:
    assert [level.number for level in LEVELS] == list(range(LEVEL + 1))


def test_the_schema_of_each_level_is_one_that_this_build_makes() -> None:
    assert {level.schema for level in LEVELS if level.schema} <= set(known_schemas())


@pytest.mark.parametrize("number", range(LEVEL + 1))
def test_the_level_of_a_catalog_follows_from_who_may_write_it(number: int) -> None:
    assert level_of(schema_of(number)) == number


def test_a_catalog_of_an_earlier_schema_is_of_the_level_before() -> None:
    assert level_of("0007") == LEVEL - 1


def test_what_a_level_brings_is_inactive_before_it() -> None:
    assert inactive(LEVEL - 1) == LEVELS[LEVEL].gains != ()
    assert inactive(LEVEL) == ()


def test_whoever_is_below_the_level_is_told_both_and_what_to_start() -> None:
    told = below_level(LEVEL, "node n1")
    assert f"node n1 is of release level {LEVEL}" in told
    assert f"start {LEVELS[LEVEL].since} or later" in told
    assert "start a later version" in below_level(LEVEL + 1, "node n1")


def test_scripts_tell_that_end_from_all_others() -> None:
    assert BELOW_LEVEL_CODE == ExitCode.BELOW_LEVEL == 6


def test_the_epoch_without_a_level_is_what_builds_without_levels_read() -> None:
    assert json.loads(EpochRecord().encode())["v"] == 1
    assert "level" not in json.loads(EpochRecord().encode())


def test_the_epoch_with_a_level_is_of_a_format_that_they_do_not_read() -> None:
    record = EpochRecord(3, "why", level=LEVEL)
    document = json.loads(record.encode())
    assert (document["v"], document["level"]) == (2, LEVEL)
    assert EpochRecord.decode(record.encode()) == record


def test_a_level_above_this_build_is_refused_whatever_the_format_is() -> None:
    with pytest.raises(
        RecordNotReadableError, match=f"level {LEVEL}, and this installation is at level {LEVEL + 1}"
    ):
        EpochRecord.decode(LATER)


@pytest.mark.parametrize(
    ("value", "level"),
    [
        (None, 0),
        (EpochRecord().encode(), 0),
        (EpochRecord(level=LEVEL).encode(), LEVEL),
        (LATER, LEVEL + 1),
        (b"{", 0),
        (b'{"v":2,"level":"7"}', 0),
        (b'{"v":2,"level":true}', 0),
        (b'{"v":2,"level":-7}', 0),
        (b'{"level":7}', 0),
    ],
)
def test_the_level_is_read_from_any_format_and_is_0_where_none_is_said(value: bytes | None, level: int) -> None:
    assert level_in(value) == level


def test_a_node_has_the_level_of_the_build_that_wrote_its_entry() -> None:
    record = NodeRecord(Node("n1"), "first").at_level(LEVEL)
    assert NodeRecord.decode(record.encode()).build_level == LEVEL


def test_an_older_build_that_keeps_the_fields_of_a_newer_one_has_not_got_its_level() -> None:
    """The older build knows neither field, and writes both again under its own incarnation."""
    document = json.loads(NodeRecord(Node("n1"), "first").at_level(LEVEL).encode())
    taken_over = json.dumps(document | {"incarnation": "second"}).encode()
    assert NodeRecord.decode(taken_over).build_level == 0


@pytest.mark.parametrize(("in_force", "names"), [(0, ["n1", "n2"]), (LEVEL, ["n1"])])
def test_a_node_below_the_level_in_force_is_not_there(in_force: int, names: list[str]) -> None:
    records = (NodeRecord(Node("n1"), "i").at_level(LEVEL), NodeRecord(Node("n2"), "i"))
    items = [KeyValue(KEYSPACE.node(record.node.name), record.encode(), 1, 1, 1) for record in records]
    live, unreadable = living(items, KEYSPACE.nodes, Topology(), in_force)
    assert ([record.node.name for record in live], unreadable) == (names, ())
