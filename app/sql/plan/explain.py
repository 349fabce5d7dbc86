"""``EXPLAIN <ddl>``: what a statement would change, computed and not done.

The parameters come from the same judge as the statement's, what moves from ``app.sql.plan.forecast``. Nothing
is written anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from app.sql.plan.forecast import NOWHERE, Forecast, Placement, changed_zone
from app.sql.statements.results import ResultSet, ResultType
from app.sql.views.show import result
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.snapshot import Change
from catalog.core.zone import Zone
from catalog.core.zone_options import ZONE_OPTIONS, option_text, value_of
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.kernels.transfers import NOBODY, Sizes, Transfers

SECTIONS = ("MOVE", "ADD", "REMOVE")
LEARNER, VOTER = "LEARNER", "VOTER"
ROLE_NOTE = "replicas that change their role; each is copied again on its node"

COLUMNS = {
    "SECTION": ResultType.VARCHAR,
    "NAME": ResultType.VARCHAR,
    "BEFORE": ResultType.VARCHAR,
    "AFTER": ResultType.VARCHAR,
    "REPLICAS": ResultType.BIGINT,
    "BYTES": ResultType.BIGINT,
    "NOTE": ResultType.VARCHAR,
}

Row = tuple[Any, ...]


def explain_change(change: Change, forecast: Forecast | None, snapshot: SystemSnapshot) -> ResultSet:
    """Rows by SECTION, in this order: STATEMENT, NOTE, MOVE, ADD, REMOVE, ROLE, DATA_NODES, PARAMETER (those
    that change first), BALANCE; EXPLAIN ends with PLAN. ``forecast`` is what becomes of the zone that the
    statement writes; None: it writes none."""
    rows = [_row("STATEMENT", str(change.effect.get("op", "")), note=_summary(change))]
    if forecast is not None:
        rows += _of_zone(change, forecast, snapshot)
    elif change.entries:
        rows.append(_nothing_moves())
    answer = result(COLUMNS, rows)
    return ResultSet(columns=answer.columns, rows=answer.rows, warnings=change.warnings)


def plan_row(plan_id: str) -> Row:
    return _row(
        "PLAN", plan_id, note="`zonectl apply --plan-id` applies exactly this plan, or says what has changed"
    )


def _summary(change: Change) -> str:
    if not change.applied:
        return "changes nothing: " + change.warnings[-1].message.partition(": ")[2]
    return "would make a new catalog version; nothing was changed"


def _of_zone(change: Change, forecast: Forecast, snapshot: SystemSnapshot) -> Iterator[Row]:
    target = changed_zone(change)
    assert target is not None
    stored, planned = forecast.before.data_nodes, forecast.after.data_nodes
    if forecast.note:
        yield _row("NOTE", "placement", note=forecast.note)
    if target.before is not None and forecast.before.placement is NOWHERE:
        yield _row("NOTE", "placement", note="the zone has not been placed yet")
    yield from _moves(forecast, snapshot.partition_bytes(forecast.zone))
    have, get = (", ".join(nodes.nodes) if nodes is not None else None for nodes in (stored, planned))
    yield _row("DATA_NODES", "data nodes", have, get)
    parameters = _parameters(target.before, target.after, stored, planned)
    yield from sorted(parameters, key=lambda row: not row[-1])
    yield from _balance(forecast.before.placement, forecast.after.placement, stored, planned)


def _parameters(
    before: Zone | None, after: Zone | None, stored: DataNodes | None, planned: DataNodes | None
) -> Iterator[Row]:
    if before is not None and after is not None and before.name != after.name:
        yield _row("PARAMETER", "name", before.name, after.name, note="changes")
    old, new = parameters_of(before, stored), parameters_of(after, planned)
    for name in dict.fromkeys((*old, *new)):
        changed = before is not None and after is not None and old[name] != new[name]
        yield _row("PARAMETER", name, old.get(name), new.get(name), note="changes" if changed else "")


def parameters_of(zone: Zone | None, data_nodes: DataNodes | None) -> Mapping[str, str]:
    """``quorum_size`` is the effective one."""
    if zone is None:
        return {}
    derived = data_nodes.quorum if data_nodes is not None else None
    effective = replace(zone, quorum_size=derived) if zone.quorum_size is None else zone
    return {row.name.lower(): option_text(row, value_of(effective, row)) for row in ZONE_OPTIONS}


def _moves(forecast: Forecast, sizes: Sizes) -> Iterator[Row]:
    """Replicas and bytes by source and target. ``sizes`` int64 [P] of a copy of each partition, 0: not
    known."""
    transfers = forecast.copies(sizes)
    in_place = (transfers.donor == transfers.stealer) & (transfers.donor != NOBODY)
    unknown = transfers.unknown
    missing = f"the sizes of {unknown} replicas in all are not known yet" if unknown else ""
    rows = []
    for flow in forecast.flows(transfers.only(~in_place)):
        section, name, note = "MOVE", f"{flow.source} -> {flow.target}", missing
        if not flow.target:
            section, name, note = "REMOVE", flow.source, "replicas that end"
        elif not flow.source:
            note = "; ".join(filter(None, ("new replicas, copied within their groups", missing)))
            section, name = "ADD", flow.target
        rows.append(_row(section, name, replicas=flow.replicas, bytes_=flow.bytes_, note=note))
    yield from sorted(rows, key=lambda row: (SECTIONS.index(row[0]), row[1]))
    roles = _roles(forecast, transfers.only(in_place))
    yield from roles
    if not rows and not roles:
        yield _nothing_moves()


def _roles(forecast: Forecast, changed: Transfers) -> list[Row]:
    """By node, and by its role before and after."""
    was = forecast.before.placement
    voting = was.numbered(forecast.names, len(was.matrix))[:, : max(1, was.voters)]
    counts, bytes_ = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for p, node, size in zip(changed.partition, changed.stealer, changed.size.tolist(), strict=True):
        roles = (VOTER, LEARNER) if node in voting[p] else (LEARNER, VOTER)
        key = forecast.names[node], *roles
        counts[key] += 1
        bytes_[key] += size
    return [_row("ROLE", *key, count, bytes_[key], ROLE_NOTE) for key, count in sorted(counts.items())]


def _balance(
    was: Placement, becomes: Placement, stored: DataNodes | None, planned: DataNodes | None
) -> Iterator[Row]:
    """Per node, then spread (max - min) and standard deviation over the data nodes of each side."""
    old, new = _counts(was, stored), _counts(becomes, planned)
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
    shares = placement.shares()
    return {name: shares.get(name, (0, 0, 0)) for name in sorted({*placement.nodes, *data_nodes.nodes})}


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


def _nothing_moves() -> Row:
    return _row("MOVE", "", replicas=0, bytes_=0, note="no replica moves")
