"""A data node as the product runs it, which can be held in a stage of a change: ``python -m tests.gated_node``.

While a file of the stage's name is in the gates' directory, the one step that would end the stage waits:
NONE: the reservation of a new member; CATCHING_UP: the start of the learner; JOINT: what follows its
publication; STABLE: the switch of the stable key. Everything else goes on.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from catalog.core.zone import Node
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.records import ConfigurationRecord, Stage
from rebalance.core.txn import Put, Txn, TxnResult
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.etcd_tuning import EtcdTuning
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.agent import NodeAgent
from rebalance.ports.groups import MemberEndpoints
from tests.strict_steps import STRICT_STEPS

LEASE_S = 3
TUNING = EtcdTuning(heartbeat_ms=100, election_ms=1_000, stop_grace_s=1.0, strict_steps=STRICT_STEPS)


class Gates:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def close(self, stage: Stage) -> None:
        (self._directory / stage.value).touch()

    def open(self, stage: Stage) -> None:
        (self._directory / stage.value).unlink()

    async def passed(self, stage: Stage) -> None:
        while (self._directory / stage.value).exists():
            await asyncio.sleep(0.02)


class GatedHost(EtcdGroupHost):
    def __init__(self, data_dir: Path, ports: range, gates: Gates) -> None:
        super().__init__(data_dir, ports, tuning=TUNING)
        self._gates = gates

    async def reserve(self, partition: PartitionId) -> MemberEndpoints:
        await self._gates.passed(Stage.NONE)
        return await super().reserve(partition)

    async def join(self, partition: PartitionId, peers: Mapping[str, str], generation: int = 0) -> None:
        await self._gates.passed(Stage.CATCHING_UP)
        await super().join(partition, peers, generation)


class GatedMetastore(EtcdMetastore):
    def __init__(self, endpoint: str, gates: Gates) -> None:
        super().__init__([endpoint])
        self._gates = gates

    async def commit(self, txn: Txn) -> TxnResult:
        puts = [each for each in txn.success if isinstance(each, Put)]
        if any(put.key.endswith("/assignments/stable") for put in puts):
            await self._gates.passed(Stage.STABLE)
        result = await super().commit(txn)
        records = [ConfigurationRecord.decode(put.value) for put in puts if put.key.endswith("/configuration")]
        if any(record.stage is Stage.JOINT for record in records):
            await self._gates.passed(Stage.JOINT)
        return result


async def main(
    endpoint: str, prefix: str, name: str, directory: str, first: str, last: str, gates: str
) -> None:
    data_dir, gate = Path(directory), Gates(Path(gates))
    host = GatedHost(data_dir, range(int(first), int(last)), gate)
    metastore = GatedMetastore(endpoint, gate)
    await NodeAgent(Node(name), metastore, Keyspace(prefix), host, data_dir, lease_ttl_s=LEASE_S).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
