"""Members that the fence holds back take no place from members that it does not concern."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import GroupRecord
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.ports.fence import NoGuard
from rebalance.ports.groups import MemberLife
from tests.fixtures.group_hosts import P0, P1, TUNING
from tests.fixtures.ports import free_block


class SlowGuard(NoGuard):
    """Has no answer for one partition until it is let go."""

    def __init__(self, partition: PartitionId) -> None:
        self.partition = partition
        self.is_asked = asyncio.Event()
        self.let_go = asyncio.Event()

    async def refusal(self, partition: PartitionId, generation: int) -> str:
        if partition == self.partition:
            self.is_asked.set()
            await self.let_go.wait()
            return "FENCED: it took its time"
        return await super().refusal(partition, generation)


async def test_a_member_that_waits_for_the_metastore_holds_no_other_back(tmp_path: Path) -> None:
    """One place for starts, and the member that came first waits for an answer of the metastore's."""
    guard = SlowGuard(P0)
    tuning = replace(TUNING, starts_at_once=1)
    host = EtcdGroupHost(tmp_path, free_block(8), tuning=tuning, member_limit=3, guard=guard)
    host.open("n1")
    try:
        for partition in (P0, P1):
            await host.reserve(partition)
        places = {partition: host.endpoints(partition) for partition in (P0, P1)}
        groups = {
            partition: GroupRecord(f"token-{partition}", {"n1": place.peer_url})
            for partition, place in places.items()
            if place is not None
        }
        held_back = asyncio.create_task(host.bootstrap(P0, groups[P0]))
        await guard.is_asked.wait()
        async with asyncio.timeout(30):
            await host.bootstrap(P1, groups[P1])
        guard.let_go.set()
        await held_back
        status = await host.status(P0)
        assert status is not None
        assert status.life is MemberLife.RESERVED
        assert status.reason == "FENCED: it took its time"
    finally:
        await host.close()
