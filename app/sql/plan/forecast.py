"""Forecast of the moves of a change, as the controllers would decide them: data nodes, the need of a new
placement, and the placement, each by the controllers' own functions. Nothing is written.

EXPLAIN, plans, the console's plans and its what-if all ask here: so none of them shows a move that applying the
change would not make. The effects of a statement are judged here, too, for all of them (``judged``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.errors import StatementError
from catalog.core.messages import Command
from catalog.core.snapshot import (
    STANDARD_DEFAULTS,
    CatalogSnapshot,
    Change,
    EntryKind,
    ZoneDefaults,
    ZoneEntry,
    apply_command,
)
from catalog.core.statement_batch import Judge
from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from catalog.filters.json_path import JSON_PATH
from rebalance.controllers.event import Event
from rebalance.controllers.targets import matrix_of, pointer_of
from rebalance.core.assignments.target import (
    StoredTarget,
    TargetIncompleteError,
    TargetPointer,
    surplus_of_others,
)
from rebalance.core.keyspace.epoch import EpochRecord, split_event_revision
from rebalance.core.keyspace.readable import Unreadable, read, readable
from rebalance.core.keyspace.txn import KeyValue, absent
from rebalance.core.topology.data_nodes import DataNodes, compute_data_nodes
from rebalance.core.topology.node_presence import Topology
from rebalance.kernels.assessment import level_counts, renumbered
from rebalance.kernels.transfers import Sizes, Transfers, copies, totals
from rebalance.ports.placement import PlacementError, PlacementRequest, PlacementResult, PreviousPlacement
from spark.batch import place_locally


@dataclass(frozen=True, slots=True)
class Placement:
    """Replicas of a zone by node: ``matrix`` int32 [P, R], indexes into ``nodes``; the first ``voters`` columns
    vote."""

    nodes: tuple[str, ...]
    matrix: npt.NDArray[np.int32]
    voters: int

    def numbered(self, names: tuple[str, ...], partitions: int) -> npt.NDArray[np.int32]:
        """The matrix as indexes into ``names``: int32 [partitions, R], R = 0 for a zone without replicas."""
        if not self.matrix.size:
            return np.zeros((partitions, 0), dtype=np.int32)
        return renumbered(self.nodes, self.matrix, names)

    def shares(self) -> dict[str, tuple[int, int, int]]:
        """Replicas, voters and preferred primaries of each node."""
        counts = level_counts(len(self.nodes), self.matrix, max(1, self.voters))
        return {name: (int(a), int(b), int(c)) for name, (a, b, c) in zip(self.nodes, counts.T, strict=True)}


NOWHERE = Placement((), np.zeros((0, 0), dtype=np.int32), 0)


@dataclass(frozen=True, slots=True)
class ForecastZone:
    """State of a zone as the controllers have made it: its data nodes, and its newest target with its
    pointer."""

    data_nodes: DataNodes | None = None
    pointer: TargetPointer | None = None
    placement: Placement = NOWHERE


NOTHING_YET = ForecastZone()


@dataclass(frozen=True, slots=True)
class Outlook:
    """State that a change is made on: the snapshot, and over it what earlier changes of the same script would
    have made of their zones."""

    snapshot: SystemSnapshot
    made: Mapping[ZoneId, ForecastZone] = field(default_factory=dict)

    def of(self, zone: Zone) -> ForecastZone:
        known = self.made.get(zone.zone_id)
        return known if known is not None else stored_state(zone, self.snapshot)

    def pointers(self) -> Iterator[tuple[ZoneId, TargetPointer]]:
        """Yield the target pointers of all zones that are placed, in the order of the zones' ids."""
        snapshot = self.snapshot
        zones = {zone.zone_id for zone in snapshot.catalog.zones} | self.made.keys()
        for zone_id in sorted(zones):
            known = self.made.get(zone_id)
            if known is not None:
                pointer = known.pointer
            else:
                stored = snapshot.keys.get(snapshot.keyspace.target_pointer(zone_id))
                # A zone whose own pointer cannot be read waits, and holds back no other.
                record = read(stored, TargetPointer.decode)
                pointer = None if isinstance(record, Unreadable) else record
            if pointer is not None:
                yield zone_id, pointer

    def after(self, forecasts: Sequence[Forecast], catalog: CatalogSnapshot) -> Outlook:
        """Outlook once those changes have been applied, with ``catalog`` as it is then."""
        made = {forecast.zone.zone_id: forecast.after for forecast in forecasts}
        return Outlook(replace(self.snapshot, catalog=catalog), {**self.made, **made})


@dataclass(frozen=True, slots=True)
class ZoneChange:
    """A zone before and after; None: it is created, or dropped. ``data_nodes``: supposed ones, instead of those
    that follow from the nodes that live."""

    before: Zone | None
    after: Zone | None
    data_nodes: DataNodes | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """Replicas that ``target`` takes over from ``source``; an empty name: there is none, for an additional
    replica or one that ends. From a node to itself: copies that are made anew, in another role."""

    source: str
    target: str
    replicas: int
    bytes_: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """State of a zone before and after a change. ``note``: why it is not placed as the change asks for; empty:
    it is."""

    zone: Zone
    before: ForecastZone
    after: ForecastZone
    note: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Nodes of both sides, which ``copies`` numbers."""
        return tuple(sorted({*self.before.placement.nodes, *self.after.placement.nodes}))

    def copies(self, sizes: Sizes) -> Transfers:
        """Every copy that is made or ends. ``sizes`` int64 [P]: bytes of a copy of each partition, 0: not
        known."""
        was, becomes = self.before.placement, self.after.placement
        partitions = max(len(was.matrix), len(becomes.matrix))
        old, new = was.numbered(self.names, partitions), becomes.numbered(self.names, partitions)
        return copies(old, new, (max(1, was.voters), max(1, becomes.voters)), sizes)

    def flows(self, transfers: Transfers) -> list[Flow]:
        """Flows of some of the ``copies``, by source and target."""
        total, names = totals(transfers), (*self.names, "")  # NOBODY is the last one
        columns = (total.donor.tolist(), total.stealer.tolist(), total.replicas.tolist(), total.size.tolist())
        return [
            Flow(names[donor], names[stealer], count, size)
            for donor, stealer, count, size in zip(*columns, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class PlannedStatement:
    """One statement and what it would change of ``before``."""

    sql: str
    before: CatalogSnapshot
    change: Change


def judged(
    commands: Iterable[Command], catalog: CatalogSnapshot, topology: Sequence[Node], judge: Judge
) -> Iterator[PlannedStatement]:
    """Yield what each command would change after the ones before it. Nothing is stored.

    Raises the StatementError that the script would end with, which has its number."""
    topology = tuple(topology)
    for number, command in enumerate(commands, start=1):
        try:
            change = judge(catalog, command, topology)
        except StatementError as error:
            error.statement = number
            raise
        yield PlannedStatement(command.source, catalog, change)
        catalog = catalog.after(change.entries)


def rules_of(defaults: ZoneDefaults = STANDARD_DEFAULTS) -> Judge:
    """The catalog's rules, without the limits that depend on an installation."""
    return partial(apply_command, defaults=defaults, filters=JSON_PATH)


def changed_zone(change: Change) -> ZoneChange | None:
    """The zone that a statement writes; None: it writes none (a table, the default, nothing at all)."""
    for entry in change.entries:
        if isinstance(entry, ZoneEntry):
            return ZoneChange(change.before, None if entry.kind is EntryKind.DROPPED else entry.zone)
    return None


def forecast(
    before: Outlook, changes: Sequence[ZoneChange], presence: Topology | None = None
) -> tuple[Forecast, ...]:
    """Forecast each change's zone when all ``changes`` are applied at once. ``presence``: the nodes as they
    would be then; None: as they are.

    Takes as long as the placements: call it in a thread.
    """
    presence = before.snapshot.presence if presence is None else presence
    forecasts: dict[int, Forecast] = {}
    placing: dict[int, tuple[Event, Forecast]] = {}
    for number, change in enumerate(changes):
        zone = change.after or change.before
        assert zone is not None
        state = before.of(change.before) if change.before is not None else NOTHING_YET
        if change.after is None:
            forecasts[number] = Forecast(zone, state, NOTHING_YET)
            continue
        event = _event(before, zone, state, change.data_nodes, presence)
        kept = Forecast(zone, state, replace(state, data_nodes=event.data_nodes))
        if not event.data_nodes.nodes:
            forecasts[number] = replace(kept, note="the zone has no data node then: what is placed stays")
        elif event.is_placed:
            forecasts[number] = kept
        else:
            placing[number] = event, kept
    forecasts |= zip(placing, _placed(before, list(placing.values())), strict=True)
    return tuple(forecasts[number] for number in range(len(changes)))


def _event(
    before: Outlook, zone: Zone, state: ForecastZone, supposed: DataNodes | None, presence: Topology
) -> Event:
    """Event of a change, as the zone's controller would read it once the change was published."""
    snapshot = before.snapshot
    intent = ZoneIntent(snapshot.catalog.version + 1, zone)
    data_nodes = supposed
    if data_nodes is None:
        data_nodes = compute_data_nodes(state.data_nodes, presence, intent, JSON_PATH, snapshot.taken_at_ms)
    keys, revision = snapshot.keyspace, snapshot.keys.revision + 1
    pointer = None
    if state.pointer is not None:
        # Later than any target, those that earlier changes of a script would have made included.
        revision = max(revision, split_event_revision(state.pointer.event_revision)[1] + 1)
        key = keys.target_pointer(zone.zone_id)
        pointer = KeyValue(key, state.pointer.encode(), revision, revision, 1)
    epoch = (readable(snapshot.keys.get(keys.epoch), EpochRecord.decode) or EpochRecord()).epoch
    return Event(zone.zone_id, intent, revision, data_nodes, revision, pointer, epoch, absent(keys.epoch))


def _placed(before: Outlook, batch: Sequence[tuple[Event, Forecast]]) -> list[Forecast]:
    """One job for all, as the controllers' is; when it fails each alone: one does not hold up others."""
    together = {event.zone_id for event, _ in batch}
    others = [pointer for zone_id, pointer in before.pointers() if zone_id not in together]
    requests = [_request(event, kept.before, others) for event, kept in batch]
    try:
        results = place_locally(requests) if requests else []
    except PlacementError as error:
        if len(batch) > 1:
            return [placed for single in batch for placed in _placed(before, [single])]
        return [replace(kept, note=str(error)) for _, kept in batch]
    return [
        replace(kept, after=_state(event, result)) for (event, kept), result in zip(batch, results, strict=True)
    ]


def _request(event: Event, state: ForecastZone, others: Sequence[TargetPointer]) -> PlacementRequest:
    request = event.request()
    if not event.is_stateful:
        return request
    was = state.placement
    previous = None if was is NOWHERE else PreviousPlacement(was.nodes, was.matrix, was.voters)
    elsewhere = np.array(surplus_of_others(others, request.nodes))
    return replace(request, previous=previous, elsewhere=elsewhere)


def _state(event: Event, result: PlacementResult) -> ForecastZone:
    pointer = pointer_of(result, event.intent, event.data_nodes, event.revision)
    placement = Placement(result.nodes, result.matrix, result.consensus)
    return ForecastZone(event.data_nodes, pointer, placement)


def stored_state(zone: Zone, snapshot: SystemSnapshot) -> ForecastZone:
    """State of a zone from its data nodes and its newest stored target, each as far as there is one. Raises
    RecordNotReadableError."""
    keys, keyspace = snapshot.keys, snapshot.keyspace
    data_nodes = snapshot.views.data_nodes(zone.zone_id)
    pointer = readable(keys.get(keyspace.target_pointer(zone.zone_id)), TargetPointer.decode)
    if pointer is None:
        return ForecastZone(data_nodes)
    below = keys.below(keyspace.target(zone.zone_id, pointer.event_revision))
    try:
        matrix = matrix_of(StoredTarget(pointer, tuple(item.value for item in below)))
    except TargetIncompleteError:
        return ForecastZone(data_nodes)
    return ForecastZone(data_nodes, pointer, Placement(pointer.nodes, matrix, pointer.consensus))
