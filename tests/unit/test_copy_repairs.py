"""Repairs of damaged copies: when a node empties one by itself, and what etcd's log says of damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import LogPosition, MemberRecord, MemberState
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.groups.files.etcd_tuning import LOG_BYTES_MAX, cause_in
from rebalance.nodes.copy_attempts import CopyProgress
from rebalance.nodes.copy_repairs import AGAIN_MS, broken_by, why_not_repaired
from rebalance.nodes.kept_copies import RemovalJudge
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.partition_view import NodePartitionView, Recorded
from rebalance.nodes.replica_decision import Duty, MemberDecision
from rebalance.nodes.replica_duties import MemberDuties
from rebalance.ports.groups import MemberLife, MemberStatus
from rebalance.ports.mirrors import MirrorHost
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.member_views import P0, member, url, view
from tests.fixtures.node_context import node_context

NOW_MS = 1_800_000_000_000
LEADERLESS = LogPosition(5, 6, True)


def group(
    names: str, *, running: str, leaderless: str = "", gone: str = "", pending: str = "", forced: int = 0
) -> NodePartitionView:
    """The copy of ``a`` is damaged; ``running``: whose members run."""
    seen = view(names, pending, started=names, listed=names, forced=forced)

    def record(name: str) -> Recorded[MemberRecord]:
        state = MemberState.RUNNING if name in running else MemberState.FAILED
        position = LEADERLESS if name in leaderless else None
        return Recorded(MemberRecord(state, url(name), "c", True, position=position), 4, 4)

    records = {name: record(name) for name in names}
    return replace(seen, records=records, living=frozenset(names) - frozenset(gone))


@pytest.mark.parametrize(
    ("seen", "obstacle"),
    [
        (group("abc", running="bc"), ""),
        (group("abcde", running="bcd"), ""),
        (group("abc", running="b"), "1 of 3 voters serve without it: its data may be needed"),
        (group("ab", running="b"), "1 of 2 voters serve without it: its data may be needed"),
        (group("a", running=""), "0 of 1 voters serve without it: its data may be needed"),
        (group("abc", running="bc", gone="c"), "1 of 3 voters serve without it: its data may be needed"),
        (group("abc", running="bc", leaderless="bc"), "0 of 3 voters serve without it: its data may be needed"),
        (group("abc", running="bc", pending="b", forced=9), "its group is being founded anew"),
        (replace(group("abc", running="bc"), configuration=None), "its group is not known"),
        (group("bc", running="bc"), "its group is not known"),
    ],
)
def test_only_what_the_group_does_not_need_is_emptied(seen: NodePartitionView, obstacle: str) -> None:
    assert why_not_repaired(seen, "a", NOW_MS, None) == obstacle


def test_a_second_time_within_a_day_is_left_to_an_operator() -> None:
    seen = group("abc", running="bc")
    why = why_not_repaired(seen, "a", NOW_MS, NOW_MS - AGAIN_MS + 1)
    assert why.startswith("it was made anew at 2027-01-14T08:00:00Z already: check the disk, then `zonectl ")
    assert why_not_repaired(seen, "a", NOW_MS, NOW_MS - AGAIN_MS) == ""


GONE = MemberDecision(Duty.REPORT_DATA_LOST, "DATA_LOST: the member's directory is gone")


def test_only_what_is_damaged_or_gone_is_repaired() -> None:
    restart = MemberDecision(Duty.RESTART)
    failed = replace(member(MemberLife.FAILED), reason="COPY_DAMAGED: walpb: crc mismatch")
    assert broken_by(failed, restart) == failed.reason
    assert not broken_by(replace(failed, reason="EXIT 1: address already in use"), restart)
    assert not broken_by(replace(failed, reason="DISK_FULL: no space left"), restart)
    assert not broken_by(replace(failed, life=MemberLife.RUNNING), restart)
    assert broken_by(None, GONE) == broken_by(member(MemberLife.DATA_LOST), GONE) == GONE.reason
    assert not broken_by(None, MemberDecision(Duty.RESERVE))
    assert not broken_by(member(MemberLife.RESERVED), GONE), "it was started elsewhere"


class EmptyHost:
    """Host of a node whose directory is gone."""

    async def status(self, _: PartitionId) -> MemberStatus | None:
        return None

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset()


async def test_a_view_from_before_does_not_tell_a_copy_as_lost_that_is_made_anew() -> None:
    """Said after its repair was noted, it would stand until an operator comes."""
    metastore = MemoryMetastore()
    node = node_context(metastore, "a", EmptyHost())
    before = group("abc", running="bc")
    written: dict[str, Recorded[MemberRecord]] = {}
    for name, record in before.records.items():
        key = node.keyspace.member(P0, name)
        result = await metastore.commit(Txn((), (Put(key, record.value.encode()),)))
        written[name] = Recorded(record.value, result.revision, result.revision)
    keys = before.keys
    assert before.configuration is not None
    result = await metastore.commit(Txn((), (Put(keys.configuration, before.configuration.value.encode()),)))
    configuration = replace(before.configuration, mod_revision=result.revision)
    before = replace(before, records=written, configuration=configuration)
    duties = MemberDuties(
        node,
        OwnRecords(node),
        cast(RemovalJudge, None),
        lambda _: "",
        cast(MirrorHost, None),
        CopyProgress(lambda: 60.0),
    )
    for _ in range(3):
        await duties.tend(before)
        assert await metastore.get(node.keyspace.member(P0, "a")) is None


FATAL = '{"level":"fatal","msg":"failed to read WAL, cannot be repaired","error":"walpb: crc mismatch"}'
FIELD = '{"level":"fatal","msg":"discovery failed","error":"proto: wrong wireType = 3 for field Data"}'
PORT = '{"level":"fatal","msg":"discovery failed","error":"listen tcp 127.0.0.1:1: address already in use"}'
FULL = '{"level":"fatal","msg":"failed to read WAL, cannot be repaired","error":"no space left on device"}'
STREAM = '{"level":"warn","msg":"lost TCP streaming connection","error":"unexpected EOF"}'


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((FATAL,), "COPY_DAMAGED: failed to read WAL, cannot be repaired: walpb: crc mismatch"),
        (("2026-11-27 C | etcdmain: walpb: crc mismatch",),
         "COPY_DAMAGED: 2026-11-27 C | etcdmain: walpb: crc mismatch"),
        (("panic: freepages: failed to get all reachable pages", "goroutine 1 [running]:", "main.go:1"),
         "COPY_DAMAGED: panic: freepages: failed to get all reachable pages"),
        (("panic: tocommit(9) is out of range. Was the raft log corrupted, truncated, or lost?",),
         "COPY_DAMAGED: panic: tocommit(9) is out of range. Was the raft log corrupted, truncated, or lost?"),
        ((FIELD,), "COPY_DAMAGED: discovery failed: proto: wrong wireType = 3 for field Data"),
        (("panic: runtime error: slice bounds out of range [::9] with length 3",),
         "COPY_DAMAGED: panic: runtime error: slice bounds out of range [::9] with length 3"),
        (("unexpected fault address 0x7f", "fatal error: fault"),
         "COPY_DAMAGED: unexpected fault address 0x7f"),
        ((FULL,), "DISK_FULL: failed to read WAL, cannot be repaired: no space left on device"),
        ((FATAL, FULL), "DISK_FULL: failed to read WAL, cannot be repaired: no space left on device"),
        ((STREAM, PORT), ""),
        ((), ""),
    ],
)  # fmt: skip
def test_what_etcd_says_of_its_end(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    """Lines of an earlier run do not count."""
    log = tmp_path / "etcd.log"
    log.write_text("earlier: crc mismatch\n")
    begin = log.stat().st_size
    log.write_text(log.read_text() + "".join(f"{line}\n" for line in ("started", *lines)))
    assert cause_in(log, begin) == said
    assert cause_in(tmp_path / "none", 0) == ""


def test_last_words_are_found_however_much_was_said_before(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text(f"{STREAM}\n" * (2 * LOG_BYTES_MAX // len(STREAM)) + f"{FATAL}\n")
    assert cause_in(log, 0).startswith("COPY_DAMAGED: failed to read WAL")
