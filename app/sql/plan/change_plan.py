"""Plan of what a script would change and move, under an id that names all that it was computed from.

Nothing of a plan is stored: a client that has its id and its statements can ask any server whether the same
plan would still come out, and have it carried out only then.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.security.statement_policy import only_zones
from app.sql.plan.explain import explain_change, plan_row
from app.sql.plan.forecast import Outlook, PlannedStatement, changed_zone, forecast
from app.sql.statements.results import ResultSet, shown_warnings
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import Command, PrincipalCommand
from catalog.core.snapshot import Change
from catalog.core.zone import ZoneId
from catalog.ports import VersionRecord

EFFECTS_MAX = 50
"""Plans of more statements do not say what each moves."""
SHOWN_MAX = 3
_PLAN_ID = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})-([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class PlanId:
    """All that a plan was computed from. ``data_nodes_revision``: the highest of the topology and of the data
    nodes of the zones concerned; ``target_revision``: the highest at which one of their targets was named; 0:
    none. ``digest`` is of the changes themselves."""

    catalog_version: int
    data_nodes_revision: int
    target_revision: int
    digest: str

    def __str__(self) -> str:
        return f"{self.catalog_version}-{self.data_nodes_revision}-{self.target_revision}-{self.digest}"

    @classmethod
    def parse(cls, text: str) -> PlanId:
        """Raises RefusedError (INVALID_REQUEST)."""
        match = _PLAN_ID.fullmatch(text)
        if match is None:
            message = (
                f"{text[:80]!r} is no plan's id: `plan` and EXPLAIN show those, as 12-340-355-9f3a2c41b07e"
            )
            raise RefusedError(ErrorKind.INVALID_REQUEST, message)
        return cls(int(match[1]), int(match[2]), int(match[3]), match[4])

    @classmethod
    def of(cls, content: object, zones: Iterable[ZoneId], snapshot: SystemSnapshot) -> PlanId:
        """Make the id of a plan. ``content``: the change, of which the ``repr`` counts; ``zones``: those
        concerned."""
        keyspace, zones = snapshot.keyspace, tuple(zones)

        def newest(*names: str) -> int:
            items = (snapshot.keys.get(name) for name in names)
            return max((item.mod_revision for item in items if item is not None), default=0)

        return cls(
            snapshot.catalog.version,
            newest(keyspace.topology, *map(keyspace.data_nodes, zones)),
            newest(*map(keyspace.target_pointer, zones)),
            hashlib.sha256(repr(content).encode(errors="surrogatepass")).hexdigest()[:12],
        )


def check_plannable(commands: Iterable[Command]) -> None:
    """Raises RefusedError (STATEMENT_NOT_SUPPORTED) for a statement that moves nothing, whatever there is."""
    for at, command in enumerate(commands, start=1):
        if isinstance(command, PrincipalCommand):
            message = "EXPLAIN and plans are of zones and tables: users, roles and grants move no data"
            error = RefusedError(ErrorKind.STATEMENT_NOT_SUPPORTED, message, command.position)
            error.statement = at
            raise error


def plan_id_of(changes: Sequence[Change], snapshot: SystemSnapshot) -> PlanId:
    """Id of a plan of statements that would make these changes."""
    targets = [target for target in map(changed_zone, changes) if target is not None]
    zones = {zone.zone_id for target in targets for zone in (target.before, target.after) if zone is not None}
    return PlanId.of([change.entries for change in changes], zones, snapshot)


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """``effects`` are what EXPLAIN shows of each statement; empty for a plan of too many."""

    plan_id: PlanId
    statements: tuple[PlannedStatement, ...]
    effects: tuple[ResultSet, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            **self.basis_json(),
            "changes": [
                {
                    **_summary(statement),
                    "sql": statement.sql,
                    "differences": [],
                    "effects": effects,
                    "warnings": shown_warnings(statement.change.warnings),
                }
                for statement, effects in zip(self.statements, self.effects_json(), strict=True)
            ],
            "conflicts": [],
            "unmanaged": [],
        }

    def basis_json(self) -> dict[str, Any]:
        """Fields of JSON that name the plan and what it was computed from."""
        basis = asdict(self.plan_id)
        del basis["digest"]
        return {"plan_id": str(self.plan_id), **basis}

    def effects_json(self) -> list[list[dict[str, Any]] | None]:
        """Rows of EXPLAIN as objects, for each statement; None for each where the plan has no ``effects``."""
        if not self.effects:
            return [None] * len(self.statements)
        return [
            [
                {column.name.lower(): value for column, value in zip(effect.columns, row, strict=True)}
                for row in effect.rows
            ]
            for effect in self.effects
        ]


def plan_of(statements: Sequence[PlannedStatement], snapshot: SystemSnapshot) -> ChangePlan:
    """``snapshot`` is of the catalog's version that the first statement was judged on."""
    effects: tuple[ResultSet, ...] = ()
    if len(statements) <= EFFECTS_MAX:
        effects = tuple(_effects(statements, snapshot))
    plan_id = plan_id_of([statement.change for statement in statements], snapshot)
    return ChangePlan(plan_id, tuple(statements), effects)


def _effects(statements: Sequence[PlannedStatement], snapshot: SystemSnapshot) -> Iterator[ResultSet]:
    """Each statement after what the ones before it would have made."""
    outlook = Outlook(snapshot)
    for statement in statements:
        target = changed_zone(statement.change)
        forecasts = forecast(outlook, [target]) if target is not None else ()
        yield explain_change(statement.change, forecasts[0] if forecasts else None, outlook.snapshot)
        catalog = statement.before.after(statement.change.entries)
        if snapshot.seen is not None:
            made = {one.zone.zone_id for one in forecasts}
            catalog = only_zones(catalog, (z for z in catalog.zones if z.zone_id in snapshot.seen | made))
        outlook = outlook.after(forecasts, catalog)


def explained(plan: ChangePlan) -> ResultSet:
    """The answer to EXPLAIN of one statement, with the plan's id as its last row if anything is to be done."""
    (effects,), (statement,) = plan.effects, plan.statements
    rows = (*effects.rows, plan_row(str(plan.plan_id))) if statement.change.entries else effects.rows
    return replace(effects, rows=rows, catalog_version=plan.plan_id.catalog_version)


def refuse_version(planned: PlanId, now: int, history: Sequence[VersionRecord]) -> None:
    """Raises RefusedError (PLAN_CHANGED) with the statements of ``history`` (up to ``now``) in between."""
    if planned.catalog_version == now:
        return
    between = [record.statement for record in history if record.version > planned.catalog_version]
    shown = "; ".join(" ".join(statement.split())[:80] for statement in between[:SHOWN_MAX])
    more = f" and {len(between) - SHOWN_MAX} more" if len(between) > SHOWN_MAX else ""
    by = f", by {shown}{more}" if between else ""
    raise _changed(planned, [f"the catalog is at version {now}, not {planned.catalog_version} any more{by}"])


def refuse_other(planned: PlanId, now: PlanId | None) -> None:
    """Raises RefusedError (PLAN_CHANGED) when the plan as it comes out now is another one. None: nothing is to
    be done."""
    if now is None:
        raise _changed(planned, ["there is nothing to change"])
    if now != planned:
        raise _changed(planned, list(_differences(planned, now)))


def _differences(planned: PlanId, now: PlanId) -> Iterator[str]:
    if planned.catalog_version != now.catalog_version:
        yield f"the catalog is at version {now.catalog_version}, not {planned.catalog_version} any more"
    if planned.data_nodes_revision != now.data_nodes_revision:
        yield (
            f"data nodes changed at revision {now.data_nodes_revision}, "
            f"the plan knows {planned.data_nodes_revision}"
        )
    if planned.target_revision != now.target_revision:
        yield f"a target was named at revision {now.target_revision}, the plan knows {planned.target_revision}"
    if planned.digest != now.digest:
        yield "the statements come to another change than the planned one"


def _changed(planned: PlanId, changed: Sequence[str]) -> RefusedError:
    message = f"plan {planned} has changed: {'; '.join(changed)}; nothing was changed"
    return RefusedError(ErrorKind.PLAN_CHANGED, message)


def _summary(statement: PlannedStatement) -> dict[str, str]:
    """Action, kind and name, as the catalog's own account of the change has them."""
    effect = statement.change.effect
    operation = str(effect.get("op", ""))
    actions = ("create", "drop", "noop")
    action = next((word for word in actions if operation.startswith(word)), "change")
    kind = "table" if operation.endswith("table") else "zone"
    return {"action": action, "kind": kind, "name": str(effect.get(kind) or effect.get("zone") or "")}
