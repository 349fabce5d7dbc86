"""What a script would change and move, under an id that names all that it was computed from.

Nothing of a plan is stored: whoever has its id and its statements can ask any server whether the same plan
would still come out, and have it carried out only then.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.sql.explain import explain_change, plan_row
from app.sql.forecast import Outlook, changed_zone, forecast
from app.sql.results import ResultSet
from app.sql.view_snapshot import SystemSnapshot
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import CatalogSnapshot, Change
from catalog.ports import VersionRecord

EFFECTS_MAX = 50
"""Plans of more statements do not say what each moves."""
SHOWN_MAX = 3
_PLAN_ID = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})-([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class PlanBasis:
    """``data_nodes_revision``: the highest of the topology and of the data nodes of the zones that the plan
    changes; ``target_revision``: the highest at which one of their targets was named; 0: none."""

    catalog_version: int
    data_nodes_revision: int
    target_revision: int


@dataclass(frozen=True, slots=True)
class PlannedStatement:
    """One statement and what it would change of ``before``."""

    sql: str
    before: CatalogSnapshot
    change: Change


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """``effects`` are what EXPLAIN shows of each statement; empty for a plan of too many."""

    basis: PlanBasis
    digest: str
    statements: tuple[PlannedStatement, ...]
    effects: tuple[ResultSet, ...]

    @property
    def plan_id(self) -> str:
        basis = self.basis
        numbers = basis.catalog_version, basis.data_nodes_revision, basis.target_revision
        return "-".join(map(str, (*numbers, self.digest)))

    def to_json(self) -> dict[str, Any]:
        return {
            "plan_id": self.plan_id,
            "catalog_version": self.basis.catalog_version,
            "data_nodes_revision": self.basis.data_nodes_revision,
            "target_revision": self.basis.target_revision,
            "changes": [
                {**_told(each), "sql": each.sql, "differences": [], "effects": effects}
                for each, effects in zip(self.statements, self.effects_json(), strict=True)
            ],
            "conflicts": [],
            "unmanaged": [],
        }

    def effects_json(self) -> list[list[dict[str, Any]] | None]:
        """For each statement the rows of EXPLAIN as objects."""
        if not self.effects:
            return [None] * len(self.statements)
        return [
            [
                {column.name.lower(): value for column, value in zip(found.columns, row, strict=True)}
                for row in found.rows
            ]
            for found in self.effects
        ]


def plan_of(statements: Sequence[PlannedStatement], snapshot: SystemSnapshot) -> ChangePlan:
    """``snapshot`` is of the catalog's version that the first statement was judged on."""
    effects: tuple[ResultSet, ...] = ()
    if len(statements) <= EFFECTS_MAX:
        effects = tuple(_effects(statements, snapshot))
    content = repr([each.change.entries for each in statements])
    digest = hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:12]
    return ChangePlan(_basis(statements, snapshot), digest, tuple(statements), effects)


def _effects(statements: Sequence[PlannedStatement], snapshot: SystemSnapshot) -> Iterator[ResultSet]:
    """Each statement after what the ones before it would have made."""
    outlook = Outlook(snapshot)
    for statement in statements:
        target = changed_zone(statement.change)
        forecasts = forecast(outlook, [target]) if target is not None else ()
        yield explain_change(statement.change, forecasts[0] if forecasts else None, outlook.snapshot)
        outlook = outlook.after(forecasts, statement.before.after(statement.change.entries))


def _basis(statements: Sequence[PlannedStatement], snapshot: SystemSnapshot) -> PlanBasis:
    changes = [each.change for each in statements]
    targets = (changed_zone(each) for each in changes)
    zones = {zone.zone_id for each in targets if each for zone in (each.before, each.after) if zone is not None}
    keyspace = snapshot.keyspace

    def newest(*names: str) -> int:
        found = (snapshot.keys.get(name) for name in names)
        return max((item.mod_revision for item in found if item is not None), default=0)

    return PlanBasis(
        snapshot.catalog.version,
        newest(keyspace.topology, *map(keyspace.data_nodes, zones)),
        newest(*map(keyspace.target_pointer, zones)),
    )


def explained(plan: ChangePlan) -> ResultSet:
    """The answer to EXPLAIN of one statement, with the plan's id as its last row if anything is to be done."""
    (found,), (statement,) = plan.effects, plan.statements
    rows = (*found.rows, plan_row(plan.plan_id)) if statement.change.entries else found.rows
    return replace(found, rows=rows, catalog_version=plan.basis.catalog_version)


def parse_plan_id(text: str) -> tuple[PlanBasis, str]:
    """The basis and the digest. Raises RefusedError (INVALID_REQUEST)."""
    match = _PLAN_ID.fullmatch(text)
    if match is None:
        message = f"{text[:80]!r} is no plan's id: `plan` and EXPLAIN show those, as 12-340-355-9f3a2c41b07e"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    return PlanBasis(int(match[1]), int(match[2]), int(match[3])), match[4]


def refuse_version(plan_id: str, asked: PlanBasis, now: int, history: Sequence[VersionRecord]) -> None:
    """Raises RefusedError (PLAN_CHANGED) with the statements of ``history`` (up to ``now``) in between."""
    if asked.catalog_version == now:
        return
    between = [each.statement for each in history if each.version > asked.catalog_version]
    shown = "; ".join(" ".join(each.split())[:80] for each in between[:SHOWN_MAX])
    more = f" and {len(between) - SHOWN_MAX} more" if len(between) > SHOWN_MAX else ""
    by = f", by {shown}{more}" if between else ""
    raise _changed(plan_id, [f"the catalog is at version {now}, not {asked.catalog_version} any more{by}"])


def refuse_other(plan_id: str, plan: ChangePlan | None) -> None:
    """Raises RefusedError (PLAN_CHANGED) when ``plan``, as it comes out now, is not the one of the id. None:
    nothing is to be done."""
    asked, digest = parse_plan_id(plan_id)
    if plan is None:
        raise _changed(plan_id, ["there is nothing to change"])
    changed = list(_differences(asked, plan.basis))
    if digest != plan.digest:
        changed.append("the statements come to another change than the planned one")
    if changed:
        raise _changed(plan_id, changed)


def _differences(asked: PlanBasis, now: PlanBasis) -> Iterator[str]:
    if asked.catalog_version != now.catalog_version:
        yield f"the catalog is at version {now.catalog_version}, not {asked.catalog_version} any more"
    if asked.data_nodes_revision != now.data_nodes_revision:
        yield (
            f"data nodes changed at revision {now.data_nodes_revision}, "
            f"the plan knows {asked.data_nodes_revision}"
        )
    if asked.target_revision != now.target_revision:
        yield f"a target was named at revision {now.target_revision}, the plan knows {asked.target_revision}"


def _changed(plan_id: str, changed: Sequence[str]) -> RefusedError:
    message = f"plan {plan_id} would not come out any more: {'; '.join(changed)}; nothing was changed"
    return RefusedError(ErrorKind.PLAN_CHANGED, message)


def _told(statement: PlannedStatement) -> dict[str, str]:
    """Action, kind and name, as the catalog's own account of the change has them."""
    effect = statement.change.effect
    operation = str(effect.get("op", ""))
    actions = ("create", "drop", "noop")
    action = next((each for each in actions if operation.startswith(each)), "change")
    kind = "table" if operation.endswith("table") else "zone"
    return {"action": action, "kind": kind, "name": str(effect.get(kind) or effect.get("zone") or "")}
