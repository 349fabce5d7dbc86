"""Parts that a node's agent is made of, and the resources that the duties of one node share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from catalog.core.zone import Node
from rebalance.core.keyspace.keys import Keyspace
from rebalance.hosting.background import Work
from rebalance.nodes.engine_hosts import NoMirrors
from rebalance.nodes.node_fence import NodeFence
from rebalance.nodes.partition_view import Mirrors
from rebalance.ports.groups import GroupHost
from rebalance.ports.metastore import Metastore
from rebalance.ports.metric_rows import NO_MEASURES, Measures
from rebalance.ports.mirrors import MirrorHost, SafeTimes


@dataclass(frozen=True, slots=True)
class NodeStart:
    """One start of a node on its data directory, as it registers. ``incarnation``: never used before; ``etcd``:
    version of what runs the members, empty: not known."""

    node: Node
    data_dir: Path
    lease_ttl_s: int = 5
    incarnation: str = field(default_factory=lambda: uuid4().hex[:12])
    etcd: str = ""


@dataclass(frozen=True, slots=True)
class NodeHosts:
    """Hosts that run on a node. ``members`` holds them (``EtcdGroupHost`` in the product), ``mirrors`` the
    copies of learners: without them the node can only vote. ``safe_times`` tells the groups that it leads the
    time. ``fence``: the one that ``members`` starts them under; None: members of HIGH_AVAILABILITY zones run on
    unheard, and nothing is published of a fence. ``store``: keeps the node's store server until cancelled; it
    is begun when there is a zone for it. ``tell``: they call ``NodeAgent.notice`` at each change of a member or
    a mirror."""

    members: GroupHost
    mirrors: MirrorHost = field(default_factory=NoMirrors)
    safe_times: SafeTimes | None = None
    fence: NodeFence | None = None
    store: Work | None = None
    tell: bool = False


@dataclass(frozen=True, slots=True)
class AgentRules:
    """``map_period_s``: how often the node's partition map may be written, None: it is not;
    ``failures_period_s`` the same of what fails at groups that it leads. ``start_without_metastore``:
    ``MemberStarts``."""

    map_period_s: float | None = None
    failures_period_s: float | None = None
    start_without_metastore: bool = False


NO_REPORTS = AgentRules()


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The node's name, what its duties read and write, and the host of its members."""

    name: str
    metastore: Metastore
    mirrors: Mirrors
    host: GroupHost
    measures: Measures = NO_MEASURES
    data_dir: Path | None = None
    """Directory of the node's own notes; None: it notes nothing."""

    @property
    def keyspace(self) -> Keyspace:
        return self.mirrors.keyspace
