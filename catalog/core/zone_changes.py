"""Changes made by each command on zones, in the order of checks that ``apply_command`` promises.

Each conflict of a QUORUM SIZE has a code of its own (IEP-022..026; decisions 1-3). A zone that is accepted may
have warnings, on whose names programs can rely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

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
from catalog.core.quorum import ALL_REPLICAS, consensus_size, default_quorum, majority, quorum_bounds
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
from catalog.core.zone import EVERY_NODE, STORE_ENGINE, Node, Zone, ZoneId, zone_engine
from catalog.core.zone_options import (
    ZONE_OPTIONS,
    FilterError,
    Given,
    NodeFilters,
    ZoneOptionRow,
    check_engine_options,
    check_ranges,
    clause_position,
    may_use,
    named_profiles,
    read_options,
    shown_value,
)


def shown_replicas(replicas: int) -> str:
    return "ALL" if replicas == ALL_REPLICAS else str(replicas)


def check_bounds(command: CreateZone | AlterZone, quorum: int, replicas: int) -> None:
    """An explicit quorum against the declared replicas: raised, never clamped."""
    lowest, highest = quorum_bounds(replicas)
    if lowest <= quorum <= highest:
        return
    bounds = str(lowest) if lowest == highest else f"from {lowest} to {highest}"
    written = shown_value(command, ZoneOption.QUORUM_SIZE, quorum)
    message = f"with REPLICAS {shown_replicas(replicas)} QUORUM SIZE must be {bounds}, not {written}"
    kind = ErrorKind.QUORUM_BELOW_MINIMUM if quorum < lowest else ErrorKind.QUORUM_ABOVE_MAXIMUM
    raise RefusedError(kind, message, clause_position(command, ZoneOption.QUORUM_SIZE))


def check_stored_quorum(command: AlterZone, stored: int, replicas: int) -> None:
    """An ALTER of REPLICAS alone must leave the zone's explicit quorum within its bounds (decision 3)."""
    lowest, highest = quorum_bounds(replicas)
    if lowest <= stored <= highest:
        return
    bounds = str(lowest) if lowest == highest else f"from {lowest} to {highest}"
    message = (
        f"the zone has QUORUM SIZE {stored}, and REPLICAS {shown_replicas(replicas)} allows {bounds}: "
        f"alter both, as in SET (REPLICAS {shown_replicas(replicas)}, QUORUM SIZE {lowest})"
    )
    position = clause_position(command, ZoneOption.REPLICAS)
    raise RefusedError(ErrorKind.QUORUM_CONFLICTS_WITH_REPLICAS, message, position)


def check_data_nodes(command: CreateZone | AlterZone, quorum: int, data_nodes: int) -> None:
    """A quorum that a statement names must be possible now (IEP-025).

    So must the zone's own, when the statement leaves it fewer nodes: ``check_kept_quorum``. Nodes that leave
    later override a stored quorum, and never refuse a statement about something else (IEP-061).
    """
    if quorum <= data_nodes:
        return
    message = f"QUORUM SIZE {quorum} needs {quorum} data nodes, but {_matching(data_nodes)} now"
    position = clause_position(command, ZoneOption.QUORUM_SIZE)
    raise RefusedError(ErrorKind.QUORUM_EXCEEDS_DATA_NODES, message, position)


def check_kept_quorum(command: AlterZone, quorum: int, before: int, after: int) -> None:
    """An ALTER that does not name the zone's explicit ``quorum`` leaves it possible: of ``before`` data nodes
    with the options until now, ``after`` match."""
    if quorum <= after or before <= after:
        return
    message = (
        f"the zone has QUORUM SIZE {quorum}, which needs {quorum} data nodes, but {_matching(after)} then "
        f"and {before} now: alter QUORUM SIZE as well, or match more nodes"
    )
    position = clause_position(command, ZoneOption.NODES_FILTER)
    raise RefusedError(ErrorKind.QUORUM_EXCEEDS_DATA_NODES, message, position)


def _matching(data_nodes: int) -> str:
    return "1 data node matches" if data_nodes == 1 else f"{data_nodes} data nodes match"


NAMES_SHOWN_MAX = 5


OF_REPLICAS = ("replicas", "quorum_size", "nodes_filter")
"""Options that say how many replicas there are, and how many of them vote."""


def zone_warnings(
    zone: Zone,
    given: Given,
    data_nodes: tuple[str, ...],
    surroundings: Surroundings,
    quorum: int,
    *,
    stood_loss: bool,
) -> tuple[StatementWarning, ...]:
    """The warnings of one CREATE or ALTER, only about what the statement itself says. ``quorum``: the zone's
    effective one. ``stood_loss``: until now a partition had a majority after the loss of one node."""
    about_replicas = any(option in given for option in OF_REPLICAS)
    engine = zone_engine(zone, surroundings.topology)
    return tuple(
        warning
        for warning in (
            _fewer_nodes(zone, len(data_nodes)) if about_replicas else None,
            _no_majority_after_loss(zone, quorum, len(data_nodes), stood_loss)
            if about_replicas and engine != STORE_ENGINE
            else None,
            _no_data_nodes(zone, data_nodes, surroundings.topology),
            _negative_filter(given.get("nodes_filter"), surroundings.topology, surroundings.filters),
        )
        if warning
    )


def survives_loss(zone: Zone, quorum: int, data_nodes: int) -> bool:
    """Check that a partition still has a majority when one of its voters is gone."""
    voters = consensus_size(quorum, zone.replicas, data_nodes)
    return voters - 1 >= majority(voters)


def _no_majority_after_loss(
    zone: Zone, quorum: int, data_nodes: int, stood_loss: bool
) -> StatementWarning | None:
    """One replica is what a zone is created with, and asks for no such thing."""
    if not data_nodes or survives_loss(zone, quorum, data_nodes) or (zone.replicas == 1 and not stood_loss):
        return None
    voters = consensus_size(quorum, zone.replicas, data_nodes)
    voting = "1 replica votes" if voters == 1 else f"{voters} replicas vote"
    message = f"in each partition {voting}: without one of them it has no majority, and takes no writes"
    return StatementWarning("NO_MAJORITY_AFTER_LOSS", message)


def _fewer_nodes(zone: Zone, data_nodes: int) -> StatementWarning | None:
    if zone.all_replicas or zone.replicas <= data_nodes:
        return None
    nodes = "node matches" if data_nodes == 1 else "nodes match"
    message = (
        f"REPLICAS {zone.replicas}, but {data_nodes} data {nodes} now: "
        f"each partition has {data_nodes} replicas until more nodes join"
    )
    return StatementWarning("REPLICAS_ABOVE_DATA_NODES", message)


def _no_data_nodes(zone: Zone, data_nodes: tuple[str, ...], topology: Topology) -> StatementWarning | None:
    """Each profile is somewhere and the filter matches somewhere, but on no node all of it."""
    if data_nodes or not topology:
        return None
    message = (
        f"no live node has all of the profiles {', '.join(zone.storage_profiles)} and matches the filter: "
        f"zone {zone.name} has no data node until one joins"
    )
    return StatementWarning("NO_DATA_NODES", message)


def _negative_filter(
    expression: str | None, topology: Topology, filters: NodeFilters
) -> StatementWarning | None:
    """A comparison as ``@.region != 'US'`` is true of a node that has no region at all."""
    if expression is None:
        return None
    for attribute in filters.negated_attributes(expression):
        if not any(filters.matches(expression, node) for node in _without(attribute, topology)):
            continue
        lacking = [node.name for node in topology if attribute not in dict(node.attributes)]
        matched = [node.name for node in topology if node.name in lacking and filters.matches(expression, node)]
        names = ", ".join(matched[:NAMES_SHOWN_MAX]) + (", ..." if len(matched) > NAMES_SHOWN_MAX else "")
        now = f" (now: {names})" if matched else ""
        message = (
            f"the filter also matches nodes without the attribute {attribute}{now}; "
            f"to exclude them, add: @['{attribute}'] &&"
        )
        return StatementWarning("FILTER_MATCHES_MISSING_ATTRIBUTE", message)
    return None


def _without(attribute: str, topology: Topology) -> Iterator[Node]:
    """Nodes to try the filter on: one with nothing, and each live one as if it lacked the attribute."""
    yield Node("nothing")
    for node in topology:
        yield replace(node, attributes=tuple(pair for pair in node.attributes if pair[0] != attribute))


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
    # Such names were made before that was refused.
    if not any(is_confusable(zone.name, other.name) for other in snapshot.zones):
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
