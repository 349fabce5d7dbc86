"""Changes made by each command on zones, in the order of checks that ``apply_command`` promises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from catalog.core.engine_options import check_engine_options
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import (
    AlterZone,
    Command,
    CreateZone,
    DropZone,
    Name,
    Position,
    ProfileName,
    RenameZone,
    SetDefaultZone,
    ZoneCommand,
    ZoneOption,
)
from catalog.core.names import check_name, check_new_name, is_confusable
from catalog.core.node_filter import FilterError, NodeFilters, may_use
from catalog.core.quorum import default_quorum
from catalog.core.quorum_rules import check_bounds, check_data_nodes, check_kept_quorum, check_stored_quorum
from catalog.core.versions import (
    CatalogEntry,
    CatalogSnapshot,
    Change,
    DefaultZoneEntry,
    EntryKind,
    StatementWarning,
    Surroundings,
    Topology,
    ZoneEntry,
)
from catalog.core.zone import EVERY_NODE, Zone, ZoneId
from catalog.core.zone_options import (
    ZONE_OPTIONS,
    Given,
    ZoneOptionRow,
    check_ranges,
    clause_position,
    named_profiles,
    read_options,
)
from catalog.core.zone_warnings import survives_loss, zone_warnings

DEFAULT_PROFILES = ("default",)


def data_nodes_of(zone: Zone, topology: Topology, filters: NodeFilters) -> tuple[str, ...]:
    """Names of the live nodes that the zone may use, sorted (IEP-012): all its profiles, and its filter."""
    return tuple(sorted(node.name for node in topology if may_use(zone, node, filters)))


def create_zone(snapshot: CatalogSnapshot, command: CreateZone, surroundings: Surroundings) -> Change:
    check_new_name(command.name)
    given = read_options(command)
    implied = tuple(ProfileName(name, command.name.position) for name in DEFAULT_PROFILES)
    profiles = named_profiles(command) or implied
    check_profiles(profiles, surroundings.topology)
    _check_filter(command, given, surroundings)
    check_ranges(command, given)
    if "quorum_size" in given:
        check_bounds(command, given["quorum_size"], given.get("replicas", 1))
    existing = snapshot.zone(command.name.text)
    if existing:
        if command.if_not_exists:
            return nothing(command, existing)
        message = f"zone {existing.name} already exists"
        raise RefusedError(ErrorKind.ZONE_ALREADY_EXISTS, message, command.name.position)
    _check_distinct(snapshot.zones, command.name)
    zone = new_zone(snapshot.next_zone_id, command.name.text, given, surroundings)
    _check_engines(zone, surroundings, profiles[0].position)
    return _written("create", command, None, zone, given, surroundings)


def new_zone(zone_id: ZoneId, name: str, given: Given, surroundings: Surroundings) -> Zone:
    """A zone of these options, with the default of each that is not given (IEP-013, IEP-032)."""
    defaults = {"partitions": surroundings.defaults.partitions, "replicas": 1, "quorum_size": None}
    return Zone(zone_id, name, **{**defaults, "storage_profiles": DEFAULT_PROFILES, **given})


def alter_zone(snapshot: CatalogSnapshot, command: AlterZone, surroundings: Surroundings) -> Change:
    check_name(command.name)
    given = read_options(command)
    _check_filter(command, given, surroundings)
    check_ranges(command, given)
    zone = snapshot.zone(command.name.text)
    if zone is None:
        return _missing(command, command.if_exists)
    replicas = given.get("replicas", zone.replicas)
    if "quorum_size" in given:
        check_bounds(command, given["quorum_size"], replicas)
    elif zone.quorum_size is not None:
        check_stored_quorum(command, zone.quorum_size, replicas)
    change = _written("alter", command, zone, replace(zone, **given), given, surroundings)
    if not has_twin(snapshot, zone):
        return change
    message = f'another zone\'s name differs from "{zone.name}" by case only: rename one of them'
    return replace(change, warnings=(*change.warnings, StatementWarning("NAME_CONFUSABLE", message)))


def rename_zone(snapshot: CatalogSnapshot, command: RenameZone) -> Change:
    """Source looked up first, then the target must be free: also its own name is taken."""
    check_name(command.name)
    check_new_name(command.new_name)
    zone = snapshot.zone(command.name.text)
    if zone is None:
        return _missing(command, command.if_exists)
    if snapshot.zone(command.new_name.text):
        message = f"zone {command.new_name.text} already exists"
        raise RefusedError(ErrorKind.ZONE_ALREADY_EXISTS, message, command.new_name.position)
    _check_distinct((other for other in snapshot.zones if other is not zone), command.new_name)
    renamed = replace(zone, name=command.new_name.text)
    effect = {"op": "rename", "zone": zone.name, "new_name": renamed.name}
    return applied(command, effect, ZoneEntry(EntryKind.WRITTEN, renamed), zone)


def set_default_zone(snapshot: CatalogSnapshot, command: SetDefaultZone) -> Change:
    check_name(command.name)
    zone = snapshot.zone(command.name.text)
    if zone is None:
        return _missing(command, command.if_exists)
    if zone.zone_id == snapshot.default_zone_id:
        return nothing(command, zone)
    return applied(command, {"op": "set_default", "zone": zone.name}, DefaultZoneEntry(zone.zone_id), zone)


def drop_zone(snapshot: CatalogSnapshot, command: DropZone) -> Change:
    """Refused for the default zone, and for one that has tables; IF EXISTS helps neither."""
    check_name(command.name)
    zone = snapshot.zone(command.name.text)
    if zone is None:
        return _missing(command, command.if_exists)
    if zone.zone_id == snapshot.default_zone_id:
        message = f"zone {zone.name} is the default zone: make another zone the default first, with SET DEFAULT"
        raise RefusedError(ErrorKind.DEFAULT_ZONE_PROTECTED, message, command.name.position)
    tables = snapshot.tables_in(zone)
    if tables:
        others = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
        message = f"table {tables[0].name}{others} is stored in zone {zone.name}: drop its tables first"
        raise RefusedError(ErrorKind.ZONE_IN_USE, message, command.name.position)
    return applied(command, {"op": "drop", "zone": zone.name}, ZoneEntry(EntryKind.DROPPED, zone), zone)


def zone_params(zone: Zone, quorum: int, options: Iterable[ZoneOptionRow] = ZONE_OPTIONS) -> dict[str, Any]:
    """Every option of the zone. ``quorum_size`` is the effective one: what the zone runs with (IEP-015). A
    rebalance strategy and a loss policy are named where the zone has its own."""
    effective = replace(zone, quorum_size=quorum)
    values = ((row.name.lower(), getattr(effective, row.field)) for row in options)
    return {name: _json(value) for name, value in values if value is not None}


def _json(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value


def effective_quorum(zone: Zone, data_nodes: Sequence[str]) -> int:
    """The explicit quorum, else the one that follows from replicas and data nodes (decision 1)."""
    derived = default_quorum(zone.replicas, len(data_nodes))
    return derived if zone.quorum_size is None else zone.quorum_size


def applied(command: Command, effect: dict[str, Any], entry: CatalogEntry, before: Zone) -> Change:
    """A change that adds one entry. ``before``: the zone around it."""
    return Change(command, applied=True, effect=effect, entries=(entry,), before=before)


def nothing(command: Command, zone: Zone | None) -> Change:
    return Change(command, applied=False, effect={"op": "noop"}, before=zone)


def check_profiles(names: tuple[ProfileName, ...], topology: Topology) -> None:
    """Each profile must be on at least one live node."""
    known = sorted({profile for node in topology for profile in node.profiles})
    for name in names:
        if name.text not in known:
            there = f"they have {', '.join(known)}" if known else "no node is alive"
            message = f"no live node has the storage profile '{name.text}'; {there}"
            raise RefusedError(ErrorKind.STORAGE_PROFILE_UNKNOWN, message, name.position)


def _check_engines(zone: Zone, surroundings: Surroundings, position: Position | None) -> None:
    """All members of a group are kept by one engine, so the zone's profiles are, on each node of it."""
    kept: dict[str, list[str]] = {}
    for node in surroundings.topology:
        if may_use(zone, node, surroundings.filters):
            for profile in zone.storage_profiles:
                kept.setdefault(node.engine(profile), []).append(f"'{profile}' on {node.name}")
    if len(kept) > 1:
        engines = "; ".join(f"{engine} keeps {', '.join(places)}" for engine, places in sorted(kept.items()))
        message = f"one engine must serve a zone's profiles on all of its nodes, but {engines}"
        raise RefusedError(ErrorKind.STORAGE_PROFILE_ENGINES, message, position)


def has_twin(snapshot: CatalogSnapshot, zone: Zone) -> bool:
    """Check for another zone whose name differs by case only; such were made before that was refused."""
    return any(is_confusable(zone.name, other.name) for other in snapshot.zones)


def _check_distinct(zones: Iterable[Zone], name: Name) -> None:
    """Raises RefusedError (NAME_CONFUSABLE)."""
    twin = next((zone for zone in zones if is_confusable(name.text, zone.name)), None)
    if twin is not None:
        message = f'"{name.text}" differs from the name of zone "{twin.name}" by case only'
        raise RefusedError(ErrorKind.NAME_CONFUSABLE, message, name.position)


def missing_zone(name: Name) -> RefusedError:
    return RefusedError(ErrorKind.ZONE_NOT_FOUND, f"zone {name.text} does not exist", name.position)


def _missing(command: ZoneCommand, allowed: bool) -> Change:
    if allowed:
        return nothing(command, None)
    raise missing_zone(command.name)


def _check_filter(command: CreateZone | AlterZone, given: Given, surroundings: Surroundings) -> None:
    """A filter that a statement names must be one, and match a live node now."""
    expression = given.get("nodes_filter")
    if expression is None:
        return
    position = clause_position(command, ZoneOption.NODES_FILTER)
    filters, topology = surroundings.filters, surroundings.topology
    try:
        # Asked also where no node is alive: a text that is no filter is refused whatever lives.
        filters.negated_attributes(expression)
        matching = [node for node in topology if filters.matches(expression, node)]
    except FilterError as error:
        message = f"NODES FILTER is not a JSONPath filter: {error}"
        raise RefusedError(ErrorKind.FILTER_INVALID, message, position) from error
    if not matching:
        there = f"none of the {len(topology)} live nodes" if topology else "no node is alive, so none"
        message = f"{there} matches the filter {expression}; {EVERY_NODE} matches every node"
        raise RefusedError(ErrorKind.FILTER_MATCHES_NO_NODE, message, position)


def _written(
    op: str,
    command: CreateZone | AlterZone,
    before: Zone | None,
    zone: Zone,
    given: Given,
    surroundings: Surroundings,
) -> Change:
    check_engine_options(command, zone, surroundings.topology)
    data_nodes = data_nodes_of(zone, surroundings.topology, surroundings.filters)
    if "quorum_size" in given:
        check_data_nodes(command, given["quorum_size"], len(data_nodes))
    was = () if before is None else data_nodes_of(before, surroundings.topology, surroundings.filters)
    if isinstance(command, AlterZone) and zone.quorum_size is not None:
        check_kept_quorum(command, zone.quorum_size, len(was), len(data_nodes))
    quorum = effective_quorum(zone, data_nodes)
    stood_loss = before is not None and survives_loss(before, effective_quorum(before, was), len(was))
    return Change(
        command=command,
        applied=True,
        effect={"op": op, "zone": zone.name, "params": zone_params(zone, quorum)},
        entries=() if zone == before else (ZoneEntry(EntryKind.WRITTEN, zone),),
        before=before,
        after=zone,
        data_nodes=data_nodes,
        quorum=quorum,
        warnings=zone_warnings(zone, given, data_nodes, surroundings, quorum, stood_loss=stood_loss),
    )
