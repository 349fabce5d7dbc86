"""A metastore that stands still for longer than leases last, and goes on: no node has left, so nothing may
move."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from catalog.core.zone import Node, Zone
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.topology.node_presence import EventKind, Topology
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.node_context import NodeStart
from rebalance.nodes.registration import Registration
from tests.fixtures.etcd_server import EtcdServer
from tests.fixtures.fault_rig import ZONE_ID, FaultRig, fault_rig

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.thorough("integration/test_silent_metastore has it silent during moves"),
]

PARTITIONS = 50
LEASE_S = 3
NAMES = ("n0", "n1", "n2")
START_S = 120.0
# What is held back for too short a time shows by then: the grace period is two leases.
AFTERMATH_S = 3 * LEASE_S


@asynccontextmanager
async def registered(
    rig: FaultRig, endpoint: str, directory: Path, leases_s: Sequence[int]
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Entries of nodes under real leases, as the agents keep them; the tasks are the nodes' lives."""
    clients = [EtcdMetastore([endpoint]) for _ in NAMES]
    lives = []
    for name, client, lease_s in zip(NAMES, clients, leases_s, strict=True):
        node = Node(name, member_limit=1_000)
        entry = Registration(client, rig.keyspace, NodeStart(node, directory / name, lease_s))
        await entry.register()
        lives.append(asyncio.create_task(entry.keep()))
        rig.nodes.append(node)
        await asyncio.sleep(LEASE_S / 9)  # each is renewed at a time of its own
    try:
        yield lives
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        for client in clients:
            await client.close()


def topology(rig: FaultRig) -> Topology:
    found = rig.watched.peek(rig.keyspace.topology)
    return Topology.decode(found.value) if found else Topology()


def leases(rig: FaultRig) -> dict[str, int]:
    items = rig.watched.range_now(rig.keyspace.nodes).items
    return {NodeRecord.decode(item.value).node.name: item.lease for item in items}


async def pause(etcd: EtcdServer, seconds: float) -> None:
    etcd.process.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        etcd.process.send_signal(signal.SIGCONT)


@pytest.mark.row("I3-061")
@pytest.mark.parametrize("leases_s", [(3, 3, 3), (3, 60, 60)], ids=["all-lost", "one-lost"])
async def test_a_pause_moves_nothing(
    leases_s: tuple[int, ...], own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """I3-061: with AUTO SCALE DOWN 0, a metastore that stood still for twice the lease time moves nothing:
    neither when every lease ends, nor when only one does (the others were longer, or ended later)."""
    endpoints = [own_etcd.endpoint]
    async with (
        fault_rig(endpoints, keyspace, tmp_path, nodes=0, controllers=1, seed=1, lease_s=LEASE_S) as rig,
        registered(rig, own_etcd.endpoint, tmp_path, leases_s) as lives,
    ):
        await rig.publish(Zone(ZONE_ID, "STILL", PARTITIONS, 2, None, ("default",), auto_scale_down=0))
        await rig.finish(START_S)
        before = rig.watched.range_now(keyspace.partitions).items
        held = leases(rig)
        await pause(own_etcd, 2.0 * LEASE_S)
        await rig.sleep(AFTERMATH_S)
        lost = {name for name, lease in held.items() if leases(rig).get(name) != lease}
        assert lost == {name for name, lease_s in zip(NAMES, leases_s, strict=True) if lease_s == LEASE_S}
        assert [each.kind for each in topology(rig).events] == [EventKind.JOINED] * len(NAMES)
        assert rig.watched.range_now(keyspace.partitions).items == before
        # One that really goes shows that the controller still looks, and when it may act.
        lives[0].cancel()
        rig.nodes.pop(0)
        await rig.until("its departure", lambda: topology(rig).events[-1].kind is EventKind.LEFT, START_S)
        await rig.finish(START_S)
