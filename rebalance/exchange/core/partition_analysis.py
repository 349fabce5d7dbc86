"""Conclusions of the coordinator from the reported copies of one zone: differences, outdated and lost
copies.

Pure functions over node -> report of one partition, and ``analyse`` over a zone. Nothing here is fatal: a
difference is shown, an outdated copy is filled again, a lost partition is marked. Source: PME-056,
PME-088..097, PME-101..103, PME-137.

Partitions of which an exchange changes nothing, found in one pass: of thousands most are so, and each of the
others is looked at by itself.

Invariant: for a settled partition the long way (``decide_states``, ``late_effective``, ``partition_outcome``)
decides what was, whatever the event is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.core.zone import LossPolicy, ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyReport, CopyState, FullMap, StorePosition
from rebalance.exchange.core.exchange_messages import CopyId, PartitionOutcome, Supplier


def settled_partitions(
    full: FullMap,
    ideal: Sequence[Sequence[str]],
    outcomes: Sequence[PartitionOutcome],
    previous: Sequence[Sequence[str]],
    changed: Collection[str],
    lost: Collection[int] = (),
) -> dict[int, StorePosition]:
    """Partition -> the position of its owners: the ideal nodes have a copy, all alike, and nobody else has one;
    they are the in-sync set of the last result and its effective list; nothing is filled or lost.

    ``full``: as reported. ``outcomes``: of the last result, ``previous``: the effective lists before.
    ``changed``: servers that came or went since that result; where one has a copy, nothing is settled.
    """
    copies = [0] * len(ideal)
    for reported in full.nodes.values():
        for number in reported:
            if number < len(copies):
                copies[number] += 1
    sets: dict[Sequence[str], tuple[str, ...]] = {}
    settled: dict[int, StorePosition] = {}
    for number, outcome in enumerate(outcomes[: len(ideal)]):
        nodes = ideal[number]
        if not nodes or outcome.effective != nodes or copies[number] != len(nodes) or number in lost:
            continue
        in_sync = sets.get(nodes)
        if in_sync is None:
            # None but the members where one of them came or went.
            in_sync = sets[nodes] = () if set(nodes) & set(changed) else tuple(sorted(nodes))
        if outcome.in_sync != in_sync or outcome.filling or outcome.is_lost:
            continue
        if number < len(previous) and previous[number][:1] != nodes[:1]:
            continue
        position = _position(full, number, nodes)
        if position is not None:
            settled[number] = position
    return settled


def _position(full: FullMap, number: int, nodes: Sequence[str]) -> StorePosition | None:
    """Return the position of all copies; None where they are not all owners and alike."""
    first = full.nodes[nodes[0]].get(number)
    if first is None or first.state is not CopyState.OWNING:
        return None
    for node in nodes[1:]:
        other = full.nodes[node].get(number)
        if other is not first and other != first:
            return None
    return first.position


NOTHING_SETTLED: Mapping[int, StorePosition] = {}


Reports = Mapping[str, CopyReport]
History = Mapping[str, Mapping[tuple[ZoneId, int], StorePosition]]
"""Earliest position in each node's log, by zone and partition."""
UNKNOWN = PartitionOutcome()


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
    """Steps that run for a zone. ``found``: the zone begins with this exchange, so that a partition which
    nobody owns is new and not lost. ``reset``: lost partitions are used as they are from now on, and so are
    those that wait for nobody but servers which are ``dead``, as somebody says. ``lost``: those that were lost
    before this exchange. ``joined``: servers that came since, or that did not hear of the last result;
    ``gone``: those that went, in order; ``failed``: those of them that did not leave by themselves;
    ``reported``: those that said what they have. ``outcomes``: the last committed one of each partition, none
    where results are not kept."""

    assigns_states: bool = False
    detects_lost: bool = False
    found: bool = False
    reset: bool = False
    lost: frozenset[int] = frozenset()
    policy: LossPolicy = LossPolicy.READ_WRITE_SAFE
    joined: frozenset[str] = frozenset()
    gone: tuple[str, ...] = ()
    failed: frozenset[str] = frozenset()
    reported: frozenset[str] = frozenset()
    outcomes: Sequence[PartitionOutcome] = ()
    dead: frozenset[str] = frozenset()

    def known(self, partition: int) -> PartitionOutcome:
        return self.outcomes[partition] if partition < len(self.outcomes) else UNKNOWN

    def outcome(self, partition: int) -> PartitionOutcome:
        """Return the outcome once servers that went are out of its set."""
        return self.known(partition).without(self.gone)


@dataclass(frozen=True, slots=True)
class ZoneOutcome:
    """``full`` with the decided states, and what follows for the copies that must be filled."""

    full: FullMap
    differences: tuple[Difference, ...] = ()
    lost: frozenset[int] = frozenset()
    positions: Mapping[int, StorePosition] = field(default_factory=dict)
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
    """Owners whose position is below that of another owner (PME-090)."""
    highest = newest(reports)
    return frozenset(node for node in owners_of(reports) if reports[node].position < highest)


def newest(reports: Reports) -> StorePosition:
    """The highest position of an owner."""
    return max((reports[node].position for node in owners_of(reports)), default=NO_RECORD)


def untrusted(reports: Reports, outcome: PartitionOutcome, joined: Collection[str]) -> frozenset[str]:
    """Owners that must not own: what is on a disk that was away says nothing of what was acknowledged since.

    Without a member of the in-sync set only copies may that the primary waited for while they were filled, and
    that are full since. With a member these may, too, as they are levelled, and whoever else is exactly where
    the others are (PME-139): a server that joins, or one that was shed from the set and has not given its copy
    up yet. Members that come back with less than the set was known to have lost their disk.
    """
    owners = owners_of(reports)
    members = frozenset(
        node
        for node in owners.intersection(outcome.in_sync)
        if node not in joined or reports[node].position >= outcome.position
    )
    filled = owners.intersection(outcome.filling) - frozenset(joined)
    if not members and not filled:
        return owners
    trusted = members | filled
    highest = max(reports[node].position for node in trusted)
    return frozenset(node for node in owners - trusted if reports[node].position != highest)


def supplier_for(
    zone: ZoneId, partition: int, reports: Reports, position: StorePosition, history: History
) -> Supplier | None:
    """The owner whose log reaches back to ``position``, the one that reaches back furthest first. None: the
    copy must be filled from the start (PME-056). A copy that never had an update has no history to continue."""
    if not position.counter:
        return None
    reach = {
        node: history[node][zone, partition]
        for node in owners_of(reports)
        if (zone, partition) in history.get(node, {}) and history[node][zone, partition] <= position
    }
    if not reach:
        return None
    return Supplier(min(reach, key=lambda node: (reach[node], node)), position)


def decide_states(
    reports: Reports,
    ideal: Sequence[str],
    rules: ZoneRules,
    was_lost: bool = False,
    outcome: PartitionOutcome = UNKNOWN,
) -> tuple[dict[str, CopyReport], bool]:
    """The states of one partition, and whether it is lost. Invariant: lost only if no living copy owns it, and
    what was lost stays so until it is reset, or a member of the set is back that has everything."""
    decided = dict(reports)
    if was_lost or any(each.state is CopyState.LOST for each in reports.values()):
        return _decide_lost(reports, ideal, rules, outcome)
    if outcome.in_sync:
        for node in untrusted(reports, outcome, rules.joined):
            decided[node] = replace(reports[node], state=CopyState.MOVING)
        _empty_asked(decided)
    elif rules.assigns_states:
        for node in outdated(reports):
            decided[node] = replace(reports[node], state=CopyState.MOVING)
    if owners_of(decided):
        return decided, False
    # A copy that was half filled before it was restored is no beginning of a partition.
    empty = [node for node in ideal if node in decided and not decided[node].counter]
    never_owned = bool(rules.outcomes) and not outcome.in_sync
    if (rules.found or never_owned) and empty:
        for node in empty:
            decided[node] = replace(decided[node], state=CopyState.OWNING)
        return decided, False
    if _is_given_up(outcome, rules):
        return _decide_lost(reports, ideal, rules, outcome)
    if not _has_nobody(outcome, rules):
        return decided, False
    if rules.policy is LossPolicy.IGNORE:
        return _newest_owns(decided, [node for node in ideal if node in decided]), False
    return _lost(reports, [node for node in ideal if node in reports], outcome), True


def _empty_asked(decided: dict[str, CopyReport]) -> None:
    """Owners whose servers ask for it are filled anew, while an owner stays that does not and has as much."""
    owners = owners_of(decided)
    staying = [decided[node].position for node in owners if not decided[node].refill]
    for node in owners:
        if decided[node].refill and staying and max(staying) >= decided[node].position:
            # Complete up to nothing, and not new: its rows are cleared first.
            decided[node] = CopyReport(CopyState.MOVING, size=1)


def _has_nobody(outcome: PartitionOutcome, rules: ZoneRules) -> bool:
    """Check that no copy that may own can come back, while none is there. Members that are away are waited for,
    and one that left in order has everything on its disk: one that just failed takes the partition along, and
    so do members that are all back, and none with its copy."""
    members = frozenset(outcome.in_sync)
    if members and members <= rules.reported:
        return True
    return rules.detects_lost and (not members or bool(rules.failed & members))


def _is_given_up(outcome: PartitionOutcome, rules: ZoneRules) -> bool:
    """Check that a reset names all members that are awaited. Nobody knew of one that went in the same
    exchange."""
    awaited = frozenset(outcome.in_sync) - rules.reported
    return rules.reset and bool(awaited) and awaited <= rules.dead.difference(rules.gone)


def _decide_lost(
    reports: Reports, ideal: Sequence[str], rules: ZoneRules, outcome: PartitionOutcome
) -> tuple[dict[str, CopyReport], bool]:
    """Decide about a partition that was lost, or is given up. A member of the set that is back with everything
    owns at once, unless a reset would give up what another copy wrote meanwhile. One that has less than the set
    was known to have, or a copy that was only just made, has lost its disk."""
    owned = (CopyState.OWNING, CopyState.LOST)
    kept = [node for node, each in reports.items() if each.state in owned or node in ideal]
    members = [
        node
        for node in kept
        if node in outcome.in_sync
        and reports[node].state in owned
        and reports[node].position >= outcome.position
    ]
    # Whoever resets did not know of a member that went meanwhile: it may come back with everything.
    is_reset = rules.reset and not set(outcome.in_sync) & set(rules.gone)
    is_whole = bool(members) and not _may_have_stood_in(reports, rules.policy, outcome)
    if not (is_reset or is_whole or rules.policy is LossPolicy.IGNORE):
        return _lost(reports, kept, outcome), True
    moving = {node: replace(reports[node], state=CopyState.MOVING) for node in kept}
    return _newest_owns({**reports, **moving}, members or kept), False


def _lost(reports: Reports, nodes: Sequence[str], outcome: PartitionOutcome) -> dict[str, CopyReport]:
    """A member's copy that was only just made stays MOVING: LOST it would say that it was an owner."""
    lost = {
        node: replace(reports[node], state=CopyState.LOST)
        for node in nodes
        if node not in outcome.in_sync or reports[node].state is not CopyState.MOVING
    }
    return {**reports, **lost}


def _may_have_stood_in(reports: Reports, policy: LossPolicy, outcome: PartitionOutcome) -> bool:
    """Check that another copy may have taken writes while the partition was lost, maybe one that is not there
    now: only a reset gives them up. Writes after the last primary's are of a later epoch than its."""
    return policy is LossPolicy.READ_WRITE_ALL or any(each.epoch > outcome.epoch for each in reports.values())


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


def decided_before(
    reports: Reports, ideal: Sequence[str], outcome: PartitionOutcome, reported: Collection[str]
) -> tuple[dict[str, CopyReport], bool]:
    """The states as an outcome that was committed has them. Who owned and did not report again is dead: how far
    its log was is not known."""
    decided = {}
    for node, each in reports.items():
        if outcome.is_lost and (node in ideal or each.state in (CopyState.OWNING, CopyState.LOST)):
            state = CopyState.LOST
        elif outcome.effective and node in outcome.in_sync and node in reported:
            state = CopyState.OWNING
        else:
            state = CopyState.MOVING if each.state in (CopyState.OWNING, CopyState.LOST) else each.state
        decided[node] = replace(each, state=state)
    return decided, outcome.is_lost


def analyse(
    full: FullMap,
    ideal: Sequence[Sequence[str]],
    rules: ZoneRules,
    history: History,
    stands: Mapping[int, PartitionOutcome] | None = None,
    settled: Mapping[int, StorePosition] = NOTHING_SETTLED,
) -> ZoneOutcome:
    """Decide the whole zone. ``ideal`` has one list of living nodes for each partition. ``stands``: what was
    committed of this exchange already, where it changed anything. ``settled``: partitions that stay as they
    are, and their positions."""
    nodes = {
        node: {number: copy for number, copy in copies.items() if number in settled}
        for node, copies in full.nodes.items()
    }
    differences, lost, positions = [], set(), dict(settled)
    reload: set[CopyId] = set()
    suppliers: dict[CopyId, Supplier] = {}
    for partition in range(len(ideal)):
        if partition in settled:
            continue
        reports = full.reports(partition)
        found = difference(full.zone, partition, reports)
        if found is not None:
            differences.append(found)
        wanted = with_wanted_copies(reports, ideal[partition])
        outcome = rules.outcome(partition)
        was_lost = partition in rules.lost or outcome.is_lost
        if stands is not None:
            outcome = stands.get(partition, rules.known(partition))
            decided, is_lost = decided_before(wanted, ideal[partition], outcome, reports)
        else:
            decided, is_lost = decide_states(wanted, ideal[partition], rules, was_lost, outcome)
        if is_lost:
            lost.add(partition)
        actual = positions[partition] = newest(decided)
        for node, each in decided.items():
            if each.state is CopyState.MOVING:
                copy = CopyId(full.zone, partition, node)
                supplier = supplier_for(full.zone, partition, decided, each.position, history)
                if supplier is not None:
                    suppliers[copy] = supplier
                elif each.counter or each.size:
                    reload.add(copy)
                # From here on it takes part in updates, as if it were in sync (PME-101).
                each = replace(each, epoch=actual.epoch, counter=actual.counter)
            nodes[node][partition] = each
    return ZoneOutcome(
        replace(full, nodes=nodes),
        tuple(differences),
        frozenset(lost),
        positions,
        frozenset(reload),
        suppliers,
    )


def _newest_owns(decided: dict[str, CopyReport], candidates: Sequence[str]) -> dict[str, CopyReport]:
    """The candidates with the highest position own, the others are filled from them: what was saved is kept."""
    highest = max((decided[node].position for node in candidates), default=NO_RECORD)
    for node in candidates:
        owns = decided[node].position == highest
        decided[node] = replace(decided[node], state=CopyState.OWNING if owns else CopyState.MOVING)
    return decided
