"""Options of zones that not every storage engine has: one table, and the refusal where the engine is known.

A profile's engine is known only where nodes have it. So a statement is checked against the nodes that live, and
a node whose engine lacks an option of the zone is none of its data nodes (``catalog.core.node_filter``): a zone
that was created before its first node came waits, and names the cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import AlterZone, CreateZone, ZoneOption
from catalog.core.zone import STORE_ENGINE, ConsistencyMode, Node, Zone, zone_engine
from catalog.core.zone_options import ROWS, clause_position


@dataclass(frozen=True, slots=True)
class EngineOption:
    """``value``: the one that is meant, None: any that is set. ``only``: the engine that has it; empty: all but
    ``never``. ``instead``: what is accepted."""

    option: ZoneOption
    value: object
    instead: str
    only: str = ""
    never: str = ""

    def is_lacking(self, zone: Zone, engine: str) -> bool:
        value = getattr(zone, ROWS[self.option].field)
        is_set = value is not None if self.value is None else value is self.value
        return is_set and (engine != self.only if self.only else engine == self.never)

    @property
    def text(self) -> str:
        value = getattr(self.value, "value", "")
        return f"{self.option.value} '{value}'" if value else self.option.value


ENGINE_OPTIONS = (
    EngineOption(
        ZoneOption.PARTITION_LOSS_POLICY,
        None,
        f"a storage profile of the engine {STORE_ENGINE}, or no such option",
        only=STORE_ENGINE,
    ),
    EngineOption(
        ZoneOption.CONSISTENCY_MODE,
        ConsistencyMode.HIGH_AVAILABILITY,
        f"'{ConsistencyMode.STRONG_CONSISTENCY.value}'",
        never=STORE_ENGINE,
    ),
)


def lacking_option(zone: Zone, engines: Iterable[str]) -> EngineOption | None:
    """The first option of the zone that one of the engines does not have."""
    known = tuple(engines)
    return next((row for row in ENGINE_OPTIONS if any(row.is_lacking(zone, name) for name in known)), None)


def has_options(zone: Zone, node: Node) -> bool:
    """Check that what keeps the zone's profiles on the node has all of the zone's options."""
    return lacking_option(zone, map(node.engine, zone.storage_profiles)) is None


def option_in_the_way(zone: Zone, nodes: Iterable[Node]) -> str:
    """Return why living ``nodes`` that hold a zone's profiles keep no data of it; empty: no option is the
    reason."""
    engines = (
        node.engine(name)
        for node in nodes
        if node.holds_profiles(zone.storage_profiles)
        for name in zone.storage_profiles
    )
    lack = lacking_option(zone, engines)
    return "" if lack is None else f"{ErrorKind.ENGINE_UNSUPPORTED.name}: {lack.text}"


def check_engine_options(command: CreateZone | AlterZone, zone: Zone, topology: Iterable[Node]) -> None:
    """Raises RefusedError for an option of the statement that the engine of ``zone`` does not have, as far as
    living nodes tell which that is."""
    engine = zone_engine(zone, topology)
    lack = lacking_option(zone, (engine,)) if engine else None
    if lack is not None and any(clause.option is lack.option for clause in command.options):
        message = f"the engine {engine} of zone {zone.name} has no {lack.text}; accepted: {lack.instead}"
        position = clause_position(command, lack.option)
        raise RefusedError(ErrorKind.ENGINE_UNSUPPORTED, message, position)
