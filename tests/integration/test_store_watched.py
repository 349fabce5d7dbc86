"""Exchanges of store servers as processes, seen by a server beside them: what they send, log, store and
answer."""

from __future__ import annotations

import pytest

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.exchange.core.exchange_messages import FullMessage, LatchCount, LatchOpen, SingleMessage
from rebalance.exchange.core.late_affinity import ZoneAffinity
from rebalance.store.core.store_messages import AppendRecords, RecordsStored, SupplyBatch, SupplyRequest
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.watched_servers import (
    LISTS,
    MOVED,
    NAMES,
    OTHER,
    WITNESSED,
    ZONE,
    WatchedStory,
    watched_story,
)

PHASES = ["INIT", "TOPOLOGY", "RELEASE", "LATCH", "COMMITS", "PREPARE", "SENT"]
OWNING, MOVING = CopyState.OWNING, CopyState.MOVING


@pytest.fixture(scope="module")
def story(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> WatchedStory:
    directory = tmp_path_factory.mktemp("watched")
    return watched_story(directory, etcd_server.endpoint, Keyspace(f"{directory.parent.name}-watched/"))


def full_sent(story: WatchedStory, version: str, to: str = "n1") -> FullMessage:
    """Full map that the first witness sent at that version of the story; a peer that asks again gets the
    same."""
    messages = [
        letter.message
        for letter in story.first.sent
        if isinstance(letter.message, FullMessage)
        and letter.peer == to
        and letter.message.exchange == story.versions[version]
    ]
    return messages[0]


def full_received(story: WatchedStory, version: str) -> FullMessage:
    """Full map that the second witness received from a process at that version."""
    return story.second.fulls(str(story.versions[version]))[0]


def updates(story: WatchedStory, sender: str, partition: int) -> list[tuple[int, CopyState, SingleMessage]]:
    """Maps without an exchange that the first witness received: when, and with which state of a copy."""
    return [
        (letter.number, letter.message.maps[ZONE].copies[partition].state, letter.message)
        for letter in story.first.received
        if isinstance(letter.message, SingleMessage)
        and letter.message.exchange is None
        and letter.peer == sender
        and partition in letter.message.maps[ZONE].copies
    ]


@pytest.mark.row("PME-002")
def test_a_server_joins_once_it_can_be_reached(story: WatchedStory) -> None:
    """PME-002: put a server's address into the metastore before its join is in the ring; no server's log has
    the exchange before that event was written."""
    joins = [event for event in story.events if event.record.event.trigger is Trigger.NODE_JOINED]
    assert {event.record.event.node for event in joins} == {"w1", "w2", *NAMES}
    for event in joins[:4]:
        assert story.joined[event.record.event.node] < event.revision


@pytest.mark.row("PME-019", "PME-020")
def test_members_count_the_major_version_up_and_all_else_the_minor_one(story: WatchedStory) -> None:
    """PME-019, PME-020."""
    before = (0, 0)
    for seen in story.events:
        event = seen.record.event
        changes = event.trigger in (Trigger.NODE_JOINED, Trigger.NODE_LEFT, Trigger.NODE_FAILED)
        after = (before[0] + 1, 0) if changes else (before[0], before[1] + 1)
        assert (event.version.major, event.version.minor) == after
        before = after


@pytest.mark.row("PME-022", "PME-023", "PME-127")
def test_all_servers_take_the_ring_s_events_in_its_order_one_at_a_time(story: WatchedStory) -> None:
    """PME-022, PME-023, PME-127."""
    ring = [event.version for event in story.events]
    after = ring[ring.index(str(story.versions["zone"])) :]
    for name in NAMES:
        log = story.logs[name]
        assert log.begun[-len(after) :] == after
        versions = [line["version"] for line in log.lines]
        assert [
            version for number, version in enumerate(versions) if version not in versions[:number]
        ] == log.begun
        assert sorted(versions, key=ring.index) == versions


@pytest.mark.row("PME-024")
def test_an_exchange_is_initialised_first_and_distributed_then(story: WatchedStory) -> None:
    """PME-024."""
    for name in NAMES:
        assert story.logs[name].phases(story.versions["switched"]) == PHASES
        assert story.logs[name].types(story.versions["switched"]) == {"ALL"}


@pytest.mark.row("PME-004", "PME-009", "PME-010", "PME-011", "PME-015")
@pytest.mark.parametrize(
    ("moment", "trigger"),
    [
        ("left", Trigger.NODE_LEFT),
        ("moved", Trigger.TARGET_SET),
        ("other", Trigger.ZONE_START),
        ("other ends", Trigger.ZONE_STOP),
        ("switched", Trigger.AFFINITY_CHANGE),
    ],
)
def test_what_starts_an_exchange(story: WatchedStory, moment: str, trigger: Trigger) -> None:
    """PME-004: a server leaves in order. PME-009: other nodes shall keep the data. PME-010, PME-011: a zone
    begins and ends. PME-015: new primaries are ready. All processes run the whole exchange."""
    version = story.versions[moment]
    assert story.event(version).record.event.trigger is trigger
    for name in NAMES:
        assert story.logs[name].phases(version)[:6] == PHASES[:6]


@pytest.mark.row("PME-016", "PME-061")
@pytest.mark.parametrize("moment", ["zone", "moved", "switched", "other"])
def test_each_server_sends_one_map_to_the_coordinator(story: WatchedStory, moment: str) -> None:
    """PME-016, PME-061: send one map, on the server's connection to the coordinator; the same one again until
    it is answered."""
    version = str(story.versions[moment])
    for name in NAMES:
        singles = story.first.singles(version, name)
        assert singles
        assert all(single == singles[0] for single in singles)
        assert singles[0].sender == name
    assert {single.sender for single in story.first.singles(version)} == set(NAMES)
    assert not story.second.singles(version)


@pytest.mark.row("PME-052", "PME-055", "PME-062", "PME-065", "PME-111")
def test_what_a_single_map_says(story: WatchedStory) -> None:
    """PME-062, PME-111: by zone and partition the state of the server's copy. PME-065: with its counter and
    size. PME-052, PME-055: and from where its log can replay."""
    for name in NAMES:
        single = story.first.singles(str(story.versions["moved"]), name)[0]
        copies = single.maps[ZONE].copies
        held = {number for number, nodes in enumerate(LISTS) if name in nodes}
        assert held <= set(copies)
        for number in held:
            assert (copies[number].state, copies[number].counter, copies[number].size) == (OWNING, 4, 0)
            assert copies[number].epoch > 0
            assert single.history[ZONE, number].counter == 0


@pytest.mark.row("PME-059", "PME-060")
def test_copies_are_made_before_the_map_is_sent(story: WatchedStory) -> None:
    """PME-059: no assigned partition is missing. PME-060: then the full map has one entry for each copy, of
    the exchange's version."""
    version = str(story.versions["zone"])
    entries = 0
    for name in NAMES:
        copies = story.first.singles(version, name)[0].maps[ZONE].copies
        assert set(copies) == {number for number, nodes in enumerate(LISTS) if name in nodes}
        entries += len(copies)
    full = full_sent(story, "zone").maps[ZONE]
    assert str(full.version) == version
    assert full.entries == entries == 8


@pytest.mark.row("PME-001", "PME-017", "PME-098", "PME-100")
def test_the_full_map_is_the_union_of_the_single_maps(story: WatchedStory) -> None:
    """PME-017, PME-098, PME-100: those of the processes, and the coordinator's own, which has no copy.
    PME-001: after the exchange all say the same of who leads what."""
    singles = {name: story.first.singles(str(story.versions["switched"]), name)[0] for name in NAMES}
    union = {name: dict(single.maps[ZONE].copies) for name, single in singles.items()}
    full = full_sent(story, "switched").maps[ZONE]
    assert {node: dict(copies) for node, copies in full.nodes.items() if copies} == union
    version = str(story.versions["zone"])
    assert story.seen["leaders"] == {tuple((nodes[0], version) for nodes in LISTS)}


@pytest.mark.row("PME-035")
def test_all_servers_have_the_coordinator_s_lists(story: WatchedStory) -> None:
    """PME-035: compute the coordinator's lists on all servers; their digests agree, so no server asks for
    lists."""
    singles = [letter.message for letter in story.first.received if isinstance(letter.message, SingleMessage)]
    assert singles
    assert not any(single.wants_affinity for single in singles)
    assert full_sent(story, "moved").digests[ZONE]


@pytest.mark.row("PME-047", "PME-048")
def test_the_latch_opens_when_all_have_counted_down(story: WatchedStory) -> None:
    """PME-048: send no map before the latch opens.

    PME-047: a server without an open put counts down at once, the one with open ones does not.
    """
    version = story.versions["steps"]
    counts = [
        letter
        for letter in story.first.received
        if isinstance(letter.message, LatchCount) and letter.message.exchange == version
    ]
    opened = [
        letter.number
        for letter in story.first.sent
        if isinstance(letter.message, LatchOpen) and letter.message.exchange == version
    ]
    singles = [
        letter.number
        for letter in story.first.received
        if isinstance(letter.message, SingleMessage) and letter.message.exchange == version
    ]
    assert {letter.peer for letter in counts} == set(NAMES)
    first = {letter.peer: letter.number for letter in reversed(counts)}
    assert max(first.values()) < min(opened) < min(singles)
    assert story.seen["singles before the latch"] == 0
    assert story.seen["held phases"] == {"n1": "RELEASE", "n2": "LATCH", "n3": "LATCH"}


@pytest.mark.row("PME-018", "PME-037", "PME-040", "PME-042", "PME-099")
def test_a_put_that_comes_during_an_exchange_waits_for_its_end(story: WatchedStory) -> None:
    """PME-037, PME-040: it waits, while the server answers others, and runs on the new version. PME-042: it
    was sent once. PME-018: no server has finished before the full message was there, though the result was
    committed; PME-099: each got one."""
    version = story.versions["steps"]
    assert story.seen["put waits at the latch"]
    assert story.seen["put waits for the map"]
    assert story.answers["beside"].code.label == "NO_ZONE"
    assert story.seen["finished before the map"] == [True, True, True]
    assert [record.exchange for record in story.results][-1] == version
    assert (story.answers["during"].code.label, story.answers["during"].version) == ("DONE", version)
    told = [
        letter.peer
        for letter in story.first.sent
        if isinstance(letter.message, FullMessage) and letter.message.exchange == version
    ]
    assert sorted(set(told)) == list(NAMES)


@pytest.mark.row("PME-030")
def test_a_zone_that_ends_refuses_at_once(story: WatchedStory) -> None:
    """PME-030: while requests for others wait; then nothing of it is left."""
    assert story.answers["other"].code.label == "DONE"
    assert story.answers["other ends"].code.label == "NO_ZONE"
    assert story.answers["other ends"].version < story.versions["other ends"]
    assert story.seen["read waits"]
    assert story.answers["read waited"].version == story.versions["other ends"]
    assert OTHER not in story.seen["zones on disk"]


@pytest.mark.row("PME-038")
def test_each_answer_names_the_version_that_was_used(story: WatchedStory) -> None:
    """PME-038."""
    for number in range(16):
        answer = story.answers[f"put {number}"]
        assert (answer.code.label, answer.version) == ("DONE", story.versions["zone"])
        assert answer.position is not None
        assert answer.position.counter == 1 + number // 4


@pytest.mark.row("PME-109", "PME-113", "PME-115", "PME-116", "PME-117", "PME-118", "PME-122")
def test_a_copy_is_filled_after_the_exchange(story: WatchedStory) -> None:
    """PME-113: it begins as MOVING, and the old owners keep state and data. PME-115: so it is in the full
    map of the exchange. PME-116, PME-109: once it is filled the server owns it, while others have it as
    MOVING; PME-117, PME-122: says so in a map without an exchange, PME-118: and the coordinator tells all."""
    full = full_sent(story, "moved")
    assert full.maps[ZONE].states(1) == {"n1": MOVING, "n2": OWNING, "n3": OWNING}
    assert {name: head.state for name, head in story.heads["before"].items()} == {"n2": OWNING, "n3": OWNING}
    number, state, single = updates(story, "n1", 1)[0]
    assert (state, single.basis) == (OWNING, story.versions["moved"])
    told = [
        letter
        for letter in story.first.sent
        if isinstance(letter.message, FullMessage)
        and letter.message.exchange is None
        and letter.number > number
    ]
    assert {letter.peer for letter in told} >= set(NAMES)
    first = told[0].message
    assert isinstance(first, FullMessage)
    assert first.maps[ZONE].states(1)["n1"] is OWNING
    assert story.heads["switched"]["n1"].state is OWNING
    assert story.seen["keys moved"] == {b"k1", b"k5", b"k9", b"k13"}


@pytest.mark.row("PME-082", "PME-119", "PME-124")
def test_the_old_owner_gives_up_after_the_switch(story: WatchedStory) -> None:
    """PME-119, PME-082: once there are more owners than the lists need, and a result has it in no set any
    more; not before. PME-124: in the end its copy is EVICTED, without a row."""
    after = updates(story, "n3", 1)
    gone = [single for _, state, single in after if state in (CopyState.RENTING, CopyState.EVICTED)]
    assert gone
    assert {single.basis for single in gone} == {story.versions["switched"]}
    moved, switched = (full_sent(story, version).maps[ZONE] for version in ("moved", "switched"))
    assert moved.owners(1) == {"n2", "n3"}
    assert switched.owners(1) == {"n1", "n2", "n3"} > set(MOVED[1])
    for version in ("moved", "switched"):
        single = story.first.singles(str(story.versions[version]), "n3")[0]
        assert single.maps[ZONE].copies[1].state is OWNING
    assert story.event(story.versions["switched"]).record.event.basis == story.versions["moved"]
    assert story.heads["given up"]["n3"].state is CopyState.EVICTED
    assert story.seen["keys left"] == set()


@pytest.mark.row("PME-110")
def test_the_next_oldest_ends_the_exchange_of_a_coordinator_that_died(story: WatchedStory) -> None:
    """PME-110: its result had been committed: it stands, and there is no second one."""
    version = story.versions["orphan"]
    assert story.seen["orphan results"] == story.seen["orphan results after"]
    assert len(story.seen["orphan results"]) == 1
    phases = story.logs[story.oldest].phases(version)
    assert "COMMIT" in phases[phases.index("COLLECT") :]
    for name in NAMES:
        assert story.logs[name].phases(version)[:6] == PHASES[:6]
        assert story.logs[name].begun.index(str(version)) + 1 == story.logs[name].begun.index(
            str(story.versions["first gone"])
        )
    assert story.answers["after the first"].code.label == "DONE"


@pytest.mark.row("PME-087", "PME-104", "PME-135")
def test_a_server_that_joins_is_told_who_leads(story: WatchedStory) -> None:
    """PME-087, PME-104: by the coordinator, for every partition. PME-135: it leads nothing itself."""
    full = full_received(story, "second joins")
    joined = full.joined_affinity[ZONE]
    assert [nodes[0] for nodes in joined] == ["n1", "n2", "n3", "n1"]
    assert not full_received(story, "witnessed").joined_affinity


@pytest.mark.row("PME-081", "PME-101", "PME-105", "PME-131", "PME-133", "PME-136")
def test_the_primary_stays_until_its_successor_is_ready(story: WatchedStory) -> None:
    """PME-136, PME-131: every partition has the primary of before. PME-133, PME-081: the new one is a backup
    meanwhile. PME-105: the full message says where the list is not the ideal one; PME-101: and that the copy
    being filled takes part from the position of the owners on."""
    full = full_received(story, "witnessed")
    assert full.affinity_diff[ZONE] == {3: ("n1", "w2")}
    affinity = ZoneAffinity.from_diff(WITNESSED, full.affinity_diff[ZONE])
    before = full_received(story, "second joins").outcomes[ZONE]
    assert [affinity.primary(number) for number in range(4)] == [outcome.effective[0] for outcome in before]
    assert [outcome.effective[0] for outcome in full.outcomes[ZONE]] == ["n1", "n2", "n3", "n1"]
    states = full.maps[ZONE].states(3)
    assert {name: states[name] for name in ("n1", "n3", "w2")} == {"n1": OWNING, "n3": OWNING, "w2": MOVING}
    assert full.positions[ZONE, 3].counter == full.maps[ZONE].reports(3)["w2"].counter == 4


@pytest.mark.row("PME-078")
def test_puts_go_through_the_primary_to_every_copy(story: WatchedStory) -> None:
    """PME-078: to the one that is being filled as well, whose disk is waited for."""
    assert set(story.second.senders(AppendRecords)) == {"n1"}
    assert story.answers["moving"].code.label == "DONE"
    stored = [letter.peer for letter in story.second.sent if isinstance(letter.message, RecordsStored)]
    assert set(stored) == {"n1"}
    answer = story.answers["not primary"]
    assert (answer.code.label, answer.primary) == ("NOT_PRIMARY", "w2")


@pytest.mark.row("PME-041", "PME-043", "PME-125", "PME-129", "PME-130")
def test_an_exchange_waits_for_all_puts_that_were_let_in(story: WatchedStory) -> None:
    """PME-041, PME-125: no full map is sent before they have ended, and they end on the version on which
    they began. PME-043: they delay it on every server. PME-129, PME-130: it waits for both."""
    version = story.versions["held"]
    assert story.seen["held puts wait"]
    assert story.seen["held phases"] == {"n1": "RELEASE", "n2": "LATCH", "n3": "LATCH"}
    count = story.seen["held letters"]
    for letter in story.second.received[:count]:
        assert not isinstance(letter.message, LatchOpen | FullMessage) or letter.message.exchange != version
    for name in ("open", "more"):
        assert (story.answers[name].code.label, story.answers[name].version) == (
            "DONE",
            story.versions["witnessed"],
        )
    assert story.second.fulls(str(version))


@pytest.mark.row("PME-064", "PME-066")
def test_the_coordinator_waits_for_each_map(story: WatchedStory) -> None:
    """PME-066: one withheld map keeps all waiting. PME-064: the list of those that are waited for shrinks."""
    version = story.versions["collected"]
    lists = story.logs[story.oldest].awaited(version)
    # Whose map came before the coordinator's own part began is not waited for any more.
    assert {"w2"} <= set(lists[0]) <= {*NAMES, "w2"} - {story.oldest}
    assert ["w2"] in lists
    assert lists[-1] == []
    assert [len(names) for names in lists] == sorted(map(len, lists), reverse=True)
    phases = story.seen["collected phases"]
    assert phases.pop(story.oldest) == "COLLECT"
    assert set(phases.values()) == {"SENT"}


@pytest.mark.row("PME-046", "PME-051")
def test_a_transaction_that_is_too_old_is_refused_with_the_reason(story: WatchedStory) -> None:
    """PME-051, PME-046: what it read keeps no exchange waiting; one in time is done."""
    assert story.answers["transaction"].code.label == "DONE"
    assert story.answers["old transaction"].code.label == "TOO_OLD"
    assert story.answers["old transaction"].detail == "a transaction ends within 60000 ms"


@pytest.mark.row("PME-114")
def test_a_copy_is_filled_by_an_owner(story: WatchedStory) -> None:
    """PME-114: also by one that is in no list any more."""
    asked = {letter.peer for letter in story.second.sent if isinstance(letter.message, SupplyRequest)}
    supplied = set(story.second.senders(SupplyBatch))
    assert supplied
    assert supplied <= asked <= {"n1", "n3"}
    assert {row.key for row in story.second.disk.rows((ZONE, 3), b"", 1 << 30)} >= {b"k3", b"k15", b"open"}


@pytest.mark.row("PME-080", "PME-083", "PME-134")
def test_the_switch_is_an_exchange_of_its_own(story: WatchedStory) -> None:
    """PME-134: when the new primary owns its copy. PME-080, PME-083: then every list is the ideal one."""
    version = story.versions["led"]
    assert story.event(version).record.event.trigger is Trigger.AFFINITY_CHANGE
    full = full_received(story, "led")
    assert not full.affinity_diff
    assert full.maps[ZONE].states(3)["w2"] is OWNING
    assert {name: head.state for name, head in story.heads["before the switch"].items()} == {
        "n1": OWNING,
        "n3": OWNING,
    }
    assert full.outcomes[ZONE][3].effective == ("w2", "n1")
    assert version > story.versions["witnessed"]
    assert version.major == story.versions["witnessed"].major


@pytest.mark.row("PME-079")
def test_every_primary_owns_its_copy(story: WatchedStory) -> None:
    """PME-079: after each exchange."""
    fulls = [letter.message for letter in story.second.received if isinstance(letter.message, FullMessage)]
    exchanges = [full for full in fulls if full.exchange is not None]
    assert len(exchanges) >= 5
    for full in exchanges:
        for number, outcome in enumerate(full.outcomes[ZONE]):
            assert full.maps[ZONE].states(number)[outcome.effective[0]] is OWNING
    assert story.answers["after the second"].code.label == "DONE"
