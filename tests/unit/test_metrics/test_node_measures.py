"""Counts that a node keeps of its members and of the moves that it leads."""

from __future__ import annotations

from dataclasses import replace

from app.metrics.exposition import Exposition
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import ProcessRole, Stage
from rebalance.groups.process.member_metrics import MemberMeasures, MemberTotals
from rebalance.nodes.own_records import MoveTimes
from rebalance.ports.groups import MemberEndpoints, MemberLife, MemberStatus
from tests.fixtures.scraped import value

FIRST, SECOND = PartitionId(ZoneId(1), 0), PartitionId(ZoneId(1), 1)
RUNNING = MemberStatus(
    MemberLife.RUNNING, MemberEndpoints("http://n1:1", "http://n1:2"), term=3, size_bytes=100
)


def lines(fsyncs: float, seconds: float) -> bytes:
    """Metrics of a member: its fsyncs and their seconds, among others of its own."""
    return (
        b"# TYPE etcd_disk_wal_fsync_duration_seconds histogram\n"
        b'etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 9\n'
        b"etcd_disk_wal_fsync_duration_seconds_sum %f\n"
        b"etcd_disk_wal_fsync_duration_seconds_count %d\n"
        b"etcd_server_proposals_failed_total 0\n"
    ) % (seconds, fsyncs)


def test_what_members_count_is_added_and_never_falls() -> None:
    exposition = Exposition((ProcessRole.NODE,))
    totals = MemberTotals(exposition)
    counted = []
    for partition, fsyncs, seconds in (
        (FIRST, 100, 2.0),  # Before the node began to look.
        (FIRST, 110, 2.5),
        (SECOND, 7, 1.0),
        (SECOND, 8, 1.25),
        (FIRST, 4, 0.5),  # It has started again.
        (FIRST, 5, 0.75),
    ):
        totals.note(partition, lines(fsyncs, seconds))
        counted.append(value(exposition, "zonekeeper_node_member_fsyncs_total"))
    assert counted == [0, 10, 10, 11, 15, 16]
    assert value(exposition, "zonekeeper_node_member_fsync_seconds_total") == 0.5 + 0.25 + 0.5 + 0.25


def test_a_member_that_left_and_came_back_is_new() -> None:
    exposition = Exposition((ProcessRole.NODE,))
    totals = MemberTotals(exposition)
    totals.note(FIRST, lines(100, 1))
    totals.keep([SECOND])
    totals.note(FIRST, lines(200, 1))
    assert value(exposition, "zonekeeper_node_member_fsyncs_total") == 0


def test_members_are_counted_by_state_and_forgotten_when_they_go() -> None:
    exposition = Exposition((ProcessRole.NODE,))
    members = MemberMeasures(exposition)
    members.note(FIRST, replace(RUNNING, is_leader=True))
    members.note(SECOND, replace(RUNNING, life=MemberLife.STARTING, size_bytes=0))
    members.publish({FIRST, SECOND})
    assert value(exposition, "zonekeeper_node_members", state="RUNNING") == 1
    assert value(exposition, "zonekeeper_node_members", state="STARTING") == 1
    assert value(exposition, "zonekeeper_node_member_bytes") == 100
    assert value(exposition, "zonekeeper_node_leads") == 1
    members.publish({FIRST})
    assert value(exposition, "zonekeeper_node_members", state="STARTING") is None


def test_members_that_found_no_space_are_counted_until_they_run_again() -> None:
    exposition = Exposition((ProcessRole.NODE,))
    members = MemberMeasures(exposition)
    full = "DISK_FULL: the member ended with code 1"
    counted = []
    for life, reason in (
        (MemberLife.RESERVED, ""),
        (MemberLife.RESERVED, full),
        (MemberLife.FAILED, full),
        (MemberLife.FAILED, "EXIT 1: panic"),
        (MemberLife.RUNNING, ""),
    ):
        members.note(FIRST, replace(RUNNING, life=life, reason=reason))
        members.publish({FIRST})
        counted.append(value(exposition, "zonekeeper_node_members_without_space"))
    assert counted == [0, 1, 1, 0, 0]


def test_a_later_term_is_an_election_and_what_arrives_is_copied() -> None:
    exposition = Exposition((ProcessRole.NODE,))
    members = MemberMeasures(exposition)
    for status in (
        RUNNING,
        RUNNING,
        replace(RUNNING, life=MemberLife.STARTING, term=0),
        replace(RUNNING, term=5),
        replace(RUNNING, term=6, received=10),
        replace(RUNNING, term=6, received=25),
        replace(RUNNING, term=6),
    ):
        members.note(FIRST, status)
    assert value(exposition, "zonekeeper_node_leader_changes_total") == 2
    assert value(exposition, "zonekeeper_copied_bytes_total") == 15


def test_a_move_and_its_stages_take_their_time() -> None:
    exposition = Exposition((ProcessRole.NODE,))
    now = [0.0]
    times = MoveTimes(exposition, lambda: now[0])
    for at, stage in ((0, Stage.NONE), (10, Stage.CATCHING_UP), (12, Stage.CATCHING_UP), (40, Stage.JOINT)):
        now[0] = at
        times.note(FIRST, stage)
    assert value(exposition, "zonekeeper_move_seconds_count") is None
    now[0] = 45
    times.note(FIRST, Stage.NONE)
    assert value(exposition, "zonekeeper_move_stage_seconds_sum", stage="CATCHING_UP") == 30
    assert value(exposition, "zonekeeper_move_stage_seconds_sum", stage="JOINT") == 5
    assert value(exposition, "zonekeeper_move_seconds_sum") == 35


def test_a_move_that_another_node_ends_is_not_told() -> None:
    exposition = Exposition((ProcessRole.NODE,))
    times = MoveTimes(exposition)
    times.note(FIRST, Stage.JOINT)
    times.forget(FIRST)
    times.note(FIRST, Stage.NONE)
    assert value(exposition, "zonekeeper_move_seconds_count") is None
