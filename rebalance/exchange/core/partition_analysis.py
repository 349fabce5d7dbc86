"""What the coordinator concludes from the reported copies of one zone: differences, outdated and lost copies.

Pure functions over node -> report of one partition, and ``analyse`` over a zone. Nothing here is fatal: a
difference is shown, an outdated copy is filled again, a lost partition is marked. Source: PME-056,
PME-088..097, PME-101..103, PME-137.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.core.zone import ZoneId
from rebalance.core.affinity import CopyState
from rebalance.core.loss_policy import LossPolicy
from rebalance.core.partition_map import CopyReport, FullMap
from rebalance.exchange.core.exchange_messages import CopyId, Supplier

Reports = Mapping[str, CopyReport]
History = Mapping[str, Mapping[tuple[ZoneId, int], int]]
"""By node: the earliest counter that its log has, by zone and partition."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Owners of one partition that do not agree. ``counters`` and ``sizes`` by node."""

    zone: ZoneId
    partition: int
    counters: Mapping[str, int]
    sizes: Mapping[str, int]

    def describe(self) -> str:
        """The warning (PME-089)."""
        values = ", ".join(
            f"{node} (counter {self.counters[node]}, size {self.sizes[node]})" for node in sorted(self.counters)
        )
        return f"copies of partition {self.partition} of zone {self.zone} differ: {values}"


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """Which steps run. ``found``: the zone begins with this exchange, so that a partition which nobody owns is
    new and not lost. ``reset``: lost partitions are used as they are from now on. ``lost``: those that were
    lost before this exchange."""

    assigns_states: bool = False
    detects_lost: bool = False
    found: bool = False
    reset: bool = False
    lost: frozenset[int] = frozenset()
    policy: LossPolicy = LossPolicy.READ_WRITE_SAFE


@dataclass(frozen=True, slots=True)
class ZoneOutcome:
    """``full`` with the decided states, and what follows for the copies that must be filled."""

    full: FullMap
    differences: tuple[Difference, ...] = ()
    lost: frozenset[int] = frozenset()
    counters: Mapping[int, int] = field(default_factory=dict)
    reload: frozenset[CopyId] = frozenset()
    suppliers: Mapping[CopyId, Supplier] = field(default_factory=dict)


def owners_of(reports: Reports) -> frozenset[str]:
    return frozenset(node for node, each in reports.items() if each.state is CopyState.OWNING)


def difference(zone: ZoneId, partition: int, reports: Reports) -> Difference | None:
    """Among owners only: a copy that is being filled is expected to differ (PME-088)."""
    owners = owners_of(reports)
    if len({(reports[node].counter, reports[node].size) for node in owners}) <= 1:
        return None
    return Difference(
        zone,
        partition,
        {node: reports[node].counter for node in owners},
        {node: reports[node].size for node in owners},
    )


def outdated(reports: Reports) -> frozenset[str]:
    """Owners whose counter is below that of another owner (PME-090)."""
    owners = owners_of(reports)
    highest = max((reports[node].counter for node in owners), default=0)
    return frozenset(node for node in owners if reports[node].counter < highest)


def supplier_for(
    zone: ZoneId, partition: int, reports: Reports, counter: int, history: History
) -> Supplier | None:
    """The owner whose log reaches back to ``counter``, the one that reaches back furthest first. None: the copy
    must be filled from the start (PME-056). A copy that never had an update has no history to continue."""
    if counter <= 0:
        return None
    reach = {
        node: history[node][zone, partition]
        for node in owners_of(reports)
        if (zone, partition) in history.get(node, {}) and history[node][zone, partition] <= counter
    }
    if not reach:
        return None
    return Supplier(min(reach, key=lambda node: (reach[node], node)), counter)


def decide_states(
    reports: Reports, ideal: Sequence[str], rules: ZoneRules, was_lost: bool = False
) -> tuple[dict[str, CopyReport], bool]:
    """The states of one partition, and whether it is lost. Invariant: lost only if no living copy owns it, and
    what was lost stays so until it is reset, also when an owner comes back."""
    decided = dict(reports)
    if was_lost or any(each.state is CopyState.LOST for each in reports.values()):
        for node, each in reports.items():
            if each.state is CopyState.OWNING or node in ideal:
                decided[node] = replace(each, state=CopyState.LOST)
        if not rules.reset:
            return decided, True
        return _newest_owns(decided, [node for node in decided if decided[node].state is CopyState.LOST]), False
    if rules.assigns_states:
        for node in outdated(reports):
            decided[node] = replace(reports[node], state=CopyState.MOVING)
    if owners_of(decided):
        return decided, False
    # A copy that was half filled before it was restored is no beginning of a partition.
    empty = [node for node in ideal if node in decided and not decided[node].counter]
    if rules.found and empty:
        for node in empty:
            decided[node] = replace(decided[node], state=CopyState.OWNING)
        return decided, False
    if not rules.detects_lost:
        return decided, False
    if rules.policy is LossPolicy.IGNORE:
        return _newest_owns(decided, [node for node in ideal if node in decided]), False
    for node in ideal:
        if node in decided:
            decided[node] = replace(decided[node], state=CopyState.LOST)
    return decided, True


def with_wanted_copies(reports: Reports, ideal: Sequence[str]) -> dict[str, CopyReport]:
    """``reports`` with a MOVING copy on each ideal node that has none, or one that was on its way out: what a
    merged event assigned is not in the reports yet (PME-059, PME-074)."""
    wanted = dict(reports)
    for node in ideal:
        each = reports.get(node)
        if each is None or each.state is CopyState.EVICTED:
            wanted[node] = CopyReport(CopyState.MOVING)
        elif each.state is CopyState.RENTING:
            wanted[node] = replace(each, state=CopyState.MOVING, counter=0)
    return wanted


def analyse(full: FullMap, ideal: Sequence[Sequence[str]], rules: ZoneRules, history: History) -> ZoneOutcome:
    """Decide the whole zone. ``ideal`` has one list of living nodes for each partition."""
    nodes: dict[str, dict[int, CopyReport]] = {node: {} for node in full.nodes}
    by_partition: list[dict[str, CopyReport]] = [{} for _ in ideal]
    for node, copies in full.nodes.items():
        for partition, each in copies.items():
            if partition < len(by_partition):
                by_partition[partition][node] = each
    differences, lost, counters = [], set(), {}
    reload: set[CopyId] = set()
    suppliers: dict[CopyId, Supplier] = {}
    for partition, reports in enumerate(by_partition):
        found = difference(full.zone, partition, reports)
        if found is not None:
            differences.append(found)
        wanted = with_wanted_copies(reports, ideal[partition])
        decided, is_lost = decide_states(wanted, ideal[partition], rules, partition in rules.lost)
        if is_lost:
            lost.add(partition)
        actual = counters[partition] = max((decided[node].counter for node in owners_of(decided)), default=0)
        for node, each in decided.items():
            if each.state is CopyState.MOVING:
                copy = CopyId(full.zone, partition, node)
                supplier = supplier_for(full.zone, partition, decided, each.counter, history)
                if supplier is not None:
                    suppliers[copy] = supplier
                elif each.counter or each.size:
                    reload.add(copy)
                # From here on it takes part in updates, as if it were in sync (PME-101).
                each = replace(each, counter=actual)
            nodes[node][partition] = each
    return ZoneOutcome(
        replace(full, nodes=nodes),
        tuple(differences),
        frozenset(lost),
        counters,
        frozenset(reload),
        suppliers,
    )


def _newest_owns(decided: dict[str, CopyReport], candidates: Sequence[str]) -> dict[str, CopyReport]:
    """The candidates with the highest counter own, the others are filled from them: what was saved is kept."""
    highest = max((decided[node].counter for node in candidates), default=0)
    for node in candidates:
        newest = decided[node].counter == highest
        decided[node] = replace(decided[node], state=CopyState.OWNING if newest else CopyState.MOVING)
    return decided
