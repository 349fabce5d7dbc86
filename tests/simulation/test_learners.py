"""Learners with real agents: how they begin, change their role, and what a lost node means to them."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import DistributionAlgorithm, Node
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRecord, MemberState
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.nodes.kept_copies import Removal, RemovalJudge, RemovalVerdict
from rebalance.nodes.partition_view import Mirrors, NodePartitionView, client_urls, learner_urls
from tests.simulation.learner_world import HEALTHY_S, P0, LearnerWorld, roles, virtually

EITHER = pytest.mark.parametrize("algorithm", DistributionAlgorithm)


@pytest.mark.row("IEP-006", "IEP-034")
@EITHER
def test_a_zone_on_every_node_begins_with_learners(algorithm: DistributionAlgorithm) -> None:
    """IEP-006, IEP-034, S180: REPLICAS ALL on seven nodes are three voters and four learners in each
    partition, and a node that joins holds a replica of each."""

    async def main(world: LearnerWorld) -> None:
        world.want(ALL_REPLICAS, 2, algorithm=algorithm)
        await world.settled()
        assert {(len(each.peers), len(each.learners)) for each in stables(world)} == {(3, 4)}
        world.plane.join(Node("n7", (("rack", "1"),)))
        await world.until(lambda: all("n7" in each.nodes for each in stables(world)))
        await world.settled()
        assert {(len(each.peers), len(each.learners)) for each in stables(world)} == {(3, 5)}

    virtually(main, nodes=7, partitions=4, controller=True)


def test_only_a_matching_node_gets_a_learner() -> None:
    """A node that joins and matches the filter holds a replica of every partition once the scale-up
    time is over, and not before; one that does not match never holds anything."""

    async def main(world: LearnerWorld) -> None:
        world.want(ALL_REPLICAS, 2, scale_up_s=20, nodes_filter="$[?(@.rack != 0)]")
        await world.settled()
        assert {(len(each.peers), len(each.learners)) for each in stables(world)} == {(3, 1)}
        world.plane.join(Node("s", (("rack", "5"),)))
        world.plane.join(Node("h", (("rack", "0"),)))
        await asyncio.sleep(15.0)
        assert not any("s" in each.nodes for each in stables(world))
        await world.until(lambda: all("s" in each.nodes for each in stables(world)))
        await world.settled()
        assert {(len(each.peers), len(each.learners)) for each in stables(world)} == {(3, 2)}
        assert not world.cluster.disk("h")
        assert not world.cluster.mirror_disk("h")

    virtually(main, nodes=6, partitions=3, controller=True)


def stables(world: LearnerWorld) -> list[Assignments]:
    found = [world.assignments(number) for number in range(world.partitions)]
    return [each for each in found if each is not None]


@pytest.mark.row("IEP-031")
def test_more_replicas_than_voters() -> None:
    """S056, IEP-031: 2 replicas become 3 voters, then 3 voters and a learner: the consensus size stays."""

    async def main(world: LearnerWorld) -> None:
        shapes = []
        for replicas in (2, 3, 4, ALL_REPLICAS, 2):
            world.want(replicas, 2)
            shape = (min(replicas, 3), max(0, min(replicas, 5) - 3))
            await world.until(lambda shape=shape: world.is_settled() and sizes(world) == shape)
            shapes.append(sizes(world))
        assert shapes == [(2, 0), (3, 0), (3, 1), (3, 2), (2, 0)]

    virtually(main, nodes=5, controller=True)


def sizes(world: LearnerWorld) -> tuple[int, int]:
    stable = world.assignments()
    return (len(stable.peers), len(stable.learners)) if stable is not None else (0, 0)


@pytest.mark.row("IEP-043", "IEP-044", "IEP-045", "IEP-047")
@EITHER
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_lost_voter_is_replaced_by_a_learner(which: int, algorithm: DistributionAlgorithm) -> None:
    """S057, IEP-043, IEP-044, IEP-045, IEP-047: after the scale-down time the learner votes; the survivors keep
    their roles, the mirror stays until the switch, and voters are never fewer than a majority of three."""

    async def main(world: LearnerWorld) -> None:
        world.want(4, 2, algorithm=algorithm)
        await world.settled()
        before = world.assignments()
        assert before is not None
        await asyncio.sleep(HEALTHY_S)
        world.voters.clear()
        (learner,) = before.learners
        world.kill(before.peers[which])
        had_both = 0
        while world.assignments() == before:
            assert P0 in world.cluster.mirror_disk(learner)
            record = world.record(learner)
            had_both += record is not None and record.has_member and record.is_mirroring
            await asyncio.sleep(0.01)
        assert had_both > 0
        await world.settled()
        after = world.assignments()
        assert after is not None
        assert frozenset(after.peers) == (frozenset(before.peers) - {before.peers[which]}) | {learner}
        assert after.learners == ()
        assert min(world.voters) >= 2
        assert max(world.voters) <= 3
        record = world.record(learner)
        assert record is not None
        assert record.mirror is None

    virtually(main, nodes=4, controller=True)


@pytest.mark.row("IEP-046")
def test_a_lost_learner_moves_nobody() -> None:
    """IEP-046: the others keep member and role; no step of the group is taken."""

    async def main(world: LearnerWorld) -> None:
        world.want(ALL_REPLICAS, 2)
        await world.settled()
        before = world.assignments()
        assert before is not None
        steps = world.group.applied
        world.kill(before.learners[0])
        await world.until(lambda: world.assignments() != before)
        after = world.assignments()
        assert after is not None
        assert frozenset(after.peers) == frozenset(before.peers)
        assert frozenset(after.learners) == frozenset(before.learners[1:])
        await world.settled()
        assert world.group.applied == steps

    virtually(main, nodes=6, controller=True)


@pytest.mark.row("IEP-049", "IEP-050", "IEP-051")
@pytest.mark.parametrize("replicas", [3, ALL_REPLICAS])
def test_a_lost_majority_promotes_nobody(replicas: int) -> None:
    """IEP-049, IEP-050, IEP-051: without a majority no configuration can be committed, learners or not; pending
    says what is wanted and the group stays what it was, until its voters are back."""

    async def main(world: LearnerWorld) -> None:
        world.want(replicas, 2)
        await world.settled()
        before = world.assignments()
        assert before is not None
        steps, lost = world.group.applied, before.peers[:2]
        world.kill(*lost)
        await world.until(lambda: world.assignments(name="pending") is not None)
        await asyncio.sleep(120.0)
        assert world.plane.applied(P0) == (frozenset(before.peers), frozenset())
        assert world.assignments() == before
        assert world.group.applied == steps
        assert not world.group.has_leader
        for name in before.learners:
            record = world.record(name)
            assert record is not None
            assert record.is_mirroring, "it can still be read"
        world.start(*lost)
        await world.until(lambda: world.is_settled() and world.assignments(name="pending") is None)
        assert world.group.has_leader

    virtually(main, nodes=6, controller=True)


@pytest.mark.row("IEP-051")
def test_a_minority_with_all_learners_promotes_nobody() -> None:
    """IEP-051: learners beside one voter of three are no majority, however many they are."""

    async def main(world: LearnerWorld) -> None:
        await world.write("abc+def")
        await world.settled("abc+def")
        world.kill("n1", "n2")
        await world.write(pending="adef")
        await asyncio.sleep(200.0)
        assert world.plane.applied(P0) == (frozenset(("n0", "n1", "n2")), frozenset())
        assert world.assignments() == roles("abc+def")

    virtually(main, nodes=6)


@pytest.mark.row("IEP-043")
def test_a_demoted_voter_has_a_mirror_before_it_goes() -> None:
    """IEP-043: the mirror starts beside the member; the voter is removed once it runs, then its data is wiped;
    both are in the node's record, and the leader says what it waits for."""

    async def main(world: LearnerWorld) -> None:
        await world.write("abc")
        await world.settled("abc")
        await asyncio.sleep(HEALTHY_S)
        started = asyncio.get_running_loop().time()
        world.cluster.rates = replace(world.cluster.rates, mirror_copy_s=(30.0, 30.0))
        await world.write(pending="ab+c")
        await world.until(lambda: world.reason == "MIRROR_NOT_RUNNING: n2")
        while asyncio.get_running_loop().time() < started + 25.0:
            record = world.record("n2")
            assert record is not None
            assert record.state is MemberState.RUNNING
            assert len(world.group.voters) == 3
            await asyncio.sleep(0.5)
        assert record.mirror is not None
        assert record.mirror.state is MemberState.STARTING
        await world.settled("ab+c")
        record = world.record("n2")
        assert record is not None
        assert not record.has_member
        assert record.is_mirroring
        assert P0 not in world.cluster.disk("n2")

    virtually(main, nodes=3)


def test_a_voter_that_goes_without_a_copy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator's invariant: a leader that waits for no mirror breaks it."""
    monkeypatch.setattr(MemberRecord, "is_mirroring", property(lambda record: True))

    async def main(world: LearnerWorld) -> None:
        await world.write("abc")
        await asyncio.sleep(60.0)
        world.cluster.rates = replace(world.cluster.rates, mirror_copy_s=(30.0, 30.0))
        await world.write(pending="ab+c")
        found = await world.auditor.broken
        assert found.invariant == "a demoted voter leaves a copy"

    with pytest.raises(AssertionError, match="a demoted voter leaves a copy"):
        virtually(main, nodes=3)


def test_a_mirror_that_goes_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator's invariant: a node that does not ask before it destroys breaks it."""

    async def always(*_: object) -> Removal:
        return Removal(RemovalVerdict.MAY_GO)

    monkeypatch.setattr(RemovalJudge, "judge", always)
    monkeypatch.setattr(NodePartitionView, "learning", frozenset())

    async def main(world: LearnerWorld) -> None:
        await world.write("ab+c")
        await asyncio.sleep(20.0)
        world.cluster.reserve_mirror("n2", P0, world.group.token)
        await world.write(pending="abc")
        await asyncio.sleep(20.0)

    with pytest.raises(AssertionError, match="no mirror is destroyed that stable or pending needs"):
        virtually(main, nodes=3)


@pytest.mark.row("IEP-031", "IEP-043", "IEP-044")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ab+c", "ac+b"),
        ("abc+de", "ade+bc"),
        ("abc+de", "abc"),
        ("a+bcd", "bcd+a"),
        ("abc", "d+abc"),
        ("abc+d", "abcd"),
        ("abcde", "abc+de"),
        ("abcde+f", "bcf+ade"),
        ("a+b", "b+a"),
    ],
)
def test_roles_change_in_both_directions(before: str, after: str) -> None:
    """IEP-031, IEP-043, IEP-044: any roles to any others, with never fewer voters than the smaller number of
    the two and never more than all that vote in one of them."""

    async def main(world: LearnerWorld) -> None:
        await world.write(before)
        await world.settled(before)
        await asyncio.sleep(HEALTHY_S)
        world.voters.clear()
        await world.write(pending=after)
        await world.settled(after)
        had, has = roles(before).peers, roles(after).peers
        assert min(world.voters) >= min(len(had), len(has))
        assert max(world.voters) <= len({*had, *has})

    virtually(main, nodes=6)


def test_a_new_learner_is_not_waited_for() -> None:
    """S241: stable names a learner that has no copy yet, even one whose node is down; it follows later."""

    async def main(world: LearnerWorld) -> None:
        await world.write("ab")
        await world.settled("ab")
        world.kill("n2")
        await asyncio.sleep(HEALTHY_S)
        await world.write(pending="ab+cd")
        await world.until(lambda: world.assignments() == roles("ab+cd"), 3.0)
        assert world.plane.mirrors(P0) == frozenset()
        world.start("n2")
        await world.settled("ab+cd")

    virtually(main, nodes=4)


@pytest.mark.row("IEP-055")
def test_who_is_asked_for_reads_and_for_writes() -> None:
    """S037, IEP-055: voters are the group's clients' addresses, learners a list of their own; a mirror that
    starts, or that is about to go, is in none."""

    async def main(world: LearnerWorld) -> None:
        mirrors = Mirrors.over(world.store, world.keyspace)
        following = asyncio.create_task(mirrors.run())
        await mirrors.loaded()
        await world.write("ab+c")
        await world.settled("ab+c")
        await world.until(lambda: len(learner_urls(mirrors.view(P0))) == 1)
        assert len(client_urls(mirrors.view(P0))) == 2
        assert not set(client_urls(mirrors.view(P0))) & set(learner_urls(mirrors.view(P0)))
        await world.write(pending="abc")
        await world.settled("abc")
        await world.until(lambda: len(client_urls(mirrors.view(P0))) == 3)
        assert learner_urls(mirrors.view(P0)) == ()
        following.cancel()

    virtually(main, nodes=3)


def test_a_learner_that_was_away_goes_on_with_its_copy() -> None:
    """A killed node comes back with the mirror that it had, and a killed mirror alone is started again."""

    async def main(world: LearnerWorld) -> None:
        await world.write("ab+c")
        await world.settled("ab+c")
        kept = world.cluster.mirror_disk("n2")[P0]
        world.kill("n2")
        await asyncio.sleep(20.0)
        world.start("n2")
        await world.until(lambda: kept.runs)
        world.cluster.stop_mirror(kept, "KILLED by signal 9")
        await world.until(lambda: kept.runs)
        assert world.cluster.mirror_disk("n2")[P0] is kept
        await world.settled("ab+c")

    virtually(main, nodes=3)


def test_a_dropped_zone_leaves_no_mirror() -> None:
    async def main(world: LearnerWorld) -> None:
        world.want(ALL_REPLICAS, 2)
        await world.settled()
        world.want(ALL_REPLICAS, 2, dropped=True)
        await world.until(lambda: not any(map(world.cluster.mirror_disk, world.plane.names)))
        await world.until(lambda: not world.store.range_now(world.keyspace.members).items)

    virtually(main, nodes=5, partitions=3, controller=True)


def test_a_mirror_counts_against_the_member_limit() -> None:
    """A full node says so; roles of what it has still change there, with two processes for a while."""

    async def main(world: LearnerWorld) -> None:
        world.plane.join(Node("n3", (("rack", "0"),), member_limit=1))
        await asyncio.sleep(3.0)
        partition = PartitionId(P0.zone_id, 1)
        await world.write("abd")
        await world.settled("abd")
        keys = world.keyspace.partition(partition)
        await world.store.commit(Txn((), (Put(keys.stable, roles("ab+d").encode()),)))
        await world.until(lambda: is_full(world.record("n3", partition)))
        await asyncio.sleep(HEALTHY_S)
        await world.write(pending="ab+d")
        await world.settled("ab+d")

    virtually(main, nodes=3)


def is_full(record: MemberRecord | None) -> bool:
    mirror = record.mirror if record is not None else None
    return mirror is not None and mirror.reason == "NODE_MEMBER_LIMIT: 1 members and mirrors are held"


def test_what_is_published_of_a_mirror_is_published_seldom() -> None:
    """A learner that follows a busy group writes its record twice each time that the revision doubles."""

    async def main(world: LearnerWorld) -> None:
        await world.write("a+b")
        await world.settled("a+b")
        written = 0

        def count(_revision: int, events: tuple[object, ...]) -> None:
            nonlocal written
            written += sum(getattr(event, "key", "").startswith(world.keyspace.members) for event in events)

        world.store.observe(count)
        for world.group.applied in itertools.chain(range(64, 512), [511]):
            await asyncio.sleep(1.0)
        record = world.record("n1")
        assert record is not None
        assert record.mirror is not None
        assert record.mirror.safe_revision == 384
        assert written <= 8

    virtually(main, nodes=2)
