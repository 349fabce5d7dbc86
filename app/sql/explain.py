"""``EXPLAIN <ddl>``: what a statement would change, computed and not done.

The parameters come from the same judge as the statement's, the placement from the same kernel as the
controllers' local engine. Nothing is written anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.sql.results import ColumnType, ResultSet
from app.sql.show import replicas_text, result
from app.sql.view_snapshot import SystemSnapshot
from catalog.core.snapshot import Change
from catalog.core.zone import TIMER_OFF, DistributionAlgorithm, Zone, ZoneIntent
from catalog.core.zone_options import strategy_text
from catalog.filters.json_path import JSON_PATH
from rebalance.controllers.targets import matrix_of
from rebalance.core.data_nodes import DataNodes, compute_data_nodes, replica_counts
from rebalance.core.readable import RecordNotReadableError, read, readable
from rebalance.core.target import StoredTarget, TargetPointer, surplus_of_others
from rebalance.kernels.assessment import renumbered
from rebalance.kernels.transfers import NOBODY, totals, transfers
from rebalance.ports.placement import PlacementRequest, PreviousPlacement
from spark.batch import place_locally
from spark.errors import PlacementError

NONE, LEARNER, VOTER = 0, 1, 2
SECTIONS = ("MOVE", "ADD", "REMOVE")
ROLES = ("none", "LEARNER", "VOTER")
ROLE_NOTE = "replicas that change their role; each is a new copy on its node"

COLUMNS = {
    "SECTION": ColumnType.VARCHAR,
    "NAME": ColumnType.VARCHAR,
    "BEFORE": ColumnType.VARCHAR,
    "AFTER": ColumnType.VARCHAR,
    "REPLICAS": ColumnType.BIGINT,
    "BYTES": ColumnType.BIGINT,
    "NOTE": ColumnType.VARCHAR,
}

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Who holds a zone: ``matrix`` int32 [P, R], indexes into ``nodes``; the first ``voters`` columns vote."""

    nodes: tuple[str, ...]
    matrix: npt.NDArray[np.int32]
    voters: int

    def roles(self, names: tuple[str, ...], partitions: int) -> npt.NDArray[np.int8]:
        """NONE, LEARNER or VOTER for each partition and each of ``names``: int8 [partitions, names]."""
        roles = np.zeros((partitions, len(names)), dtype=np.int8)
        if not self.matrix.size:
            return roles
        places = np.array([names.index(name) for name in self.nodes], dtype=np.int64)
        rows = np.arange(len(self.matrix))
        for column in range(self.matrix.shape[1]):
            roles[rows, places[self.matrix[:, column]]] = VOTER if column < max(1, self.voters) else LEARNER
        return roles

    def numbered(self, names: tuple[str, ...], partitions: int) -> npt.NDArray[np.int32]:
        """The matrix as indexes into ``names``: int32 [partitions, R], R = 0 for a zone without replicas."""
        if not self.matrix.size:
            return np.zeros((partitions, 0), dtype=np.int32)
        return renumbered(self.nodes, self.matrix, names)

    def primaries(self) -> Counter[str]:
        """Preferred primaries by node."""
        if not self.matrix.size:
            return Counter()
        counts = np.bincount(self.matrix[:, 0], minlength=len(self.nodes))
        return Counter({name: int(count) for name, count in zip(self.nodes, counts, strict=True)})


NOWHERE = Placement((), np.zeros((0, 0), dtype=np.int32), 0)


def explain_change(change: Change, snapshot: SystemSnapshot) -> ResultSet:
    """Rows by SECTION: STATEMENT, PARAMETER, DATA_NODES, MOVE, ADD, REMOVE, ROLE, BALANCE, NOTE; EXPLAIN
    ends with PLAN."""
    rows = [_row("STATEMENT", str(change.effect.get("op", "")), note=_summary(change))]
    if change.entries:
        rows += _of_zone(change, snapshot)
    answer = result(COLUMNS, rows)
    return ResultSet(columns=answer.columns, rows=answer.rows, warnings=change.warnings)


def plan_row(plan_id: str) -> Row:
    return _row("PLAN", plan_id, note="`zonectl apply --plan-id` does exactly this, or says what changed")


def _summary(change: Change) -> str:
    if not change.applied:
        return "changes nothing: IF [NOT] EXISTS has nothing to do"
    if not change.entries:
        return "changes nothing: the zone is like this already"
    return "would make a new catalog version; nothing was changed now"


def _of_zone(change: Change, snapshot: SystemSnapshot) -> Iterator[Row]:
    before, after = change.before, change.after
    stored = snapshot.data_nodes(before.zone_id) if before is not None else None
    wanted = None
    if after is not None:
        intent = ZoneIntent(snapshot.catalog.version + 1, after)
        wanted = compute_data_nodes(stored, snapshot.presence, intent, JSON_PATH, snapshot.taken_at_ms)
    yield from _parameters(before, after, stored, wanted)
    have, get = (", ".join(each.nodes) if each is not None else None for each in (stored, wanted))
    yield _row("DATA_NODES", "data nodes", have, get)
    was = stored_placement(before, snapshot) if before is not None else NOWHERE
    try:
        becomes = wanted_placement(after, wanted, was, snapshot) if after is not None else NOWHERE
    except PlacementError as error:
        yield _row("NOTE", "placement", note=str(error))
        return
    if before is not None and was is NOWHERE:
        yield _row("NOTE", "placement", note="the zone as it is now has not been placed yet")
    partitions = max(len(was.matrix), len(becomes.matrix))
    sizes = snapshot.partition_bytes(before) if before is not None else np.zeros(partitions, dtype=np.int64)
    yield from _moves(was, becomes, sizes)
    yield from _balance(was, becomes, stored, wanted)


def _parameters(
    before: Zone | None, after: Zone | None, stored: DataNodes | None, wanted: DataNodes | None
) -> Iterator[Row]:
    old, new = parameters_of(before, stored), parameters_of(after, wanted)
    for name in dict.fromkeys((*old, *new)):
        changed = before is not None and after is not None and old[name] != new[name]
        yield _row("PARAMETER", name, old.get(name), new.get(name), note="changes" if changed else "")


def parameters_of(zone: Zone | None, data_nodes: DataNodes | None) -> Mapping[str, str]:
    """``quorum_size`` is the effective one."""
    if zone is None:
        return {}
    quorum = data_nodes.quorum if data_nodes is not None and zone.quorum_size is None else zone.quorum_size
    return {
        "partitions": str(zone.partitions),
        "replicas": replicas_text(zone),
        "quorum_size": "" if quorum is None else str(quorum),
        "auto_scale_up": "OFF" if zone.auto_scale_up == TIMER_OFF else str(zone.auto_scale_up),
        "auto_scale_down": "OFF" if zone.auto_scale_down == TIMER_OFF else str(zone.auto_scale_down),
        "nodes_filter": zone.nodes_filter,
        "storage_profiles": ", ".join(zone.storage_profiles),
        "consistency_mode": zone.consistency_mode.value,
        "distribution_algorithm": zone.algorithm.value,
        "rebalance_strategy": strategy_text(zone),
    }


def stored_placement(zone: Zone, snapshot: SystemSnapshot) -> Placement:
    """The zone's newest stored target; NOWHERE when there is none yet. Raises RecordNotReadableError."""
    keys, keyspace = snapshot.keys, snapshot.keyspace
    pointer = readable(keys.get(keyspace.target_pointer(zone.zone_id)), TargetPointer.decode)
    if pointer is None:
        return NOWHERE
    below = keys.below(keyspace.target(zone.zone_id, pointer.event_revision))
    try:
        matrix = matrix_of(StoredTarget(pointer, tuple(item.value for item in below)))
    except RecordNotReadableError:
        raise
    except ValueError:
        return NOWHERE
    return Placement(pointer.nodes, matrix, pointer.consensus)


def _other_targets(zone: Zone, snapshot: SystemSnapshot) -> Iterator[TargetPointer]:
    for other in snapshot.catalog.zones:
        found = read(snapshot.keys.get(snapshot.keyspace.target_pointer(other.zone_id)), TargetPointer.decode)
        if isinstance(found, TargetPointer) and other.zone_id != zone.zone_id:
            yield found


def wanted_placement(
    zone: Zone, data_nodes: DataNodes | None, was: Placement, snapshot: SystemSnapshot
) -> Placement:
    """By the kernel, here. Raises PlacementError."""
    if data_nodes is None or not data_nodes.nodes:
        return NOWHERE
    replicas, voters = replica_counts(ZoneIntent(snapshot.catalog.version + 1, zone), data_nodes)
    request = PlacementRequest(
        zone.zone_id,
        data_nodes.nodes,
        zone.partitions,
        replicas,
        voters,
        zone.algorithm.value,
        weights=data_nodes.weights,
        domains=data_nodes.domains,
    )
    if zone.algorithm is DistributionAlgorithm.BALANCED:
        previous = None if was is NOWHERE else PreviousPlacement(was.nodes, was.matrix, was.voters)
        elsewhere = np.array(surplus_of_others(_other_targets(zone, snapshot), data_nodes.nodes))
        request = replace(request, previous=previous, elsewhere=elsewhere)
    (placed,) = place_locally([request])
    return Placement(placed.nodes, placed.matrix, voters)


def _moves(was: Placement, becomes: Placement, sizes: npt.NDArray[np.int64]) -> Iterator[Row]:
    """Replicas and bytes by donor and stealer. ``sizes`` int64 [P] of a copy of each partition, 0: not
    known."""
    partitions = max(len(was.matrix), len(becomes.matrix))
    names = tuple(sorted({*was.nodes, *becomes.nodes}))
    found = transfers(was.numbered(names, partitions), becomes.numbered(names, partitions), sizes)
    total = totals(found)
    columns = (total.donor.tolist(), total.stealer.tolist(), total.replicas.tolist(), total.size.tolist())
    unknown = int(np.count_nonzero((found.size == 0) & (found.stealer != NOBODY)))
    missing = f"; the sizes of {unknown} replicas in all are not known yet" if unknown else ""
    rows = []
    for donor, stealer, count, size in zip(*columns, strict=True):
        if stealer == NOBODY:
            rows.append(_row("REMOVE", names[donor], replicas=count, bytes_=0, note="replicas that end"))
        elif donor == NOBODY:
            note = f"new replicas, copied within their groups{missing}"
            rows.append(_row("ADD", names[stealer], replicas=count, bytes_=size, note=note))
        else:
            name = f"{names[donor]} -> {names[stealer]}"
            rows.append(_row("MOVE", name, replicas=count, bytes_=size, note=missing.removeprefix("; ")))
    yield from sorted(rows, key=lambda row: (SECTIONS.index(row[0]), row[1]))
    old, new = was.roles(names, partitions), becomes.roles(names, partitions)
    changed = (old != new) & (old > NONE) & (new > NONE)
    roles = Counter[tuple[str, int, int]]()
    copied = Counter[tuple[str, int, int]]()
    for p, node in np.argwhere(changed):
        role = names[node], int(old[p, node]), int(new[p, node])
        roles[role] += 1
        copied[role] += int(sizes[p])
    for role, count in sorted(roles.items()):
        name, before, after = role
        yield _row("ROLE", name, ROLES[before], ROLES[after], count, copied[role], ROLE_NOTE)
    if not rows and not roles:
        yield _row("MOVE", "", replicas=0, bytes_=0, note="no replica moves")


def _balance(
    was: Placement, becomes: Placement, stored: DataNodes | None, wanted: DataNodes | None
) -> Iterator[Row]:
    """Per node, then spread (max - min) and standard deviation over the data nodes of each side."""
    old, new = _counts(was, stored), _counts(becomes, wanted)
    for name in sorted({*old, *new}):
        for index, what in enumerate(("replicas", "voters", "primaries")):
            before, after = (str(side[name][index]) if name in side else None for side in (old, new))
            yield _row("BALANCE", f"{name} {what}", before, after)
    for index, what in enumerate(("replicas", "voters", "primaries")):
        for label, measure in (("max-min", np.ptp), ("stddev", np.std)):
            before, after = (
                f"{measure([counts[index] for counts in side.values()]):g}" if side else None
                for side in (old, new)
            )
            yield _row("BALANCE", f"{what} {label}", before, after)


def _counts(placement: Placement, data_nodes: DataNodes | None) -> dict[str, tuple[int, int, int]]:
    """Replicas, voters and primaries of each data node."""
    if data_nodes is None or placement is NOWHERE:
        return {}
    names = tuple(sorted({*placement.nodes, *data_nodes.nodes}))
    roles = placement.roles(names, len(placement.matrix))
    replicas, voters = (roles > NONE).sum(axis=0), (roles == VOTER).sum(axis=0)
    primaries = placement.primaries()
    return {name: (int(replicas[i]), int(voters[i]), primaries[name]) for i, name in enumerate(names)}


def _row(
    section: str,
    name: str,
    before: str | None = None,
    after: str | None = None,
    replicas: int | None = None,
    bytes_: int | None = None,
    note: str = "",
) -> Row:
    return section, name, before, after, replicas, bytes_, note
