"""Leadership of groups as it should be: the preferred primary at rest, and an heir where the leader's node is
gone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    MemberRecord,
    MemberRole,
    MemberState,
    Stage,
)
from rebalance.nodes.leadership import Leadership, heir, preferred_successor
from rebalance.nodes.partition_view import NodePartitionView, Recorded
from rebalance.ports.groups import MemberEndpoints, MemberLife, MemberStatus
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.node_context import node_context

P0 = PartitionId(ZoneId(1), 0)


def seen(
    stable: str, pending: str = "", living: str = "abcd", starting: str = "", joining: str = ""
) -> NodePartitionView:
    """A letter is a node. ``starting``: members whose process does not answer yet; ``joining``: learners."""

    def recorded(text: str) -> Recorded[Assignments] | None:
        return Recorded(Assignments(tuple(text)), 1, 1) if text else None

    def state(name: str) -> MemberState:
        return MemberState.STARTING if name in starting else MemberState.RUNNING

    records = {
        name: Recorded(MemberRecord(state(name), f"peer-{name}", f"client-{name}"), 1, 1) for name in "abcd"
    }
    members = {
        name: ConfiguredMember(
            name, MemberRole.LEARNER if name in joining else MemberRole.VOTER, f"peer-{name}", False
        )
        for name in stable + joining
    }
    configuration = Recorded(ConfigurationRecord(2, "b", Stage.NONE, members, ""), 1, 1)
    keys = Keyspace().partition(P0)
    return NodePartitionView(
        P0, keys, recorded(stable), recorded(pending), None, configuration, records, frozenset(living)
    )


@pytest.mark.row("PME-131")
@pytest.mark.parametrize(
    ("view", "leader", "expected"),
    [
        pytest.param(seen("abc"), "b", "a", id="another one leads"),
        pytest.param(seen("abc"), "a", "", id="it leads"),
        pytest.param(seen("abc", pending="bcd"), "b", "", id="not during a move"),
        pytest.param(seen("abc", living="bc"), "b", "", id="its node is gone"),
        pytest.param(seen("abc", starting="a"), "b", "", id="it does not answer yet"),
        pytest.param(seen("bc", joining="a"), "b", "", id="a learner never leads"),
        pytest.param(seen(""), "b", "", id="no stable"),
    ],
)
def test_leadership_goes_to_the_preferred_primary(view: NodePartitionView, leader: str, expected: str) -> None:
    """PME-131: and only to one that could serve at once."""
    assert preferred_successor(view, leader) == expected


@pytest.mark.row("I3-041")
@pytest.mark.parametrize(
    ("view", "leader", "expected"),
    [
        pytest.param(seen("abc"), "b", "", id="the leader's node lives"),
        pytest.param(seen("abc", living="ac"), "b", "a", id="the first voter of stable"),
        pytest.param(seen("abc", living="c"), "b", "c", id="the only one left"),
        pytest.param(seen("abc", living="ac", starting="a"), "b", "c", id="one that answers"),
        pytest.param(seen("abc", pending="bcd", living="acd"), "b", "c", id="one that stays first"),
        pytest.param(seen("abc", pending="bd", living="acd"), "b", "a", id="one that goes, where none stays"),
        pytest.param(seen("ab", pending="abd", living="d", joining="d"), "b", "", id="a learner never leads"),
        pytest.param(seen("abc", living="ac"), "", "", id="no leader is known"),
        pytest.param(seen(""), "b", "", id="no stable"),
    ],
)
def test_an_heir_takes_over_from_a_node_that_is_gone(
    view: NodePartitionView, leader: str, expected: str
) -> None:
    """I3-041: the group itself sees nothing wrong with a leader whose agent is frozen."""
    assert heir(view, leader) == expected


@dataclass
class AskedHost:
    """Says no; what it was asked for is kept."""

    asked: list[str] = field(default_factory=list)

    async def take_leadership(self, _: PartitionId, leader_url: str) -> bool:
        self.asked.append(leader_url)
        return False


@pytest.mark.row("I3-041")
@pytest.mark.parametrize(("node", "asked"), [("a", ["client-b"]), ("c", [])])
async def test_only_the_heir_asks_and_not_in_each_round(node: str, asked: list[str]) -> None:
    """I3-041: of the leader itself, as only a leader can hand over."""
    host = AskedHost()
    leadership = Leadership(node_context(MemoryMetastore(), node, host))
    status = MemberStatus(MemberLife.RUNNING, MemberEndpoints("peer", "client"), leader="b")
    for _ in range(5):
        await leadership.beside_follower(seen("abc", living="ac"), status)
    assert host.asked == asked
