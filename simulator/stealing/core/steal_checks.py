"""Checks before a rebalancing begins: each thing that is wrong, with a code and an action.

Source: VOL-010, VOL-027..029, VOL-092, VOL-094, VOL-097.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from simulator.stealing.core.steal_cluster import RO_FORMAT, ClusterMetadata, StoreDefinition, StoreKind
from simulator.stealing.core.steal_plan import StealUnit, transitions
from simulator.stealing.core.steal_state_change import BatchId


class ServerState(Enum):
    """NORMAL_SERVER: steals nothing; donors stay in it. REBALANCING_MASTER: has entries in its steal info."""

    NORMAL_SERVER = "NORMAL_SERVER"
    REBALANCING_MASTER = "REBALANCING_MASTER"


class RefusalCode(Enum):
    NODE_DOWN = "NODE_DOWN"
    NOT_NORMAL = "NOT_NORMAL"
    STEAL_INFO_NOT_EMPTY = "STEAL_INFO_NOT_EMPTY"
    BATCH_UNFINISHED = "BATCH_UNFINISHED"
    OLD_STORAGE_FORMAT = "OLD_STORAGE_FORMAT"
    REBALANCING_DISABLED = "REBALANCING_DISABLED"
    METADATA_DIFFERS = "METADATA_DIFFERS"
    PARTITIONS_DIFFER = "PARTITIONS_DIFFER"
    NODE_NOT_IN_TARGET = "NODE_NOT_IN_TARGET"
    TOO_FEW_NODES = "TOO_FEW_NODES"
    NO_STORES = "NO_STORES"
    BAD_OPTION = "BAD_OPTION"
    DONOR_DATA_DELETED = "DONOR_DATA_DELETED"


@dataclass(frozen=True, slots=True)
class Refusal:
    code: RefusalCode
    message: str


@dataclass(frozen=True, slots=True)
class RebalanceOptions:
    """``batch_size``: primary partitions that move together. ``max_parallel``: units that run at once
    (VOL-091). ``delete``: take moved data off its donors, after everything else (VOL-094, VOL-103)."""

    batch_size: int = 1
    max_parallel: int = 1
    delete: bool = False


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of each server, by their names in the document: ``enable.rebalancing``,
    ``max.rebalancing.attempts``, ``rebalancing.timeout.seconds``, ``max.parallel.stores.rebalancing``,
    ``rebalancing.optimization`` (VOL-097..101). ``copy_rate``: keys a second that one copy takes at most."""

    enable_rebalancing: bool = True
    max_attempts: int = 3
    timeout_s: float = 10 * 24 * 60 * 60
    max_parallel_stores: int = 3
    optimization: bool = True
    copy_rate: float = 1_000.0


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Report of a node. ``ro_formats``: those of its read-only stores. ``unfinished``: the batch whose changes
    it may still have to take back. ``committed``: the last one from which there is no way back."""

    node: int
    cluster: ClusterMetadata
    state: ServerState = ServerState.NORMAL_SERVER
    steal_info: tuple[StealUnit, ...] = ()
    ro_formats: Mapping[str, str] = field(default_factory=dict)
    enable_rebalancing: bool = True
    unfinished: BatchId | None = None
    committed: BatchId | None = None


def check_options(options: RebalanceOptions) -> tuple[Refusal, ...]:
    """VOL-092."""
    values = {"batch size": options.batch_size, "parallelism": options.max_parallel}
    return tuple(
        Refusal(RefusalCode.BAD_OPTION, f"{name} is {value}: it must be 1 or more")
        for name, value in values.items()
        if value < 1
    )


def check_nodes(nodes: Iterable[int], reports: Iterable[NodeReport]) -> tuple[Refusal, ...]:
    """Everything that is wrong with the nodes of current and target metadata together (VOL-010, VOL-027..029,
    VOL-097), by node. Reports of nodes that did not answer are missing."""
    by_node = {report.node: report for report in reports}
    refusals = []
    for node in sorted({*nodes, *by_node}):
        if node not in by_node:
            refusals.append(Refusal(RefusalCode.NODE_DOWN, f"node {node} does not answer: start it first"))
        else:
            refusals += _check_node(by_node[node])
    clusters = {report.cluster.owners: report.cluster for report in by_node.values()}
    if len(clusters) > 1:
        texts = ", ".join(sorted(cluster.encode() for cluster in clusters.values()))
        message = f"nodes have different cluster metadata: {texts}; recover the unfinished rebalancing first"
        refusals.append(Refusal(RefusalCode.METADATA_DIFFERS, message))
    return tuple(refusals)


def _check_node(report: NodeReport) -> list[Refusal]:
    node, refusals = report.node, []
    if report.state is not ServerState.NORMAL_SERVER:
        message = f"node {node} is {report.state.value}: a rebalancing runs already; wait for it, or recover it"
        refusals.append(Refusal(RefusalCode.NOT_NORMAL, message))
    if report.steal_info:
        units = "; ".join(steal_unit.describe() for steal_unit in report.steal_info)
        message = f"rebalancing.steal.info.key of node {node} is not []: {units}"
        refusals.append(Refusal(RefusalCode.STEAL_INFO_NOT_EMPTY, message))
    if report.unfinished is not None:
        message = f"node {node} has not finished {report.unfinished}: wait for it, or recover it"
        refusals.append(Refusal(RefusalCode.BATCH_UNFINISHED, message))
    if not report.enable_rebalancing:
        message = f"enable.rebalancing of node {node} is false: set it to true and start the node again"
        refusals.append(Refusal(RefusalCode.REBALANCING_DISABLED, message))
    for store, version in sorted(report.ro_formats.items()):
        if version != RO_FORMAT:
            message = f"store {store} of node {node} has storage format {version}: {RO_FORMAT} is needed"
            refusals.append(Refusal(RefusalCode.OLD_STORAGE_FORMAT, message))
    return refusals


def check_target(
    current: ClusterMetadata, target: ClusterMetadata, stores: Iterable[StoreDefinition], batch_size: int
) -> tuple[Refusal, ...]:
    """Check that the target can be reached: whole partitions, the same ones, and enough nodes for every store
    all the way (VOL-011, VOL-012)."""
    defined, refusals = tuple(stores), []
    if len(target.owners) != len(current.owners):
        message = (
            f"the target has {len(target.owners)} partitions and the cluster {len(current.owners)}: "
            "keys keep their partitions, so the number cannot change"
        )
        refusals.append(Refusal(RefusalCode.PARTITIONS_DIFFER, message))
    absent = sorted(set(current.nodes) - set(target.nodes))
    if absent:
        message = f"nodes {absent} are not in the target: keep them there, with no partitions, to empty them"
        refusals.append(Refusal(RefusalCode.NODE_NOT_IN_TARGET, message))
    if not defined:
        refusals.append(Refusal(RefusalCode.NO_STORES, "the cluster has no stores: there is nothing to move"))
    if not refusals:
        refusals += _check_replication(current, target, defined, batch_size)
    return tuple(refusals)


def _check_replication(
    current: ClusterMetadata, target: ClusterMetadata, stores: tuple[StoreDefinition, ...], batch_size: int
) -> list[Refusal]:
    """Every store finds as many nodes as it has replicas: now, after each batch, and in the end."""
    steps = transitions(current.with_nodes(target.nodes), target, batch_size)
    stages = {"now": current, "in the target": target}
    stages |= {f"after batch {number}": step for number, step in enumerate(steps, 1)}
    refusals = []
    for name, cluster in stages.items():
        owning = len(set(cluster.owners))
        for store in stores:
            if store.replication > owning:
                need = f"store {store.name} needs {store.replication} nodes that own partitions"
                message = f"{need}: {name} there are {owning}"
                refusals.append(Refusal(RefusalCode.TOO_FEW_NODES, message))
    return refusals


def check_rollback(deleted_at: Iterable[int]) -> tuple[Refusal, ...]:
    """``deleted_at``: donors whose moved data were deleted. Their old data are what a rollback goes back to
    (VOL-093, VOL-094)."""
    nodes = sorted(deleted_at)
    if not nodes:
        return ()
    message = (
        f"moved data were deleted from the donors {nodes}: there is nothing to go back to; "
        "rebalance towards the old metadata instead"
    )
    return (Refusal(RefusalCode.DONOR_DATA_DELETED, message),)


def has_kind(stores: Iterable[StoreDefinition], kind: StoreKind) -> bool:
    return any(store.kind is kind for store in stores)
