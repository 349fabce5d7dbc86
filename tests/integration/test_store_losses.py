"""Store servers as processes that are killed, one and all: what is lost, what waits, what comes back, and by
what."""

from __future__ import annotations

import pytest

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import Trigger
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.lost_servers import LISTS, NAMES, READ_ONLY, SINGLE, ZONE, LossStory, loss_story


@pytest.fixture(scope="module")
def story(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> LossStory:
    directory = tmp_path_factory.mktemp("lost")
    return loss_story(directory, etcd_server.endpoint, Keyspace(f"{directory.parent.name}-lost/"))


@pytest.mark.row("PME-003", "PME-025", "PME-027")
def test_clients_start_no_exchange(story: LossStory) -> None:
    """PME-003: a client that connects is no event. PME-027: one that joins the ring counts the version up,
    and nothing else: puts go on upon the exchange before it. PME-025: its exchange has the type NONE in the
    log, from its beginning, those of servers ALL."""
    assert story.code("client") == "DONE"
    assert story.counts["events of clients"] == 0
    for name in NAMES:
        assert story.logs[name].phases(story.versions["client"]) == ["INIT"]
        assert story.logs[name].types(story.versions["client"]) == {"NONE"}
        assert story.logs[name].types(story.versions["zones"]) == {"ALL"}
    assert story.code("after the client") == "DONE"
    assert story.answers["after the client"].version == story.versions["zones"]
    assert not [record for record in story.results if record.version == story.versions["client"]]


@pytest.mark.row("PME-006")
def test_a_killed_server_is_found_dead(story: LossStory) -> None:
    """PME-006: nothing until then, an exchange of the others afterwards; a put that waited for its disk is
    done."""
    assert story.counts["events at the kill"] == story.counts["events before the kill"]
    failed = story.versions["failed"]
    event = next(each.record.event for each in story.events if each.record.event.version == failed)
    assert (event.trigger, event.node) == (Trigger.NODE_FAILED, "n3")
    for name in ("n1", "n2"):
        assert story.logs[name].types(failed) == {"ALL"}
    assert str(failed) not in story.logs["n3"].begun
    assert story.code("during the kill") == "DONE"
    assert story.code("without n3") == "DONE"


@pytest.mark.row("PME-094", "PME-095")
def test_partitions_without_an_owner_are_lost(story: LossStory) -> None:
    """PME-094: those that n3 alone had. PME-095: READ_WRITE_SAFE refuses what touches them, READ_ONLY_SAFE
    every put too, until n3 is back with its disk; then they are served with what was on it, without a reset."""
    lost = story.result(story.versions["failed"]).changed
    assert lost[SINGLE][0].is_lost
    assert lost[READ_ONLY][0].is_lost
    assert not any(outcome.is_lost for outcome in lost[ZONE].values())
    for name in ("safe", "read only"):
        assert [story.code(f"{name}: {what}") for what in ("lost get", "lost put", "other get")] == [
            "LOST",
            "LOST",
            "DONE",
        ]
    assert story.code("safe: other put") == "DONE"
    assert story.code("read only: other put") == "LOST"
    for name in ("safe", "read only"):
        assert (story.code(f"{name}: back get"), story.answers[f"{name}: back get"].value) == ("DONE", b"v")
        assert story.code(f"{name}: back put") == "DONE"
    assert story.heads["back"][SINGLE, 0].state is CopyState.OWNING
    assert Trigger.LOSS_RESET not in story.triggers(story.versions["failed"])


@pytest.mark.row("PME-090", "PME-092")
def test_a_server_that_was_away_is_filled(story: LossStory) -> None:
    """PME-092: it comes back after puts that it missed. PME-090: those copies are filled after the exchange,
    and own no sooner; the one that missed nothing owns at once."""
    outcomes = story.result(story.versions["back"]).changed[ZONE]
    assert [(outcomes[number].in_sync, outcomes[number].filling) for number in (0, 1)] == [
        (("n1", "n2"), ("n3",)),
        (("n1", "n2"), ("n3",)),
    ]
    assert (outcomes[2].in_sync, outcomes[2].filling) == (NAMES, ())
    assert story.keys["n3"] == story.keys["n1"] == story.keys["n2"]
    assert len(story.keys["n3"]) == story.heads["back"][ZONE, 0].tail.counter


@pytest.mark.row("PME-056", "PME-057")
def test_what_it_missed_is_replayed(story: LossStory) -> None:
    """PME-056, PME-057: the others have it in their logs, so its log goes on without a gap, where a copy
    that is loaded would begin with what it was loaded with."""
    for number in (0, 1):
        away, back = story.heads["away"][ZONE, number], story.heads["back"][ZONE, number]
        assert back.tail.counter >= away.tail.counter + 4
        assert back.log_start == away.log_start < away.tail
        assert back.epochs[: len(away.epochs)] == away.epochs


@pytest.mark.row("PME-088", "PME-089")
def test_copies_that_differ_are_in_the_log(story: LossStory) -> None:
    """PME-088, PME-089: with zone, partition, servers and what they have."""
    line = next(text for text in story.differences if "zone=1" in text and "partition=0" in text)
    tails = story.heads["away"][ZONE, 0].tail.counter, story.heads["back"][ZONE, 0].tail.counter
    assert f"'n3': {tails[0]}" in line
    assert f"'n1': {tails[1]}" in line
    assert "sizes=" in line


@pytest.mark.row("PME-007", "PME-008")
def test_a_zone_is_deactivated_and_activated(story: LossStory) -> None:
    """PME-008, PME-007: an exchange each; between them it refuses everything, other zones do not, and what
    was put is there afterwards."""
    for moment, trigger in (("off", Trigger.DEACTIVATE), ("on", Trigger.ACTIVATE)):
        version = story.versions[moment]
        event = next(each.record.event for each in story.events if each.record.event.version == version)
        assert event.trigger is trigger
        for name in NAMES:
            assert "LATCH" in story.logs[name].phases(version)
    assert story.code("off") == "RESTING"
    assert story.code("off: other zone") == "DONE"
    assert (story.code("on"), story.answers["on"].value) == ("DONE", b"v")


@pytest.mark.row("PME-058", "PME-097")
def test_owners_that_have_not_come_back_are_waited_for(story: LossStory) -> None:
    """PME-058: find the states and positions of copies on each server's disk after all were killed.

    PME-097: a partition whose only owner is not there yet is not lost, as no server went since: it waits.
    """
    assert story.code("waits for owners") == "WAITING_FOR_OWNERS"
    assert story.answers["waits for owners"].detail == "in-sync copies are on n3"
    assert (story.code("does not wait"), story.answers["does not wait"].value) == ("DONE", b"v")
    assert (story.code("all are back"), story.answers["all are back"].value) == ("DONE", b"v")
    before, after = story.heads["before all"], story.heads["after all"]
    assert {key: (head.state, head.tail) for key, head in after.items()} == {
        key: (head.state, head.tail) for key, head in before.items()
    }


@pytest.mark.row("PME-139")
def test_a_server_that_has_everything_owns_at_once(story: LossStory) -> None:
    """PME-139: nothing is filled after its join, and the next exchange is the switch."""
    version = story.versions["all are back"]
    outcomes = story.result(version).changed[ZONE]
    assert [outcomes[number].in_sync for number in range(len(LISTS))] == [NAMES] * 3
    assert not any(outcome.filling for outcome in outcomes.values())
    assert story.triggers(version) == [Trigger.AFFINITY_CHANGE]
