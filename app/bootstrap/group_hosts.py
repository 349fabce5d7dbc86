"""The engines of a node's profiles: ``etcd``, and those that installed packages bring."""

from __future__ import annotations

from importlib.metadata import entry_points

from app.configuration.node_settings import member_ports
from app.configuration.settings import Settings
from catalog.core.zone import DEFAULT_ENGINE, STORE_ENGINE, Node
from rebalance.core.keyspace.keys import Keyspace
from rebalance.nodes.engine_hosts import EngineHosts
from rebalance.ports.engines import ENTRY_POINTS, EngineFactory, EngineRoom
from rebalance.ports.fence import MemberGuard
from rebalance.ports.groups import GroupHost
from rebalance.ports.metastore import Metastore


def engine_names(node: Node) -> tuple[str, ...]:
    """Those that keep members: ``etcd`` first, which is always there. A store server has none."""
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
