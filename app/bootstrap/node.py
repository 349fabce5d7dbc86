"""``zonectl node``: one data node."""

from __future__ import annotations

from contextlib import AsyncExitStack

from app.bootstrap.group_hosts import own_ports, with_engines
from app.bootstrap.stores import open_metastore
from app.configuration.node_settings import member_ports, node_of
from app.configuration.settings import Settings
from app.logs import configure
from catalog.core.zone import DEFAULT_ENGINE
from rebalance.core.keys import Keyspace
from rebalance.core.zone_map import MAP_PERIOD_S
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.etcd_mirror import EtcdMirrorHost
from rebalance.groups.etcd_tuning import EtcdTuning
from rebalance.groups.safe_time import SafeTimeWriter
from rebalance.hosting.background import Background
from rebalance.hosting.etcd_binary import choose, dotted
from rebalance.hosting.watchdog import Watchdog, boottime_ns
from rebalance.metastore.majority import EtcdMajority
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.failure_report import FAILURES_PERIOD_S
from rebalance.nodes.node_fence import NodeFence


async def run_node(settings: Settings) -> None:
    """Until cancelled. Raises ValueError for settings that name no node or no ports, and EtcdVersionError or
    FileNotFoundError without an etcd that can open the data directory."""
    node = node_of(settings)
    configure(node.name)
    background = Background()
    async with AsyncExitStack() as stack:
        metastore = open_metastore(settings, stack)
        etcd = choose(settings.data_dir, settings.etcd)
        majority = EtcdMajority(metastore, tls=settings.tls if settings.metastore_tls else None)
        fence = NodeFence(
            *(settings.node_lease_s, Watchdog(), boottime_ns),
            probe=majority if settings.node_trust_refusals else None,
        )
        tuning = EtcdTuning(
            quota_bytes=settings.node_member_quota_mb << 20,
            strict_steps=settings.node_strict_steps,
            etcd=etcd,
            tls=settings.tls,
        )
        host = EtcdGroupHost(
            settings.data_dir,
            own_ports(node, member_ports(settings), DEFAULT_ENGINE),
            host=settings.node_host,
            member_limit=settings.node_member_limit,
            tuning=tuning,
            guard=fence,
        )
        keyspace = Keyspace(settings.metastore_prefix)
        agent = NodeAgent(
            node,
            metastore,
            keyspace,
            with_engines(node, settings, host, metastore, keyspace, fence),
            settings.data_dir,
            mirrors=EtcdMirrorHost(
                host.mirror_places(),
                mirror_limit=settings.node_member_limit,
                tuning=tuning,
                background=background,
            ),
            safe_times=SafeTimeWriter(tls=settings.tls),
            lease_ttl_s=settings.node_lease_s,
            map_period_s=MAP_PERIOD_S,
            failures_period_s=FAILURES_PERIOD_S,
            background=background,
            etcd=dotted(etcd.version),
            start_without_metastore=settings.node_start_without_metastore,
            fence=fence,
        )
        await agent.run()
