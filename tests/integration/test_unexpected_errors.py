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
from rebalance.core.assignments import Assignments
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.txn import Put, Txn
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.hosting.background import Background
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.agent import NodeAgent
from rebalance.ports.groups import FailureCode, GroupMember, MemberStatus
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.group_hosts import P0, Hosts
from tests.fixtures.node_cluster import QUICK
from tests.fixtures.ports import free_block

pytestmark = pytest.mark.timeout(600)

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
    agent = NodeAgent(Node("a1"), metastore, keyspace, host, tmp_path / "a1", background=background)
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


class FaultyListener(Hosts):
    """Has a bug that every change meets; without it nothing is missing."""

    is_mended = False

    async def on_configuration_committed(
        self, partition: PartitionId, term: int, members: tuple[GroupMember, ...]
    ) -> bool:
        if not self.is_mended:
            raise KeyError("no such field")
        return await super().on_configuration_committed(partition, term, members)


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[FaultyListener]:
    running = FaultyListener(tmp_path)
    yield running
    await running.close()


async def test_a_bug_in_a_change_is_a_failed_attempt(hosts: FaultyListener) -> None:
    """It is not retried in silence and at once: the listener hears of an attempt that has failed, and another
    one is possible."""
    for name in ("a", "b"):
        hosts.open(name)
    leader = await hosts.found(P0, "a")
    b = await hosts.hosts["b"].reserve(P0)
    a = (await hosts.status("a", P0)).endpoints
    urls, target = {"a": a.peer_url, "b": b.peer_url}, Assignments(("a", "b"))
    term = (await hosts.status(leader, P0)).term
    await hosts.hosts["a"].change_peers_and_learners(P0, term, 7, target, urls)
    assert await hosts.event("error") == (FailureCode.DEFECT, term, 7)
    assert (hosts.background.defects, hosts.background.last_defect) == (
        1,
        "a change of peers: KeyError: 'no such field'",
    )
    hosts.is_mended = True
    await hosts.hosts["a"].change_peers_and_learners(P0, term, 7, target, urls)
    assert await hosts.event("applied") == (target, term, 7)
