"""A data node as the product runs it, whose members can be held before a step: ``python -m
tests.held_joiner``.

While a file ``<step>-<partition>`` is in the gates' directory, that step of that partition waits: ``reserve``
or ``join``; with ``start`` the member's process is frozen as soon as it runs. Everything else goes on.
``HeldHost`` holds a leader before it touches voters. A further argument names the node's ``side``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from catalog.core.zone import Node
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.etcd_tuning import EtcdTuning
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.agent import NodeAgent
from rebalance.ports.groups import CaughtUp, GroupChange, GroupEvent, MemberEndpoints, StepInput
from tests.group_hosts import etcd_processes
from tests.strict_steps import STRICT_STEPS

LEASE_S = 3
TUNING = EtcdTuning(heartbeat_ms=300, election_ms=3_000, stop_grace_s=1.0, strict_steps=STRICT_STEPS)
"""Patient: there are many groups on few processors, and an election is none of what is looked at."""
LOOK_S = 0.02


class HeldChange:
    """Passes everything on; that voters may be touched once ``may_touch`` says so."""

    def __init__(self, inner: GroupChange, may_touch: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_touch = may_touch

    async def advance(self, given: StepInput) -> GroupEvent:
        event = await self._inner.advance(given)
        while isinstance(event, CaughtUp) and not self._may_touch():
            await asyncio.sleep(LOOK_S)
        return event

    async def close(self) -> None:
        await self._inner.close()


class HeldHost(EtcdGroupHost):
    """``held``: partitions whose leader here does not touch voters yet."""

    held: frozenset[PartitionId] = frozenset()

    def change(self, partition: PartitionId) -> GroupChange | None:
        change = super().change(partition)
        return HeldChange(change, lambda: partition not in self.held) if change is not None else None


class HeldJoiner(EtcdGroupHost):
    def __init__(self, data_dir: Path, ports: range, gates: Path) -> None:
        super().__init__(data_dir, ports, tuning=TUNING)
        self._data_dir = data_dir
        self._gates = gates

    async def reserve(self, partition: PartitionId) -> MemberEndpoints:
        await self._passed("reserve", partition)
        return await super().reserve(partition)

    async def join(self, partition: PartitionId, peers: Mapping[str, str], generation: int = 0) -> None:
        await self._passed("join", partition)
        await super().join(partition, peers, generation)
        frozen = gate(self._gates, "start", partition)
        if frozen.exists():
            place = self._data_dir / "members" / f"{partition.zone_id}-{partition.partition}" / "data"
            while not (processes := etcd_processes(place)):
                await asyncio.sleep(LOOK_S)
            for process in processes:
                process.suspend()
            frozen.rename(gate(self._gates, "started", partition))

    async def _passed(self, step: str, partition: PartitionId) -> None:
        while gate(self._gates, step, partition).exists():
            await asyncio.sleep(LOOK_S)


def gate(directory: Path, step: str, partition: PartitionId) -> Path:
    return directory / f"{step}-{partition.zone_id}-{partition.partition}"


async def main(
    endpoint: str, prefix: str, name: str, directory: str, first: str, last: str, gates: str, side: str = ""
) -> None:
    data_dir = Path(directory)
    node = Node(name, (("side", side),) if side else ())
    host = HeldJoiner(data_dir, range(int(first), int(last)), Path(gates))
    metastore = EtcdMetastore([endpoint])
    await NodeAgent(node, metastore, Keyspace(prefix), host, data_dir, lease_ttl_s=LEASE_S).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
