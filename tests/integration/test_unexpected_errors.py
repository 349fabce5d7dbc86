"""Errors that nothing expected, in a node's rounds and in a change of peers: counted, told as errors with their
traceback, visible in ``/readyz`` and ``zonectl status``, and no end of anything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from app.cli.main import main
from catalog.core.zone import Node, ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.hosting.background import Background
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.node_context import NodeHosts, NodeStart
from rebalance.ports.groups import Committed, GroupChange, GroupEvent, MemberStatus, StepInput
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.node_cluster import QUICK, NodeCluster, node_cluster
from tests.fixtures.ports import free_block

pytestmark = pytest.mark.timeout(600)

P0 = PartitionId(ZoneId(7), 0)
FAULTY, SOUND = PartitionId(ZoneId(7), 0), PartitionId(ZoneId(7), 1)
WAIT_S = 120.0


class FaultyHost(EtcdGroupHost):
    """Has a bug that one partition meets."""

    async def status(self, partition: PartitionId) -> MemberStatus | None:
        if partition == FAULTY:
            raise KeyError("no such field")
        return await super().status(partition)


@pytest.fixture
def server(etcd_server: Etcd, keyspace: Keyspace, tmp_path: Path) -> Iterator[ApiServer]:
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    with serving(tmp_path, etcd_server, keyspace, url) as servers:
        yield servers[0]


async def test_a_bug_in_a_round_is_counted_and_seen(
    server: ApiServer,
    etcd_server: Etcd,
    keyspace: Keyspace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other partition's group is founded all the same."""
    metastore, background = EtcdMetastore([etcd_server.endpoint]), Background()
    host = FaultyHost(tmp_path / "a1", free_block(8), tuning=QUICK)
    (tmp_path / "a1").mkdir()
    start = NodeStart(Node("a1"), tmp_path / "a1")
    agent = NodeAgent(start, metastore, keyspace, NodeHosts(host), background=background)
    with capture_logs() as logs:
        running = asyncio.create_task(agent.run())
        try:
            for partition in (FAULTY, SOUND):
                value = Assignments(("a1",)).encode()
                await metastore.commit(Txn((), (Put(keyspace.partition(partition).stable, value),)))
            async with asyncio.timeout(WAIT_S):
                while await metastore.get(keyspace.partition(SOUND).configuration) is None:
                    await asyncio.sleep(0.1)
                while background.defects < 3:
                    await asyncio.sleep(0.1)
            told = next(each for each in logs if each["event"] == "defect")
            assert (told["log_level"], told["partition"], told["where"]) == (
                *("error", str(FAULTY)),
                "a partition's round",
            )
            assert isinstance(told["exc_info"], KeyError)
            await asyncio.to_thread(_check_shown, server)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await metastore.close()
    assert "defects in a1: " in capsys.readouterr().out


def _check_shown(server: ApiServer) -> None:
    deadline = time.monotonic() + WAIT_S
    found: list[str] = []
    while not found:
        assert time.monotonic() < deadline
        body = httpx.get(f"{server.url}/readyz", trust_env=False, timeout=60).json()
        told = body["background"]["processes"]
        found = [each["last_defect"] for each in told if each["process"] == "a1" and each["defects"] >= 3]
    assert found == ["a partition's round: KeyError: 'no such field'"]
    main(["status", "--url", server.url])


class FaultyChange:
    def __init__(self, change: GroupChange, host: FaultyChangesHost) -> None:
        self._change = change
        self._host = host

    async def advance(self, given: StepInput) -> GroupEvent:
        event = await self._change.advance(given)
        if not self._host.is_mended and isinstance(event, Committed):
            raise KeyError("no such field")
        return event

    async def close(self) -> None:
        await self._change.close()


class FaultyChangesHost(EtcdGroupHost):
    """Has a bug that every change meets; without it nothing is missing."""

    is_mended = False

    def change(self, partition: PartitionId) -> GroupChange | None:
        change = super().change(partition)
        return FaultyChange(change, self) if change is not None else None


@pytest.fixture
async def cluster(own_etcd, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(own_etcd.endpoint, keyspace, tmp_path) as running:
        yield running


async def test_a_bug_in_a_change_is_a_failed_attempt(cluster: NodeCluster) -> None:
    """Report a bug in a change as a failed attempt by the leader's agent, which makes another one possible."""
    cluster.start("n1", "n2", host_type=FaultyChangesHost)
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    with capture_logs() as logs:
        await cluster.write_pending(P0, "n1", "n2")
        reason = "DEFECT: KeyError: 'no such field'"
        await cluster.until(lambda: reason in getattr(cluster.configuration(P0), "reason", ""))
    defect = next(each for each in logs if each["event"] == "defect")
    assert (defect["where"], defect["partition"]) == ("a change of peers", str(P0))
    assert isinstance(defect["exc_info"], KeyError)
    host = cluster.nodes["n1"].host
    assert isinstance(host, FaultyChangesHost)
    host.is_mended = True
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
