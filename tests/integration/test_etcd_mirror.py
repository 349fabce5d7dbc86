"""Mirrors of real groups: the same contents at the same revisions, whatever happens to either side."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.data.zone_router import ZoneRouter
from rebalance.ports.groups import MemberLife
from tests.fixtures.group_hosts import P0, Fixed, member_process
from tests.fixtures.mirror_rig import MirrorRig

Founded = Callable[..., Awaitable[MirrorRig]]


@pytest.fixture
async def founded(tmp_path: Path) -> AsyncIterator[Founded]:
    """Founds a group on the named nodes; ``spare`` ones have a host and no member."""
    rigs: list[MirrorRig] = []

    async def found(*names: str, spare: tuple[str, ...] = ()) -> MirrorRig:
        rig = MirrorRig(tmp_path, *names, *spare)
        rigs.append(rig)
        await rig.hosts.found(P0, *names)
        return rig

    yield found
    for each in rigs:
        await each.close()


@pytest.mark.row("IEP-056")
async def test_a_mirror_has_every_revision_of_its_group(founded: Founded) -> None:
    """IEP-056: under writers with puts, deletes and transactions of many keys, begun in the middle of it; the
    history is the same too, and so are the versions of keys."""
    rig = await founded("a", "b", "c")
    router = ZoneRouter(Fixed(tuple(rig.url(name) for name in "abc")))
    async with rig.writers("a", "b", "c"):
        await router.put(P0, "before", b"1", "operation-1")
        await asyncio.sleep(0.5)
        await rig.follow("a", "b", "c")
        await rig.caught_up("a")
        await router.put(P0, "after", b"2", "operation-2")
        await asyncio.sleep(1.0)
    await rig.check_equal("a", oldest=2)
    status = await rig.until(lambda found: found.life is MemberLife.RUNNING and found.source != "")
    assert status.size_bytes > 0
    assert status.source in {rig.url(name) for name in "abc"}
    await router.close()


async def test_kills_of_the_store_lose_and_repeat_nothing(founded: Founded) -> None:
    """kill -9 at random moments; the mirror goes on from its own revision and is never copied again."""
    rig = await founded("a")
    await rig.follow("a")
    await rig.caught_up("a")
    name, chooser = (rig.directory / "reservation.json").read_text(), random.Random(7)
    async with rig.writers("a", pause_s=0.004):
        for _ in range(6):
            await asyncio.sleep(chooser.uniform(0.1, 0.8))
            rig.kill()
    await rig.check_equal("a", oldest=2)
    assert (rig.directory / "reservation.json").read_text() == name


async def test_a_stopped_mirror_continues_from_its_own_revision(founded: Founded) -> None:
    """The node restarts: another host finds the copy, on the same ports, and goes on with it."""
    rig = await founded("a")
    await rig.follow("a")
    await rig.caught_up("a")
    for _ in range(3):
        async with rig.writers("a", pause_s=0.004):
            await asyncio.sleep(0.2)
            before = await rig.status()
            await rig.mirrors.close()
            assert rig.processes() == []
            rig.mirrors = rig.open_mirrors()
            assert rig.mirrors.partitions() == {P0}
            stopped = await rig.status()
            assert (stopped.life, stopped.client_url) == (MemberLife.STOPPED, before.client_url)
            await rig.follow("a")
        await rig.check_equal("a", oldest=2)
    await rig.until(lambda found: found.reason == "")


async def test_another_voter_is_followed_when_the_source_dies(founded: Founded) -> None:
    """Kill the followed voter, and the leader if it is another one, by SIGKILL and each in its turn: another
    voter is followed, and the group goes on with another leader."""
    rig = await founded("a", "b", "c")
    await rig.follow("a", "b", "c")
    await rig.caught_up("a")
    followed = (await rig.until(lambda found: found.source != "")).source
    source = next(name for name in "abc" if rig.url(name) == followed)
    leader = await rig.hosts.leader(P0)
    for name in {source, leader}:
        left = [other for other in "abc" if other != name]
        async with rig.writers(*left):
            member_process(rig.hosts, name).kill()
            gone = ("", rig.url(name))
            await rig.until(lambda found, gone=gone: found.source not in gone)
            await asyncio.sleep(0.5)
        await rig.hosts.leader(P0)
        await rig.check_equal(left[0], oldest=2)
        await rig.restart_voter(name)


async def test_a_group_that_moves_to_other_nodes_is_followed(founded: Founded) -> None:
    """No voter of before is left; new sources take effect without a new copy."""
    rig = await founded("a", spare=("b",))
    await rig.follow("a")
    await rig.caught_up("a")
    copied = (rig.directory / "reservation.json").read_text()
    await rig.hosts.hosts["b"].reserve(P0)
    await rig.move(Assignments(("a", "b")))
    await rig.hosts.hand_over(P0, "b")
    await rig.move(Assignments(("b",)))
    await rig.follow("b")
    await rig.hosts.hosts["a"].stop(P0, destroy=True)
    await rig.put("b", b"d/x", b"moved")
    await rig.until(lambda found: found.source == rig.url("b"))
    await rig.check_equal("b", oldest=2)
    assert (rig.directory / "reservation.json").read_text() == copied
