"""The catalog at one version, and what a command would change in it: pure, so that it can be tried anywhere.

``apply_command`` is the only judge of a statement. The service commits what it returns, an offline checker
only shows it; both get the same answer for the same snapshot, command and nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import AlterZone, Command, CreateZone, DropZone, ProfileName, ZoneName
from catalog.core.quorum import default_quorum
from catalog.core.quorum_rules import check_bounds, check_data_nodes, check_stored_quorum
from catalog.core.zone import Node, Zone, ZoneId
from catalog.core.zone_options import ZoneParameters, check_ranges, read_options

NAME_CHARS_MAX = 128
DEFAULT_PROFILES = ("default",)
FIRST_ZONE_ID = ZoneId(1)

Topology = tuple[Node, ...]
"""The nodes that are alive."""


@dataclass(frozen=True, slots=True)
class ZoneDefaults:
    """What a statement leaves out and a setting decides."""

    partitions: int = 25


class EntryKind(Enum):
    """What one entry does to the catalog."""

    WRITTEN = "written"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One zone as a version leaves it; DROPPED keeps the last parameters."""

    kind: EntryKind
    zone: Zone


@dataclass(frozen=True, slots=True)
class StatementWarning:
    """Something a person should know although the statement was applied."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """The catalog at ``version``: the zones that live, by id. Version 0 is the empty catalog.

    Invariants: names are unique; ``next_zone_id`` is above every id that was ever given.
    """

    version: int = 0
    zones: tuple[Zone, ...] = ()
    next_zone_id: ZoneId = FIRST_ZONE_ID

    def zone(self, name: str) -> Zone | None:
        return next((zone for zone in self.zones if zone.name == name), None)

    def after(self, entries: tuple[CatalogEntry, ...]) -> CatalogSnapshot:
        """The next version. No entries: this one, for nothing differs."""
        if not entries:
            return self
        zones = {zone.zone_id: zone for zone in self.zones}
        next_zone_id = self.next_zone_id
        for entry in entries:
            zone_id = entry.zone.zone_id
            next_zone_id = max(next_zone_id, ZoneId(zone_id + 1))
            if entry.kind is EntryKind.WRITTEN:
                zones[zone_id] = entry.zone
            else:
                del zones[zone_id]
        return CatalogSnapshot(
            self.version + 1, tuple(zones[zone_id] for zone_id in sorted(zones)), next_zone_id
        )


@dataclass(frozen=True, slots=True)
class Change:
    """What a command does to a snapshot.

    ``applied`` is false only for an IF [NOT] EXISTS that had nothing to do. ``entries`` is empty then, and also
    for an ALTER that asks for what the zone is already: applied, but no new version, so that a statement sent
    twice starts nothing (decision 12). ``before`` and ``after`` are the zone around the change; ``data_nodes``
    are the live nodes that ``after`` may use and ``quorum`` its effective quorum size (explicit, else derived).
    """

    command: Command
    applied: bool
    effect: Mapping[str, Any]
    entries: tuple[CatalogEntry, ...] = ()
    before: Zone | None = None
    after: Zone | None = None
    data_nodes: tuple[str, ...] = ()
    quorum: int | None = None
    warnings: tuple[StatementWarning, ...] = ()

    @property
    def zone_id(self) -> ZoneId | None:
        zone = self.after or self.before
        return zone.zone_id if zone else None


def apply_command(
    snapshot: CatalogSnapshot,
    command: Command,
    topology: Topology,
    defaults: ZoneDefaults = ZoneDefaults(),
) -> Change:
    """What the command changes, or RefusedError: the first refusal in the documents' order of checks.

    Identifiers; options (duplicate, alterable, built, type, sign); profiles exist; static ranges, and CREATE's
    quorum bounds; existence; ALTER's quorum bounds; enough data nodes for the quorum. IF [NOT] EXISTS hides
    none of those before existence. The last one comes after it, so that a script of IF NOT EXISTS can be sent
    again while nodes are down.
    """
    _check_name(command.name)
    if isinstance(command, DropZone):
        return _drop(snapshot, command)
    parameters = read_options(command)
    if isinstance(command, CreateZone):
        implied = tuple(ProfileName(name, command.name.position) for name in DEFAULT_PROFILES)
        _check_profiles(parameters.storage_profiles or implied, topology)
    check_ranges(command, parameters)
    if isinstance(command, CreateZone):
        return _create(snapshot, command, parameters, topology, defaults)
    return _alter(snapshot, command, parameters, topology)


def data_nodes_of(zone: Zone, topology: Topology) -> tuple[str, ...]:
    """Names of the live nodes that hold all of the zone's profiles, sorted (IEP-012, without filter)."""
    return tuple(sorted(node.name for node in topology if node.holds_profiles(zone.storage_profiles)))


def _create(
    snapshot: CatalogSnapshot,
    command: CreateZone,
    parameters: ZoneParameters,
    topology: Topology,
    defaults: ZoneDefaults,
) -> Change:
    replicas = 1 if parameters.replicas is None else parameters.replicas
    if parameters.quorum_size is not None:
        check_bounds(command, parameters.quorum_size, replicas)
    existing = snapshot.zone(command.name.text)
    if existing:
        if command.if_not_exists:
            return _nothing(command, existing)
        message = f"zone {existing.name} exists already"
        raise RefusedError(ErrorKind.ZONE_ALREADY_EXISTS, message, command.name.position)
    profiles = tuple(name.text for name in parameters.storage_profiles or ())
    zone = Zone(
        zone_id=snapshot.next_zone_id,
        name=command.name.text,
        partitions=defaults.partitions if parameters.partitions is None else parameters.partitions,
        replicas=replicas,
        quorum_size=parameters.quorum_size,
        storage_profiles=profiles or DEFAULT_PROFILES,
    )
    return _written("create", command, None, zone, parameters, topology)


def _alter(
    snapshot: CatalogSnapshot, command: AlterZone, parameters: ZoneParameters, topology: Topology
) -> Change:
    zone = snapshot.zone(command.name.text)
    if zone is None:
        return _missing(command, command.if_exists)
    replicas = zone.replicas if parameters.replicas is None else parameters.replicas
    if parameters.quorum_size is not None:
        check_bounds(command, parameters.quorum_size, replicas)
        quorum_size: int | None = parameters.quorum_size
    else:
        quorum_size = zone.quorum_size
        if quorum_size is not None:
            check_stored_quorum(command, quorum_size, replicas)
    altered = replace(zone, replicas=replicas, quorum_size=quorum_size)
    return _written("alter", command, zone, altered, parameters, topology)


def _drop(snapshot: CatalogSnapshot, command: DropZone) -> Change:
    zone = snapshot.zone(command.name.text)
    if zone is None:
        return _missing(command, command.if_exists)
    return Change(
        command=command,
        applied=True,
        effect={"op": "drop", "zone": zone.name},
        entries=(CatalogEntry(EntryKind.DROPPED, zone),),
        before=zone,
    )


def _written(
    op: str,
    command: CreateZone | AlterZone,
    before: Zone | None,
    zone: Zone,
    parameters: ZoneParameters,
    topology: Topology,
) -> Change:
    data_nodes = data_nodes_of(zone, topology)
    if parameters.quorum_size is not None:
        check_data_nodes(command, parameters.quorum_size, len(data_nodes))
    derived = default_quorum(zone.replicas, len(data_nodes))
    quorum = derived if zone.quorum_size is None else zone.quorum_size
    return Change(
        command=command,
        applied=True,
        effect={"op": op, "zone": zone.name, "params": _params(zone, quorum)},
        entries=() if zone == before else (CatalogEntry(EntryKind.WRITTEN, zone),),
        before=before,
        after=zone,
        data_nodes=data_nodes,
        quorum=quorum,
        warnings=_warnings(zone, parameters, len(data_nodes)),
    )


def _params(zone: Zone, quorum: int) -> dict[str, Any]:
    """``quorum_size`` is the effective one: what the zone runs with."""
    return {
        "partitions": zone.partitions,
        "replicas": zone.replicas,
        "quorum_size": quorum,
        "auto_scale_up": zone.auto_scale_up,
        "auto_scale_down": zone.auto_scale_down,
        "nodes_filter": zone.nodes_filter,
        "storage_profiles": list(zone.storage_profiles),
        "consistency_mode": zone.consistency_mode.value,
    }


def _warnings(zone: Zone, parameters: ZoneParameters, data_nodes: int) -> tuple[StatementWarning, ...]:
    if parameters.replicas is None or zone.all_replicas or zone.replicas <= data_nodes:
        return ()
    nodes = "node matches" if data_nodes == 1 else "nodes match"
    message = (
        f"REPLICAS {zone.replicas}, but {data_nodes} data {nodes} now: "
        f"each partition has {data_nodes} replicas until more nodes join"
    )
    return (StatementWarning("REPLICAS_ABOVE_DATA_NODES", message),)


def _nothing(command: Command, zone: Zone | None) -> Change:
    return Change(command=command, applied=False, effect={"op": "noop"}, before=zone)


def _missing(command: AlterZone | DropZone, allowed: bool) -> Change:
    if allowed:
        return _nothing(command, None)
    message = f"there is no zone {command.name.text}"
    raise RefusedError(ErrorKind.ZONE_NOT_FOUND, message, command.name.position)


def _check_name(name: ZoneName) -> None:
    if not name.text.strip():
        raise RefusedError(ErrorKind.NAME_INVALID, "a zone's name is not blank", name.position)
    if len(name.text) > NAME_CHARS_MAX:
        message = f"a zone's name has at most {NAME_CHARS_MAX} characters, this one has {len(name.text)}"
        raise RefusedError(ErrorKind.NAME_TOO_LONG, message, name.position)


def _check_profiles(names: tuple[ProfileName, ...], topology: Topology) -> None:
    """Each profile must be on at least one live node."""
    known = sorted({profile for node in topology for profile in node.profiles})
    for name in names:
        if name.text not in known:
            there = f"they have {', '.join(known)}" if known else "no node is alive"
            message = f"no live node has the storage profile '{name.text}'; {there}"
            raise RefusedError(ErrorKind.STORAGE_PROFILE_UNKNOWN, message, name.position)
