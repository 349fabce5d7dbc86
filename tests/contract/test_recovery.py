"""Resets and restarts by hand over each metastore: what is written, under which guards, and every refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Node, ZoneIntent
from rebalance.controllers.planned_resets import ShownReset, planned_reset
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import MemberRecord, MemberState, MirrorRecord, NodeRecord, RestartRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.recovery.recovery_plan import BEST_COPY, CandidateKind, ResetTerms
from rebalance.ports.metastore import Metastore
from tests.fixtures.recovery_world import P0, ZONE, RecoveryWorld, strong_world

EMPTY = ResetTerms(empty=True)


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> RecoveryWorld:
    return await strong_world(store, keyspace)


async def refused(world: RecoveryWorld, *numbers: int, **how: Any) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        await world.recovery.reset(world.intent().zone, numbers, **how)
    return error.value


@pytest.mark.row("IEP-059")
async def test_two_phases(world: RecoveryWorld) -> None:
    """S191, S201, IEP-059: pending is the most advanced copy, planned the full set with other data nodes, and
    the trigger advances; a dry run shows the same and writes nothing."""
    zone = world.intent().zone
    *lost, survivor = await world.placed_with("d", "e")
    before = await world.trigger()
    await world.leave(*lost)
    (shown,) = await world.recovery.reset(zone, dry_run=True)
    assert shown.plan is not None
    assert (shown.plan.survivor, shown.written) == (survivor, False)
    assert await world.assigned("pending") is None
    world.moves = False
    lost_entries = shown.plan.possibly_lost_entries
    accepted = ShownReset(0, survivor, False, lost_entries)
    for stale in (
        (),
        (replace(accepted, partition=1),),
        (replace(accepted, survivor=lost[0]),),
        (replace(accepted, empty=True),),
        (replace(accepted, possibly_lost_entries=lost_entries - 1),),
    ):
        changed = await refused(world, 0, terms=ResetTerms(confirmed_dead=frozenset(lost)), shown=stale)
        assert changed.kind is ErrorKind.SHOWN_STATE_CHANGED
        assert await world.assigned("pending") is None
    confirmed = ResetTerms(confirmed_dead=frozenset(lost))
    (done,) = await world.recovery.reset(zone, (0,), confirmed, shown=(accepted,))
    assert done.written
    assert done.plan == shown.plan
    pending, planned = await world.assigned("pending"), await world.assigned("planned")
    assert pending == Assignments((survivor,))
    assert pending.forced == await world.trigger() > before
    assert planned is not None
    assert planned.nodes == set("abcde") - set(lost)
    await world.carry_out()
    assert await world.stable() == ",".join(sorted(planned.nodes))


@pytest.mark.parametrize("running", ["", "ab", "b"])
async def test_a_reset_replaces_whatever_runs(world: RecoveryWorld, running: str) -> None:
    """S192, S201: pending absent, equal or different, and planned: all give way, and the trigger advances; a
    second reset is forced again, in another generation."""
    keys = world.keyspace.partition(P0)
    await world.leave("a", "c")
    if running:
        puts = (Put(keys.pending, Assignments(tuple(running)).encode()),)
        await world.store.commit(Txn((), (*puts, Put(keys.planned, Assignments(("a", "c")).encode()))))
    before = await world.trigger()
    confirmed = ResetTerms(confirmed_dead=frozenset("ac"))
    await world.recovery.reset(world.intent().zone, terms=confirmed)
    first = await world.assigned("pending")
    assert first == Assignments(("b",))
    assert await world.assigned("planned") is None
    assert await world.trigger() == first.forced > before
    await world.recovery.reset(world.intent().zone, terms=confirmed)
    second = await world.assigned("pending")
    assert second is not None
    assert second.forced > first.forced


async def test_an_ordinary_change_replaces_what_a_reset_has_planned(world: RecoveryWorld) -> None:
    """S193: the forced set runs, and a statement that follows takes the place of what was planned."""
    lost = (await world.placed_with("d", "e"))[:2]
    await world.leave(*lost)
    world.moves = False
    await world.recovery.reset(world.intent().zone, terms=ResetTerms(confirmed_dead=frozenset(lost)))
    planned = await world.assigned("planned")
    assert planned is not None
    await world.alter(auto_scale_down=0)
    after = await world.assigned("planned")
    assert after is not None
    assert after.nodes == set("abcde") - set(lost)
    assert not after.forced
    pending = await world.assigned("pending")
    assert pending is not None
    assert pending.forced


async def test_refusals(world: RecoveryWorld) -> None:
    """S189, S200, S204, S211: each with a kind of its own, and nothing is written."""
    before = await world.trigger()
    zone = world.intent().zone
    assert (await refused(world)).kind is ErrorKind.RECOVERY_NOT_NEEDED
    kept = await refused(world, 0)
    assert kept.kind is ErrorKind.RECOVERY_NOT_NEEDED
    assert kept.message.startswith("partition 0: 3 of 3 voters are alive")
    for wrong in (-1, 1):
        missing = await refused(world, wrong)
        assert missing.kind is ErrorKind.PARTITION_NOT_FOUND
        assert missing.message == f"zone Z has partitions 0 to 0, not {wrong}"
    await world.leave("a", "b", "c")
    assert (await refused(world, 0)).kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
    assert (await refused(world, 0, terms=EMPTY)).kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
    await world.join("d")
    (begun,) = await world.recovery.reset(zone, (0,), EMPTY, dry_run=True)
    assert begun.plan is not None
    assert (begun.plan.survivor, begun.plan.empty) == ("d", True)
    pending = await world.assigned("pending")
    assert pending is None or not pending.forced
    with pytest.raises(RefusedError, match="zone Z: its newest change is not published yet"):
        await world.recovery.reset(replace(zone, replicas=2), (0,), EMPTY)
    # S204: a version that is committed and not carried out yet.
    intent = ZoneIntent(9, replace(zone, replicas=1))
    await world.store.commit(Txn((), (Put(world.keyspace.intent(zone.zone_id), intent.encode()),)))
    late = await refused(world, 0, terms=EMPTY)
    assert late.kind is ErrorKind.CLUSTER_NOT_IDLE
    assert late.message == "zone Z: its newest change is not placed yet"
    assert await world.trigger() >= before


async def test_a_plan_that_was_overtaken_writes_nothing(world: RecoveryWorld) -> None:
    """S204: every key that it was made from is a guard."""
    await world.leave("a", "c")
    zone = world.intent().zone
    keys = world.keyspace
    for touched in (
        keys.intent(zone.zone_id),
        keys.data_nodes(zone.zone_id),
        keys.target_pointer(zone.zone_id),
        keys.partition(P0).configuration,
        keys.partition(P0).stable,
        keys.partition(P0).trigger,
    ):
        reading = await world.recovery.read(zone.zone_id)
        planned = planned_reset(reading, 0, BEST_COPY)
        assert planned.plan is not None
        found = await world.store.get(touched)
        assert found is not None
        await world.store.commit(Txn((), (Put(touched, found.value),)))
        assert not await world.recovery.force(reading, P0, planned.plan)
    assert await world.assigned("pending") is None
    assert await world.recovery.force(await world.recovery.read(zone.zone_id), P0, planned.plan)


@pytest.mark.row("R1")
async def test_a_group_that_answers_is_never_reset(world: RecoveryWorld) -> None:
    """R1: leases say that two voters are gone; one of them is cut off from the metastore alone and serves. All
    members are asked, also those of nodes without a lease, before a dry run too; nothing is written."""
    await world.leave("a", "c")
    before = await world.trigger()
    world.probe.serves = {"c"}
    terms = ResetTerms(confirmed_dead=frozenset("ac"))
    for dry_run in (True, False):
        kept = await refused(world, 0, terms=terms, dry_run=dry_run)
        assert kept.kind is ErrorKind.RECOVERY_NOT_NEEDED
        assert kept.message == (
            "partition 0: the member on c answers with a majority of its group, whatever its records say"
        )
        assert (await refused(world, terms=terms, dry_run=dry_run)).kind is ErrorKind.RECOVERY_NOT_NEEDED
    assert {tuple(sorted(urls)) for _, urls in world.probe.asked} == {("a", "b", "c")}
    assert await world.trigger() == before
    world.probe.serves = set()
    (done,) = await world.recovery.reset(world.intent().zone, (0,), terms)
    assert done.written


@pytest.mark.row("R1")
async def test_a_leader_that_serves_is_not_waited_for(world: RecoveryWorld) -> None:
    """R1: who leads does not tell how far its copy goes, so nobody is to ask again in some seconds."""
    await world.leave("a", "c")
    key = world.keyspace.member(P0, "b")
    item = await world.store.get(key)
    assert item is not None
    leading = replace(MemberRecord.decode(item.value), position=None)
    await world.store.commit(Txn((), (Put(key, leading.encode()),)))
    assert (await refused(world, 0, dry_run=True)).kind is ErrorKind.RECOVERY_STATE_ILLEGAL
    world.probe.serves = {"b"}
    for numbers in ((0,), ()):
        assert (await refused(world, *numbers, dry_run=True)).kind is ErrorKind.RECOVERY_NOT_NEEDED


async def test_a_group_with_a_majority_is_not_asked(world: RecoveryWorld) -> None:
    await world.leave("a")
    assert (await refused(world)).kind is ErrorKind.RECOVERY_NOT_NEEDED
    assert world.probe.asked == []


async def test_a_group_that_could_not_be_reset_is_not_asked(world: RecoveryWorld) -> None:
    await world.leave("a", "b")
    assert (
        await refused(world, 0, terms=ResetTerms(source="b"), dry_run=True)
    ).kind is ErrorKind.NODE_SET_ILLEGAL
    assert world.probe.asked == []


@pytest.mark.row("R1")
async def test_the_loss_of_a_strong_zone_is_confirmed(world: RecoveryWorld) -> None:
    """R1: the exact names are asked for; a dry run says which."""
    await world.leave("a", "c")
    zone = world.intent().zone
    (shown,) = await world.recovery.reset(zone, dry_run=True)
    assert shown.to_confirm == ("a", "c")
    for names in ("", "a", "abc"):
        lacking = await refused(world, terms=ResetTerms(confirmed_dead=frozenset(names)))
        assert lacking.kind is ErrorKind.LOSS_NOT_CONFIRMED
        assert lacking.message.endswith("confirm exactly a, c")
        assert await world.assigned("pending") is None
    (done,) = await world.recovery.reset(zone, terms=ResetTerms(confirmed_dead=frozenset("ac")))
    assert done.written


async def test_a_zone_that_helps_itself_needs_no_confirmation(store: Metastore, keyspace: Keyspace) -> None:
    world = RecoveryWorld(store, keyspace)
    world.fence_s = None
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("a", "c")
    (done,) = await world.recovery.reset(world.intent().zone)
    assert done.written
    assert done.to_confirm == ()


@pytest.mark.row("R6")
async def test_a_node_that_is_back_undoes_the_plan(world: RecoveryWorld) -> None:
    """R6: the absence of each node that the plan has seen absent is a guard: it may have the better copy."""
    await world.leave("a", "c")
    zone = world.intent().zone
    reading = await world.recovery.read(zone.zone_id)
    planned = planned_reset(reading, 0, BEST_COPY)
    assert planned.plan is not None
    assert planned.plan.absent == ("a", "c")
    record = NodeRecord(Node("c"), "again")
    await world.store.commit(Txn((), (Put(world.keyspace.node("c"), record.encode()),)))
    assert not await world.recovery.force(reading, P0, planned.plan)
    assert await world.assigned("pending") is None
    await world.store.commit(Txn((), (Delete(world.keyspace.node("c")),)))
    assert await world.recovery.force(reading, P0, planned.plan)


@pytest.mark.row("IEP-059", "IEP-060")
async def test_a_learner_founds_the_group(world: RecoveryWorld) -> None:
    """IEP-059, IEP-060: nodes with the three voters are gone, two learners live: the reset is forced onto the
    one that has more, and says what both have. It is the same transaction as onto a voter."""
    await world.join("d")
    await world.join("e")
    await world.carry_out()
    stable = await world.assigned("stable")
    assert stable is not None
    voters = sorted(stable.peers)
    learners = sorted(set("abcde") - set(voters))
    for node, revision in zip(learners, (40, 42), strict=False):
        mirror = MirrorRecord(MemberState.RUNNING, "m", 32, complete_revision=revision)
        put = Put(world.keyspace.member(P0, node), MemberRecord.of_mirror(mirror).encode())
        await world.store.commit(Txn((), (put,)))
    await world.leave(*voters)
    zone = world.intent().zone
    (shown,) = await world.recovery.reset(zone, dry_run=True)
    revisions = [(each.node, each.kind, each.revision) for each in shown.candidates]
    assert revisions == [
        (learners[1], CandidateKind.LEARNER, 42),
        (learners[0], CandidateKind.LEARNER, 40),
    ]
    in_the_way = await refused(world, 0, terms=EMPTY)
    assert in_the_way.kind is ErrorKind.COPIES_LEFT
    assert in_the_way.message.startswith(f"partition 0: {', '.join(learners)} is alive and has a replica")
    world.moves = False
    await world.recovery.reset(zone, terms=ResetTerms(confirmed_dead=frozenset(voters)))
    pending = await world.assigned("pending")
    assert pending == Assignments((learners[1],))
    assert pending.forced
    assert not pending.empty
    planned = await world.assigned("planned")
    assert planned is not None
    assert planned.nodes == set(learners)


@pytest.mark.row("R5", "R6")
async def test_an_empty_beginning_names_who_was_absent(world: RecoveryWorld) -> None:
    """R5, R6: copies that live are named to be discarded; pending says whose return stops it."""
    await world.leave("a", "c")
    zone = world.intent().zone
    terms = ResetTerms(empty=True, discarded=frozenset("b"), confirmed_dead=frozenset("ac"))
    assert (await refused(world, 0, terms=replace(terms, discarded=frozenset()))).kind is ErrorKind.COPIES_LEFT
    (done,) = await world.recovery.reset(zone, (0,), terms)
    assert done.written
    pending = await world.assigned("pending")
    assert pending is not None
    assert (pending.empty, pending.absent) == (True, ("a", "c"))
    assert Assignments(("b",)).absent == pending.at_rest().absent == ()


@pytest.mark.parametrize("terms", [ResetTerms("b", True), ResetTerms(discarded=frozenset("b"))])
async def test_terms_that_contradict_each_other(world: RecoveryWorld, terms: ResetTerms) -> None:
    assert (await refused(world, 0, terms=terms)).kind is ErrorKind.INVALID_REQUEST


@pytest.mark.row("R7")
async def test_versions_of_etcd_that_prove_nothing_are_told(world: RecoveryWorld) -> None:
    """R7: of living nodes that have a copy."""
    for name, version in (("b", "3.5.1"), ("c", "3.5.16")):
        found = await world.store.get(world.keyspace.node(name))
        assert found is not None
        record = replace(NodeRecord.decode(found.value), etcd=version)
        await world.store.commit(Txn((), (Put(found.key, record.encode()),)))
    await world.leave("a", "c")
    (shown,) = await world.recovery.reset(world.intent().zone, dry_run=True)
    assert shown.unproven == (("b", "3.5.1"),)


async def test_restarts_are_asked_for_by_key(world: RecoveryWorld) -> None:
    """S206, S211: a key for each member; refused ones leave none."""
    zone = world.intent().zone
    asked = world.keyspace.restarts(P0)
    with pytest.raises(RefusedError) as error:
        await world.recovery.restart(zone, (0,), ("x",))
    assert error.value.kind is ErrorKind.NODE_NOT_FOUND
    await world.alter(auto_scale_up=100_000)
    await world.join("d")
    for nodes, cleanup in ((("d",), False), (("a", "b"), True)):
        with pytest.raises(RefusedError) as error:
            await world.recovery.restart(zone, (0,), nodes, cleanup=cleanup)
        assert error.value.kind is ErrorKind.NODE_SET_ILLEGAL
    await world.recovery.restart(zone, (0,), dry_run=True)
    assert (await world.store.range(asked)).items == ()
    (done,) = await world.recovery.restart(zone, (0,), ("b",), cleanup=True)
    assert done.plan.nodes == ("b",)
    (item,) = (await world.store.range(asked)).items
    assert item.key == world.keyspace.restart(P0, "b")
    assert RestartRecord.decode(item.value).cleanup
