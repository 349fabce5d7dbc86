"""The modelled mirrors keep what the port promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rebalance.ports.groups import MemberLife, NoPlaceError
from rebalance.ports.mirrors import FollowedGroup, MirrorHost, MirrorStatus
from simulator.control.simulated_cluster import SimulatedCluster, SimulatedGroup
from simulator.control.simulated_group import Incarnation, SimulatedGroupHost, SimulatedMirrorHost
from simulator.control.virtual_time import run_virtually
from tests.fixtures.simulated_group import CALM, P0, Removals, founded

COPIED_S = CALM.start_s[1] + CALM.mirror_copy_s[1] + 0.1


async def status(host: MirrorHost) -> MirrorStatus:
    found = await host.status(P0)
    assert found is not None
    return found


def virtually(
    main: Callable[[SimulatedCluster, SimulatedGroup, tuple[str, ...]], Coroutine[Any, Any, None]],
) -> None:
    """``main`` gets a healthy group of three, and where its voters serve clients."""

    async def run() -> None:
        cluster = SimulatedCluster("test", CALM, Removals())
        group = await founded(cluster, "abc")
        await main(cluster, group, tuple(each.endpoints.client_url for each in group.replicas.values()))

    run_virtually(run())


@pytest.mark.row("IEP-056")
def test_the_life_of_a_mirror() -> None:
    """IEP-056: nothing, then a first copy, then as new as its group; it stands still without a source."""

    async def main(cluster: SimulatedCluster, group: SimulatedGroup, sources: tuple[str, ...]) -> None:
        host = SimulatedMirrorHost(cluster, Incarnation("m"))
        assert await host.status(P0) is None
        assert host.partitions() == frozenset()
        await host.follow(P0, FollowedGroup(group.token), ("client://nobody",))
        await asyncio.sleep(60.0)
        waiting = await status(host)
        assert (waiting.life, waiting.safe_revision, waiting.reason) == (
            *(MemberLife.RESERVED, 0),
            "no source answers",
        )
        await host.follow(P0, FollowedGroup(group.token), sources)
        assert (await status(host)).life is MemberLife.STARTING
        await asyncio.sleep(COPIED_S)
        running = await status(host)
        assert (running.life, running.safe_revision) == (MemberLife.RUNNING, group.applied)
        assert running.source in sources
        group.applied += 5
        assert (await status(host)).safe_revision == group.applied
        for name in "abc":
            cluster.stop_node(name)
        group.applied += 5
        still = await status(host)
        assert (still.life, still.safe_revision) == (MemberLife.RUNNING, group.applied - 5)
        assert still.source == ""
        assert host.partitions() == {P0}

    virtually(main)


def test_a_copy_survives_its_process_and_not_its_destruction() -> None:
    async def main(cluster: SimulatedCluster, group: SimulatedGroup, sources: tuple[str, ...]) -> None:
        owner = Incarnation("m")
        host = SimulatedMirrorHost(cluster, owner)
        await host.follow(P0, FollowedGroup(group.token), sources)
        await asyncio.sleep(COPIED_S)
        url = (await status(host)).client_url
        await host.close()
        owner.dead = True
        again = SimulatedMirrorHost(cluster, Incarnation("m"))
        again.open("m")
        assert (await status(again)).life is MemberLife.STOPPED
        await again.follow(P0, FollowedGroup(group.token), sources)
        await asyncio.sleep(CALM.start_s[1] + 0.1)
        running = await status(again)
        assert (running.life, running.client_url) == (MemberLife.RUNNING, url)
        await again.follow(P0, FollowedGroup(group.token), sources[:1])
        assert (await status(again)).life is MemberLife.RUNNING, "new sources need no new copy"
        await again.stop(P0, destroy=True)
        assert await again.status(P0) is None

    virtually(main)


def test_a_mirror_of_another_group_is_removed_first() -> None:
    async def main(cluster: SimulatedCluster, group: SimulatedGroup, sources: tuple[str, ...]) -> None:
        host = SimulatedMirrorHost(cluster, Incarnation("m"), limit=1)
        await host.follow(P0, FollowedGroup("an older group"), sources)
        await asyncio.sleep(COPIED_S)
        assert (await status(host)).life is MemberLife.RESERVED, "its group is not there any more"
        await host.follow(P0, FollowedGroup(group.token), sources)
        await asyncio.sleep(COPIED_S)
        assert (await status(host)).life is MemberLife.RUNNING
        full = SimulatedMirrorHost(cluster, Incarnation("n"), limit=0)
        with pytest.raises(NoPlaceError, match="no free port"):
            await full.follow(P0, FollowedGroup(group.token), sources)

    virtually(main)


@pytest.mark.row("IEP-059")
def test_a_group_is_founded_on_a_mirror_and_another_one_goes_on() -> None:
    """IEP-059: the modelled host does what the real one does: the new group has what the mirror had, and a
    mirror that is not beyond it keeps its copy."""

    async def main(cluster: SimulatedCluster, group: SimulatedGroup, sources: tuple[str, ...]) -> None:
        owners = {name: Incarnation(name) for name in ("m", "o", "ahead")}
        mirrors = {name: SimulatedMirrorHost(cluster, owner) for name, owner in owners.items()}
        for host in mirrors.values():
            await host.follow(P0, FollowedGroup(group.token), sources)
        await asyncio.sleep(COPIED_S)
        assert group.put()
        found = {name: await status(host) for name, host in mirrors.items()}
        assert group.put()
        group.applied += 1
        ahead = await status(mirrors["ahead"])
        for name in "abc":
            cluster.stop_node(name)
        assert ahead.complete_revision > found["m"].complete_revision == found["o"].complete_revision

        members = SimulatedGroupHost(cluster, "m")
        await members.reserve(P0)
        while not await members.found_from_mirror(P0, 9, found["m"].client_url, found["m"].complete_revision):
            await asyncio.sleep(0.1)
        member = await members.status(P0)
        assert member is not None
        shared = member.founding_revision
        assert (member.generation, shared) == (9, found["m"].complete_revision)
        new = cluster.groups[P0]
        assert (new.token, new.acknowledged) == (f"{P0.zone_id}-{P0.partition}-9", 1)
        at = (member.endpoints.client_url,)
        for name in ("o", "ahead"):
            await mirrors[name].follow(P0, FollowedGroup(new.token, 9, shared), at)
        assert (await status(mirrors["o"])).life is MemberLife.RUNNING
        assert (await status(mirrors["ahead"])).life is MemberLife.STARTING
        await asyncio.sleep(COPIED_S)
        assert (await status(mirrors["ahead"])).safe_revision == new.applied

    virtually(main)
