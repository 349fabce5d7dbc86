"""Addresses that other machines have to reach on a node: its ports, and the one at which it is scraped."""

from __future__ import annotations

import asyncio
import ipaddress
import subprocess
import time
from pathlib import Path

import httpx
import trustme

from app.views.processes import scrape_targets
from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.metastore.mirror import KeyspaceMirror
from tests.fixtures.cut_networks import CutNetworks, cut_networks, missing
from tests.fixtures.fenced_node import NODE, START_S, STORE, FencedNode
from tests.fixtures.needs import need
from tests.fixtures.node_cluster import node_cluster
from tests.fixtures.ports import free_port
from tests.fixtures.tls_files import tls_files

LISTENS = "0A"
MEMBER, KEPT = PartitionId(ZoneId(7), 0), ZoneId(8)


def listening(networks: CutNetworks, site: str) -> set[tuple[str, int]]:
    """All that anybody listens on in the site's network: IPv4 addresses, and names of others."""
    table = subprocess.run(
        networks.command(site, ["cat", "/proc/net/tcp", "/proc/net/tcp6"]),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = [line.split() for line in table.splitlines()]
    places = (row[1].split(":") for row in rows if row[3] == LISTENS)
    return {(_address(text), int(port, 16)) for text, port in places}


def _address(text: str) -> str:
    return str(ipaddress.ip_address(bytes.fromhex(text)[::-1])) if len(text) == 8 else text


async def test_a_firewall_opens_the_nodes_ports_and_that_of_its_metrics(
    keyspace: Keyspace, tmp_path: Path
) -> None:
    """Listen, on a machine of its own, with TLS, a member and a store server, at the node's ports only; the
    node is scraped at that machine's address, which no setting names."""
    need(missing())
    with cut_networks(STORE, NODE) as networks:
        address, metrics_port = networks.address(NODE), free_port()
        files = tls_files(tmp_path / "tls", trustme.CA(), address)
        node = FencedNode(tmp_path, keyspace, networks)
        settings = {
            "ZONEKEEPER_TLS_CA": str(files.ca),
            "ZONEKEEPER_TLS_CERTIFICATE": str(files.certificate),
            "ZONEKEEPER_TLS_KEY": str(files.key),
            "ZONEKEEPER_METRICS_PORT": str(metrics_port),
        }
        try:
            node.start_metastore()
            node.start_node("--profiles", "default,bulk=store", settings=settings)
            async with node_cluster(node.endpoint, keyspace, tmp_path) as cluster:
                for zone_id, profile in ((MEMBER.zone_id, "default"), (KEPT, "bulk")):
                    zone = Zone(zone_id, f"Z{zone_id}", 1, 1, None, (profile,))
                    await cluster.put(keyspace.intent(zone_id), ZoneIntent(1, zone).encode())
                await cluster.write_stable(MEMBER, NODE)
                mirror = KeyspaceMirror(cluster.metastore, keyspace.prefix)
                reading = asyncio.create_task(mirror.run())
                deadline, places = time.monotonic() + START_S, set[tuple[str, int]]()
                while len(places) < 4:
                    assert time.monotonic() < deadline, f"{places}: {node.log()}"
                    places = await asyncio.to_thread(listening, networks, NODE)
                ports = {port for _, port in places} - {metrics_port}
                assert {host for host, _ in places} == {address}
                assert len(ports) == 3, "two of the member, one of the store server"
                assert ports <= {*node.ports}
                assert node.ports[-1] in ports
                while not (targets := scrape_targets(mirror, keyspace)):
                    assert time.monotonic() < deadline, node.log()
                    await asyncio.sleep(0.05)
                (target,) = targets
                assert target["targets"] == [f"{address}:{metrics_port}"]
                assert target["labels"]["__scheme__"] == "https"
                url = f"https://{address}:{metrics_port}/metrics"
                async with httpx.AsyncClient(verify=files.context(), trust_env=False, timeout=60) as client:
                    assert 'zonekeeper_build_info{role="node"' in (await client.get(url)).text
                reading.cancel()
        finally:
            node.close()
