"""Processes during an upgrade: the order in which they are replaced, and what hinders the end of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.views.processes import notices, upgrade_body
from catalog.core.level import LEVEL
from catalog.core.zone import Node, ZoneId
from rebalance.controllers.upgrade import Upgrade
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable
from rebalance.core.keyspace.records import MemberRecord, MemberState, NodeRecord, ProcessRecord, store_name
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.keyspace.upgrade import (
    OlderBuild,
    RunningProcess,
    hindrances,
    running,
    stray_members,
    version_key,
    waiting,
)

KEYSPACE = Keyspace()
OLD = RunningProcess("n2", "node", "0.2.0", "", 0)
NEW = RunningProcess("n1", "node", "0.3.0", "0a1b", LEVEL)
SERVER = RunningProcess("h/1", "server", "0.3.0", "0a1b", LEVEL)
OLD_SERVER = RunningProcess("h/2", "server", "0.2.0", "", 0)
SEEN = OlderBuild("node n2 (0.2.0, release level 0)", 1)


def _item(key: str, value: bytes) -> KeyValue:
    return KeyValue(key, value, 1, 1, 1)


def _process(name: str, role: str, version: str, level: int = 0) -> KeyValue:
    return _item(KEYSPACE.process(name), ProcessRecord(role, build=version, level=level).encode())


def _node(name: str, level: int) -> KeyValue:
    record = NodeRecord(Node(name), "i")
    return _item(KEYSPACE.node(name), (record.at_level(level) if level else record).encode())


def _can_stop(node: str) -> Mapping[str, Any]:
    return {"can_stop": True, "losses": {}}


def _cannot_stop(node: str) -> Mapping[str, Any]:
    return {"can_stop": False, "losses": {"NO_MAJORITY": 3}}


def _shown(*processes: RunningProcess, in_force: int = 0, older: OlderBuild | None = None) -> Upgrade:
    reasons = tuple(hindrances(processes, older, LEVEL)) if in_force < LEVEL else ()
    return Upgrade(in_force, LEVEL, processes, reasons)


def test_processes_are_listed_in_the_order_in_which_they_are_replaced() -> None:
    items = [
        _process("n1", "node", "0.2.0"),
        _process("h/3", "controller", "0.2.0"),
        _process("h/2", "server", "0.3.0", LEVEL),
        _item(KEYSPACE.process("x"), b"{"),
    ]
    known = running([], items, KEYSPACE)
    assert [(process.role, process.level) for process in known] == [
        ("server", LEVEL),
        ("controller", 0),
        ("node", 0),
        ("process", 0),
    ]


def test_a_node_that_registers_no_process_is_known_by_its_entry() -> None:
    assert running([_node("n1", 0)], [], KEYSPACE) == (RunningProcess("n1", "node", "", "", 0),)


@pytest.mark.parametrize(("entry", "process", "level"), [(0, LEVEL, 0), (LEVEL, 0, 0), (LEVEL, LEVEL, LEVEL)])
def test_of_a_node_the_lower_of_both_levels_counts(entry: int, process: int, level: int) -> None:
    (known,) = running([_node("n1", entry)], [_process("n1", "node", "0.3.0", process)], KEYSPACE)
    assert known.level == level


def test_an_entry_of_a_node_that_cannot_be_read_is_of_no_level() -> None:
    items = [_process("n1", "node", "0.3.0", LEVEL)]
    (known,) = running([_item(KEYSPACE.node("n1"), b"{")], items, KEYSPACE)
    assert known.level == 0


def test_an_older_process_hinders_by_name() -> None:
    (reason,) = hindrances([SERVER, OLD], None, LEVEL)
    assert reason == f"node n2 (0.2.0, release level 0) cannot read what is written at level {LEVEL}"


def test_one_that_was_seen_a_moment_ago_hinders_too() -> None:
    (reason,) = hindrances([SERVER, NEW], SEEN, LEVEL)
    assert reason == f"{SEEN.process} was seen less than 10 minutes ago, and may come back"


def test_a_note_that_cannot_be_read_hinders() -> None:
    assert list(hindrances([SERVER], Unreadable("older", "damaged"), LEVEL)) == [
        "RECORD_NOT_READABLE: older: damaged"
    ]


def test_nothing_hinders_where_every_process_is_of_the_level() -> None:
    assert list(hindrances([SERVER, NEW], None, LEVEL)) == []


def test_versions_are_compared_as_numbers() -> None:
    assert version_key("0.10.0") > version_key("0.9.1") > version_key("")


def test_who_waits_is_of_an_earlier_version_or_level() -> None:
    assert waiting([SERVER, NEW]) == ()
    assert waiting([SERVER, OLD, NEW]) == (OLD,)
    patched = RunningProcess("n3", "node", "0.3.1", "", LEVEL)
    assert waiting([NEW, patched]) == (NEW,)


def test_a_store_server_is_replaced_with_its_node() -> None:
    of_store = RunningProcess(store_name("n2"), "node", "0.2.0", "", 0)
    assert waiting([SERVER, OLD, of_store]) == (OLD,)
    assert len(list(hindrances([SERVER, of_store], None, LEVEL))) == 1


def test_servers_go_before_nodes_and_one_at_a_time() -> None:
    steps = upgrade_body(_shown(SERVER, OLD_SERVER, OLD), _can_stop, ())["steps"]
    assert [(step["process"], step["may_go"], step["why_not"]) for step in steps] == [
        ("h/2", True, ""),
        ("n2", False, "after h/2"),
    ]


def test_a_node_that_is_needed_does_not_go_now() -> None:
    (step,) = upgrade_body(_shown(SERVER, OLD), _cannot_stop, ())["steps"]
    assert (step["may_go"], step["why_not"]) == (False, "it cannot be stopped now: 3 NO_MAJORITY")


@pytest.mark.parametrize(
    ("upgrade", "state"),
    [
        (_shown(SERVER, OLD), "MIXED"),
        (_shown(SERVER, NEW, older=SEEN), "MIXED"),
        (_shown(SERVER, NEW), "READY"),
        (_shown(SERVER, NEW, in_force=LEVEL), "FINALISED"),
        (_shown(SERVER, OLD, in_force=LEVEL), "FINALISED"),
    ],
)
def test_the_state_says_whether_it_can_be_finalised(upgrade: Upgrade, state: str) -> None:
    assert upgrade_body(upgrade, _can_stop, ())["state"] == state


def test_notices_say_what_waits_and_who_is_refused() -> None:
    assert notices(_shown(SERVER, NEW, in_force=LEVEL)) == []
    (ready,) = notices(_shown(SERVER, NEW))
    assert "can be finalised: `zonectl upgrade finalise`" in ready
    assert "older builds are refused by name" in ready
    (mixed,) = notices(_shown(SERVER, OLD))
    assert "is not finalised: node n2 (0.2.0" in mixed
    (refused,) = notices(_shown(SERVER, OLD, in_force=LEVEL))
    assert refused.startswith(f"node n2 (0.2.0, release level 0) is below release level {LEVEL}")


def test_members_of_groups_are_counted_by_node() -> None:
    """Mirrors, and what cannot be read, are none."""

    def member(number: int, node: str, state: MemberState = MemberState.RUNNING) -> KeyValue:
        partition = PartitionId(ZoneId(5), number)
        return _item(KEYSPACE.member(partition, node), MemberRecord(state, "", "").encode())

    items = [
        *(member(number, "n1") for number in range(3)),
        member(0, "n2", MemberState.FAILED),
        member(1, "n2", MemberState.NONE),
        _item(KEYSPACE.member(PartitionId(ZoneId(5), 7), "n1"), b"{"),
    ]
    assert stray_members(items, KEYSPACE) == {"n1": 3, "n2": 1}
