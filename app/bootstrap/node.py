"""``zonectl node``: one data node, with the engines of its profiles: ``etcd``, and those that installed
packages bring."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from importlib.metadata import entry_points

import structlog

from app.bootstrap.composition import ProcessFrame
from app.bootstrap.scrape_entry import open_process
from app.bootstrap.stores import entry_of
from app.configuration.node_settings import member_ports, node_of
from app.configuration.settings import Settings
from app.metrics.gauges import put_disk
from app.process.logs import configure
from app.supervision.child_plan import NODE_INHERITS, zonectl
from catalog.core.zone import DEFAULT_ENGINE, STORE_ENGINE, Node
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ProcessRole
from rebalance.core.partition_maps.partition_map import MAP_PERIOD_S
from rebalance.groups.calls.replica_reads import SafeTimeWriter
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.etcd_mirror import EtcdMirrorHost
from rebalance.groups.files.etcd_tuning import EtcdTuning
from rebalance.groups.process.member_metrics import MemberScrape
from rebalance.hosting.background import Work
from rebalance.hosting.directory_owner import node_directories
from rebalance.hosting.etcd_binary import EtcdBinary, choose, dotted
from rebalance.hosting.watchdog import Watchdog, boottime_ns
from rebalance.metastore.held_start import hold_start
from rebalance.metastore.level_gate import within_level
from rebalance.metastore.majority import EtcdMajority
from rebalance.metastore.own_directory import OwnDirectory
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.engine_hosts import EngineHosts
from rebalance.nodes.node_context import AgentRules, NodeHosts, NodeStart
from rebalance.nodes.node_fence import NodeFence
from rebalance.nodes.registration import cause_of_removal
from rebalance.nodes.reports import FAILURES_PERIOD_S
from rebalance.nodes.store_child import STORE_DIRECTORY, StoreChild
from rebalance.ports.fence import MemberGuard
from rebalance.ports.groups import ENTRY_POINTS, EngineFactory, EngineRoom, GroupHost, NoPlaceError
from rebalance.ports.metastore import Metastore
from rebalance.store.shell.lmdb_disk import DATA_FILE, LOW_WATER_BYTES, note_damage


def engine_names(node: Node) -> tuple[str, ...]:
    """Engines of the node that keep members: ``etcd`` first, which is always there. A store server has no
    members."""
    return DEFAULT_ENGINE, *sorted({engine for _, engine in node.engines} - {STORE_ENGINE})


def has_store(node: Node) -> bool:
    return STORE_ENGINE in dict(node.engines).values()


def own_ports(node: Node, ports: range, engine: str) -> range:
    """An engine's even share of the node's range, whose last port is that of its store server. Raises
    ValueError when that is less than a pair."""
    if engine == STORE_ENGINE:
        return ports[-1:]
    names = engine_names(node)
    share = len(ports) // len(names) // 2 * 2
    if share < 2:
        raise ValueError(f"ports {ports.start}-{ports.stop - 1} are too few for engines {', '.join(names)}")
    first = ports.start + share * names.index(engine)
    own = range(first, first + share) if len(names) > 1 else ports
    return own[:-1] if has_store(node) and own[-1] == ports[-1] and len(own) > 2 else own


def with_engines(
    node: Node,
    settings: Settings,
    default: GroupHost,
    metastore: Metastore,
    keyspace: Keyspace,
    guard: MemberGuard,
) -> GroupHost:
    """``default`` alone where no profile names another engine. Raises ValueError when one is not installed, or
    when members of one are here that no profile names."""
    names = engine_names(node)[1:]
    below = settings.data_dir / "engines"
    present = sorted(folder.name for folder in below.iterdir()) if below.exists() else []
    orphans = [name for name in present if name not in names]
    if orphans:
        raise ValueError(f"{below} has members of {', '.join(orphans)}, which no profile of this node names")
    if not names:
        return default
    hosts: dict[str, GroupHost] = {DEFAULT_ENGINE: default}
    for name in names:
        room = EngineRoom(
            below / name,
            own_ports(node, member_ports(settings), name),
            settings.node_host,
            settings.node_member_limit,
            guard,
        )
        factory = _factory(name)
        room.data_dir.mkdir(parents=True, exist_ok=True)
        hosts[name] = factory(room)
    return EngineHosts(node, hosts, metastore, keyspace)


def _factory(name: str) -> EngineFactory:
    """Raises ValueError, naming the engines that there are."""
    installed = entry_points(group=ENTRY_POINTS)
    if name not in installed.names:
        there = ", ".join((DEFAULT_ENGINE, STORE_ENGINE, *sorted(installed.names)))
        raise ValueError(f"there is no engine {name!r}; installed: {there} (entry points {ENTRY_POINTS})")
    factory: EngineFactory = installed[name].load()
    return factory


log = structlog.get_logger(__name__)


async def run_node(settings: Settings) -> None:
    """Run the node until cancelled. Raises ValueError for settings that name no node or no ports,
    EtcdVersionError or FileNotFoundError without an etcd that can open the data directory,
    ForeignDirectoryError for a directory that turns out to be another node's or a removed one's, and
    BelowLevelError."""
    node = node_of(settings)
    configure(node.name)
    async with AsyncExitStack() as stack:
        frame = ProcessFrame.open(settings, stack, ProcessRole.NODE)
        metastore, keyspace = frame.metastore, frame.keyspace
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        directory = OwnDirectory(node.name, lambda: node_directories(settings.data_dir), metastore, keyspace)
        entry = entry_of(ProcessRole.NODE, "")
        removal = partial(cause_of_removal, metastore, keyspace, node.name, settings.data_dir)
        await hold_start(metastore, keyspace, node.name, entry, directory.why_foreign, removal)
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
    """Open the hosts of the node's profiles; their members are measured from now on."""
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
    metrics.ask(host.measure)
    metrics.ask(partial(put_disk, settings.data_dir, metrics))
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
