"""The coordinator's conclusion of each kind of event: which primaries stay, what is compared, when lost
partitions are looked for."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyReport, CopyState, SingleMap
from rebalance.core.partition_maps.topology_version import (
    Cluster,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
    ZoneSpec,
)
from rebalance.exchange.core.exchange_messages import Lists, SingleMessage
from rebalance.exchange.core.exchange_result import Collected, Conclusion, conclude
from rebalance.exchange.core.late_affinity import ZoneAffinity

ZONE = ZoneId(1)
LETTERS = {state.value[0]: state for state in CopyState}
BEFORE = TopologyVersion(5)
GOING = (Trigger.NODE_LEFT, Trigger.NODE_FAILED)
CLOSING = (Trigger.DEACTIVATE, Trigger.ZONE_STOP)
"""Triggers after which a zone is in no map."""


def concluded(
    triggers: tuple[Trigger, ...], ideal: str, previous: str, reported: str, *, is_new: bool = False
) -> Conclusion:
    """Conclusion of an exchange for a zone with one partition. ``reported``: ``a:O5 b:M``, with counters. a, b
    and c are servers; the first event is of d, the next one of e. With ``is_new`` the first one brings the
    zone."""
    zone, servers = ZoneSpec(ZONE, 1, 3), {"a": 1, "b": 2, "c": 3}
    servers |= {name: 9 for name, trigger in zip("de", triggers, strict=False) if trigger in GOING}
    cluster = Cluster(BEFORE, servers, zones={} if is_new else {ZONE: zone})
    events: list[DiscoveryEvent] = []
    for name, trigger in zip("de", triggers, strict=False):
        zones = () if trigger.changes_members and not is_new else (zone,)
        events.append(DiscoveryEvent(cluster.version_after(trigger), trigger, name, 9, zones=zones))
        cluster = cluster.after(events[-1])
    copies: dict[str, dict[int, CopyReport]] = {name: {} for name in cluster.servers}
    for text in reported.split():
        copies[text[0]][0] = CopyReport(LETTERS[text[2]], int(text[3:] or 0))
    exchange = events[0].version
    singles = {
        name: SingleMessage(
            name, order, exchange, BEFORE, {ZONE: SingleMap(ZONE, name, exchange, 1, copies[name])}
        )
        for name, order in cluster.servers.items()
    }
    lists: Lists = (tuple(ideal),)
    affinities = {} if is_new else {ZONE: ZoneAffinity(lists, (tuple(previous),))}
    return conclude(Collected("a", tuple(events), cluster, singles, affinities), lambda *_: lists)


@pytest.mark.row("PME-009", "PME-081", "PME-131", "PME-134", "PME-136")
@pytest.mark.parametrize(
    ("trigger", "ideal", "previous", "reported", "expected"),
    [
        # PME-131, PME-136: the primary stays, though the ideal one owns its copy, too.
        (Trigger.TARGET_SET, "ba", "ab", "a:O b:O", "ab"),
        (Trigger.BASELINE_SET, "ba", "ab", "a:O b:O", "ab"),
        (Trigger.NODE_JOINED, "dab", "ab", "a:O b:O d:O", "adb"),
        # PME-081: also where nobody plans with it any more.
        (Trigger.TARGET_SET, "bc", "ab", "a:O b:O c:M", "abc"),
        # PME-134: until the switch, be it that a target puts the owners into another order, and nothing else.
        (Trigger.AFFINITY_CHANGE, "ba", "ab", "a:O b:O", "ba"),
        (Trigger.AFFINITY_CHANGE, "acb", "abc", "a:O b:O c:O", "acb"),
        (Trigger.AFFINITY_CHANGE, "cb", "ab", "a:O b:O c:M", "acb"),
        (Trigger.NODE_FAILED, "ba", "ab", "a:O b:O", "ba"),
    ],
)
def test_when_a_primary_changes(
    trigger: Trigger, ideal: str, previous: str, reported: str, expected: str
) -> None:
    """PME-009, PME-081, PME-131, PME-134, PME-136."""
    found = concluded((trigger,), ideal, previous, reported)
    assert "".join(found.affinities[ZONE].effective[0]) == expected
    assert found.message.affinity_diff == ({ZONE: {0: tuple(expected)}} if expected != ideal else {})


@pytest.mark.row("PME-086", "PME-104")
@pytest.mark.parametrize(
    ("triggers", "ideal", "reported", "expected"),
    [
        ((Trigger.NODE_JOINED,), "da", "a:M d:M", "ad"),
        ((Trigger.NODE_JOINED,), "da", "a:O7 d:O7", "ad"),
        ((Trigger.NODE_JOINED, Trigger.NODE_JOINED), "dea", "a:O7 d:O7 e:O7", "ade"),
        # Nobody else owns a copy.
        ((Trigger.NODE_JOINED,), "da", "a:M d:O7", "da"),
        # By availability where others went, too.
        ((Trigger.NODE_JOINED, Trigger.NODE_FAILED), "da", "a:O7 d:O7", "da"),
    ],
)
def test_a_joiner_is_a_backup_where_the_ideal_list_says_primary(
    triggers: tuple[Trigger, ...], ideal: str, reported: str, expected: str
) -> None:
    """PME-086: also where there was no primary before, and each joiner of a merged exchange; so it is in the
    full message's affinity of joined servers (PME-104)."""
    found = concluded(triggers, ideal, "", reported, is_new=True)
    assert found.message.joined_affinity == {ZONE: (tuple(expected),)}


@pytest.mark.row("PME-088")
@pytest.mark.parametrize("trigger", [trigger for trigger in Trigger if trigger not in CLOSING])
@pytest.mark.parametrize("reported", ["a:O5 b:O4", "a:O5 b:M4", "a:O5 b:O5"])
def test_owners_are_compared_in_every_exchange(trigger: Trigger, reported: str) -> None:
    """PME-088: whatever it is about."""
    differences = concluded((trigger,), "ab", "ab", reported).differences
    expected = [(ZONE, 0, {"a": 5, "b": 4})] if reported == "a:O5 b:O4" else []
    assert [(each.zone, each.partition, each.counters) for each in differences] == expected


@pytest.mark.row("PME-093", "PME-097")
@pytest.mark.parametrize("trigger", [trigger for trigger in Trigger if trigger not in CLOSING])
def test_states_are_assigned_or_losses_are_looked_for(trigger: Trigger) -> None:
    """PME-097: lost partitions only when a server left or failed, and no outdated owner is looked for then."""
    behind = concluded((trigger,), "ab", "ab", "a:O5 b:O4").message.maps[ZONE].states(0)["b"]
    lost = concluded((trigger,), "a", "b", "a:M").message.lost
    assert lost == ({ZONE: {0}} if trigger in GOING else {})
    assigning = {"NODE_JOINED", "ACTIVATE", "BASELINE_SET", "TARGET_SET", "ZONE_START", "SNAPSHOT_RESTORE"}
    assert behind is (CopyState.MOVING if trigger.value in assigning else CopyState.OWNING)
