"""``zonectl node``: one data node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import cache, partial

import structlog

from app.bootstrap.composition import ProcessFrame
from app.bootstrap.group_hosts import has_store, own_ports, with_engines
from app.bootstrap.metrics import measure_node
from app.bootstrap.scrape_entry import open_process
from app.bootstrap.stores import entry_of
from app.configuration.node_settings import member_ports, node_of
from app.configuration.settings import Settings
from app.process.stderr_lines import configure
from app.supervision.child_plan import NODE_INHERITS, zonectl
from catalog.core.zone import DEFAULT_ENGINE, STORE_ENGINE, Node
from rebalance.core.keyspace.self_reports import ProcessRole
from rebalance.core.partition_maps.zone_map import MAP_PERIOD_S
from rebalance.groups.calls.safe_time import SafeTimeWriter
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.files.etcd_tuning import EtcdTuning
from rebalance.groups.mirrors.etcd_mirror import EtcdMirrorHost
from rebalance.groups.process.member_scrape import MemberScrape
from rebalance.hosting.background import Work
from rebalance.hosting.directory_owner import node_directories
from rebalance.hosting.etcd_binary import EtcdBinary, choose, dotted
from rebalance.hosting.watchdog import Watchdog, boottime_ns
from rebalance.metastore.held_start import HeldStart
from rebalance.metastore.level_gate import within_level
from rebalance.metastore.majority import EtcdMajority
from rebalance.metastore.own_directory import OwnDirectory
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.failure_report import FAILURES_PERIOD_S
from rebalance.nodes.node_context import AgentRules, NodeHosts, NodeStart
from rebalance.nodes.node_fence import NodeFence
from rebalance.nodes.registration import cause_of_removal
from rebalance.nodes.store_child import StoreChild
from rebalance.nodes.store_partitions import STORE_DIRECTORY
from rebalance.ports.groups import NoPlaceError
from rebalance.store.shell.damaged_store import note_damage
from rebalance.store.shell.lmdb_disk import DATA_FILE, LOW_WATER_BYTES

log = structlog.get_logger(__name__)


async def run_node(settings: Settings) -> None:
    """Until cancelled. Raises ValueError for settings that name no node or no ports, EtcdVersionError or
    FileNotFoundError without an etcd that can open the data directory, and ForeignDirectoryError for one that
    turns out to be another's, or a removed node's, and BelowLevelError."""
    node = node_of(settings)
    configure(node.name)
    async with AsyncExitStack() as stack:
        frame = ProcessFrame.open(settings, stack, ProcessRole.NODE)
        metastore, keyspace = frame.metastore, frame.keyspace
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        directory = OwnDirectory(node.name, lambda: node_directories(settings.data_dir), metastore, keyspace)
        held = HeldStart(metastore, keyspace, node.name, entry_of(ProcessRole.NODE, ""))
        removal = partial(cause_of_removal, metastore, keyspace, node.name, settings.data_dir)
        await held.until_free(directory.why_foreign, removal)
        etcd = choose(settings.data_dir, settings.etcd)
        start = NodeStart(node, settings.data_dir, settings.node_lease_s, etcd=dotted(etcd.version))
        hosts = await _open_hosts(frame, node, etcd)
        rules = AgentRules(MAP_PERIOD_S, FAILURES_PERIOD_S, settings.node_start_without_metastore)
        agent = NodeAgent(start, metastore, keyspace, hosts, rules, frame.background, frame.metrics)
        # With less its store server takes no writes.
        needed_bytes = LOW_WATER_BYTES if has_store(node) else 0
        await open_process(frame, node.name, ProcessRole.NODE, settings.data_dir, needed_bytes)
        await within_level(metastore, keyspace, f"node {node.name}", _run_in(directory, agent))


async def _open_hosts(frame: ProcessFrame, node: Node, etcd: EtcdBinary) -> NodeHosts:
    """Those of the node's profiles; its members are measured from now on."""
    settings, metrics = frame.settings, frame.metrics
    majority = EtcdMajority(frame.metastore, tls=settings.tls if settings.metastore_tls else None)
    probe = majority if settings.node_trust_refusals else None
    fence = NodeFence(settings.node_lease_s, Watchdog(), boottime_ns, probe)
    tuning = EtcdTuning(
        quota_bytes=settings.node_member_quota_mb << 20,
        strict_steps=settings.node_strict_steps,
        etcd=etcd,
        tls=settings.tls,
        measures=metrics,
    )
    host = EtcdGroupHost(
        settings.data_dir,
        own_ports(node, member_ports(settings), DEFAULT_ENGINE),
        host=settings.node_host,
        member_limit=settings.node_member_limit,
        tuning=tuning,
        guard=fence,
    )
    measure_node(metrics, settings, host)
    await frame.keep("metrics: members", MemberScrape(host, metrics, settings.tls).run)
    return NodeHosts(
        with_engines(node, settings, host, frame.metastore, frame.keyspace, fence),
        EtcdMirrorHost(
            host.mirror_places(),
            mirror_limit=settings.node_member_limit,
            tuning=tuning,
            background=frame.background,
        ),
        safe_times=SafeTimeWriter(tls=settings.tls),
        fence=fence,
        store=_store_server(frame, node, host),
    )


async def _run_in(directory: OwnDirectory, agent: NodeAgent) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(directory.name())
            tasks.create_task(agent.run())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group


def _store_server(frame: ProcessFrame, node: Node, host: EtcdGroupHost) -> Work | None:
    """None where no profile of the node names the engine."""
    settings = frame.settings
    if not has_store(node):
        return None

    @cache
    def port() -> int:
        (last,) = own_ports(node, member_ports(settings), STORE_ENGINE)
        try:
            return host.mirror_places().single_port(last)
        except NoPlaceError as error:
            log.warning("the store server listens outside of the node's ports", cause=str(error))
            return 0

    def command(incarnation: str) -> Sequence[str]:
        return (
            *zonectl("store", "serve", "--name", node.name, "--host", settings.node_host),
            *("--metastore", settings.metastore, "--data-dir", str(settings.data_dir)),
            *("--incarnation", incarnation, "--port", str(port())),
        )

    def note(damage: str) -> None:
        store = settings.data_dir / STORE_DIRECTORY
        note_damage(store, f"{store / DATA_FILE} cannot be read by the server: {damage}")

    return StoreChild(node.name, frame.metastore, frame.keyspace, command, NODE_INHERITS, note).run
