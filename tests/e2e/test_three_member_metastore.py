"""A metastore of three members loses its leader amid an event's writes, and later another member."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catalog.core.zone import Zone
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.etcd_cluster import MEMBERS, EtcdCluster
from tests.fixtures.fault_rig import ZONE_ID, fault_rig

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow("members of the metastore are killed during moves"),
    pytest.mark.thorough("simulation/test_seeds loses its answers at each step"),
]

PARTITIONS = 400
FINISH_S = 240.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    started = EtcdCluster(tmp_path)
    yield started
    started.stop()


@pytest.mark.row("I3-016", "I3-060")
async def test_members_are_lost_during_a_rebalance(
    cluster: EtcdCluster, keyspace: Keyspace, tmp_path: Path
) -> None:
    """I3-016, I3-060: the leader is killed within an event's writes; when it is back, another member is, and
    then the leader again, while groups switch stable. Every partition reaches its target, and the watch
    shows each revision once and in order: nothing is lost."""
    async with fault_rig(
        cluster.endpoints, keyspace, tmp_path, nodes=7, controllers=2, seed=1, lease_s=3
    ) as rig:
        await rig.publish(Zone(ZONE_ID, "THREE", PARTITIONS, 1, None, ("default",)))
        await rig.until("the first assignments", lambda: not rig.missing(), FINISH_S)
        begun = time.monotonic()
        leader = await asyncio.to_thread(cluster.wait_for_leader)
        await rig.alter(replicas=3)
        rig.strike_at(PARTITIONS // 10, lambda: cluster.kill(leader))
        await rig.until("the leader's end within the writes", lambda: rig.is_struck, FINISH_S)
        reached = rig.triggered()
        await rig.until("the event's writes", lambda: rig.triggered() == PARTITIONS, FINISH_S)
        cluster.start(leader)
        await asyncio.to_thread(cluster.wait_for_leader)

        await rig.alter(replicas=5)
        other = (await asyncio.to_thread(cluster.wait_for_leader) + 1) % MEMBERS
        rig.strike_at(PARTITIONS // 10, lambda: cluster.kill(other))
        await rig.until("the other member's end", lambda: rig.is_struck, FINISH_S)
        cluster.start(other)
        leader = await asyncio.to_thread(cluster.wait_for_leader)

        cluster.kill(leader)
        await rig.finish(FINISH_S)
        pointer = rig.facts.pointer if rig.facts else None
        assert pointer is not None
        assert (pointer.replicas, pointer.partitions) == (5, PARTITIONS)
        print(
            f"two leaders and another of three members killed in {time.monotonic() - begun:.0f} s: the first "
            f"at {reached} of {PARTITIONS} partitions written; {rig.auditor.switches:,} stable switches, "
            f"{rig.trace.steps:,} revisions audited"
        )
