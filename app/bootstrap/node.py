"""``zonectl node``: one data node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import cache, partial

import structlog

from app.bootstrap.group_hosts import has_store, own_ports, with_engines
from app.bootstrap.metrics import exposition_of, measure_node, measure_process
from app.bootstrap.scrape_entry import open_process
from app.bootstrap.self_entry import entry_of
from app.bootstrap.stores import open_metastore
from app.configuration.node_settings import member_ports, node_of
from app.configuration.settings import Settings
from app.log_levels import LogLevelFollower
from app.logs import configure, set_levels
from app.supervision.child_plan import NODE_INHERITS, zonectl
from catalog.core.zone import DEFAULT_ENGINE, STORE_ENGINE, Node
from rebalance.core.keys import Keyspace
from rebalance.core.self_reports import ProcessRole
from rebalance.core.zone_map import MAP_PERIOD_S
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.etcd_mirror import EtcdMirrorHost
from rebalance.groups.etcd_tuning import EtcdTuning
from rebalance.groups.member_scrape import MemberScrape
from rebalance.groups.safe_time import SafeTimeWriter
from rebalance.hosting.background import Background, Work, kept
from rebalance.hosting.directory_owner import node_directories
from rebalance.hosting.etcd_binary import choose, dotted
from rebalance.hosting.watchdog import Watchdog, boottime_ns
from rebalance.metastore.held_start import HeldStart
from rebalance.metastore.level_gate import within_level
from rebalance.metastore.majority import EtcdMajority
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.own_directory import OwnDirectory
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.failure_report import FAILURES_PERIOD_S
from rebalance.nodes.node_fence import NodeFence
from rebalance.nodes.registration import cause_of_removal
from rebalance.nodes.store_child import StoreChild
from rebalance.nodes.store_partitions import STORE_DIRECTORY
from rebalance.ports.groups import NoPlaceError
from rebalance.ports.metastore import Metastore
from rebalance.store.shell.damaged_store import note_damage
from rebalance.store.shell.lmdb_disk import DATA_FILE, LOW_WATER_BYTES

log = structlog.get_logger(__name__)


async def run_node(settings: Settings) -> None:
    """Until cancelled. Raises ValueError for settings that name no node or no ports, EtcdVersionError or
    FileNotFoundError without an etcd that can open the data directory, and ForeignDirectoryError for one that
    turns out to be another's, or a removed node's, and BelowLevelError."""
    node = node_of(settings)
    configure(node.name)
    background = Background()
    metrics = exposition_of(ProcessRole.NODE)
    measure_process(metrics, settings, background)
    async with AsyncExitStack() as stack:
        metastore = open_metastore(settings, stack, metrics)
        keyspace = Keyspace(settings.metastore_prefix)
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        directory = OwnDirectory(node.name, lambda: node_directories(settings.data_dir), metastore, keyspace)
        held = HeldStart(metastore, keyspace, node.name, entry_of(ProcessRole.NODE, ""))
        removal = partial(cause_of_removal, metastore, keyspace, node.name, settings.data_dir)
        await held.until_free(directory.why_foreign, removal)
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
            store=_store_server(node, settings, metastore, keyspace, host),
            measures=metrics,
        )
        levels = KeyspaceMirror(metastore, keyspace.log_levels)
        LogLevelFollower(levels, keyspace, set_levels)
        await stack.enter_async_context(kept(background, "log levels", levels.run))
        scrape = MemberScrape(host, metrics, settings.tls)
        await stack.enter_async_context(kept(background, "metrics: members", scrape.run))
        await open_process(
            *(node.name, ProcessRole.NODE, settings, metastore, metrics, background, stack),
            directory=settings.data_dir,
            # With less its store server takes no writes.
            needed_bytes=LOW_WATER_BYTES if has_store(node) else 0,
        )
        await within_level(metastore, keyspace, f"node {node.name}", _run_in(directory, agent))


async def _run_in(directory: OwnDirectory, agent: NodeAgent) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(directory.name())
            tasks.create_task(agent.run())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group


def _store_server(
    node: Node, settings: Settings, metastore: Metastore, keyspace: Keyspace, host: EtcdGroupHost
) -> Work | None:
    """None where no profile of the node names the engine."""
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

    return StoreChild(node.name, metastore, keyspace, command, NODE_INHERITS, note).run
