"""Plan of a rebalancing: primary moves, batches of them, and the units of one batch.

A unit of migration is one stealer and one donor (VOL-060) with the partitions of each store that go from one to
the other. A node that is new among the replicas of a partition steals from one that is not among them any more:
so each node that loses a copy is the donor of exactly one that gains it, and puts that go to the donors too
reach every old replica. That is what a rollback rests on. Source: VOL-015..019, VOL-030..032, VOL-060, VOL-087.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreDefinition, StoreKind


@dataclass(frozen=True, slots=True)
class PrimaryMove:
    partition: int
    donor: int
    stealer: int


@dataclass(frozen=True, slots=True)
class StealUnit:
    """``stores``: (name, partitions ascending), by name; none without partitions."""

    stealer: int
    donor: int
    stores: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.stores)

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted({partition for _, partitions in self.stores for partition in partitions}))

    def partitions_of(self, store: str) -> tuple[int, ...]:
        return dict(self.stores).get(store, ())

    def only(self, names: Collection[str]) -> StealUnit:
        return replace(self, stores=tuple(entry for entry in self.stores if entry[0] in names))

    def without(self, store: str) -> StealUnit:
        return replace(self, stores=tuple(entry for entry in self.stores if entry[0] != store))

    def describe(self) -> str:
        """One line of ``--show-plan`` and of job lists."""
        stores = ", ".join(f"{name} {list(partitions)}" for name, partitions in self.stores)
        return f"stealer {self.stealer} <- donor {self.donor}: {stores}"


def primary_moves(current: ClusterMetadata, target: ClusterMetadata) -> tuple[PrimaryMove, ...]:
    """Every primary partition that changes its owner, by partition (VOL-030). Raises ValueError for different
    numbers of partitions."""
    pairs = enumerate(zip(current.owners, target.owners, strict=True))
    return tuple(PrimaryMove(number, donor, stealer) for number, (donor, stealer) in pairs if donor != stealer)


def batches(moves: tuple[PrimaryMove, ...], size: int) -> tuple[tuple[PrimaryMove, ...], ...]:
    """``size``: primary partitions that move together (VOL-023); the last batch may be smaller. Raises
    ValueError for a size below 1."""
    if size < 1:
        raise ValueError(f"batch size {size}; at least one partition moves in a batch")
    return tuple(moves[first : first + size] for first in range(0, len(moves), size))


def transition(current: ClusterMetadata, batch: Iterable[PrimaryMove]) -> ClusterMetadata:
    """The metadata after one batch (VOL-031)."""
    return current.with_owners({move.partition: move.stealer for move in batch})


def transitions(
    current: ClusterMetadata, target: ClusterMetadata, batch_size: int
) -> tuple[ClusterMetadata, ...]:
    """The metadata after each batch; the last is the target's."""
    clusters, before = [], current
    for batch in batches(primary_moves(current, target), batch_size):
        before = transition(before, batch)
        clusters.append(before)
    return tuple(clusters)


def plan_batch(
    before: ClusterMetadata, after: ClusterMetadata, stores: Iterable[StoreDefinition]
) -> tuple[StealUnit, ...]:
    """The units between two metadata, by stealer, then donor (VOL-032).

    Primary and secondary moves alike. A stealer may have had the partition already, in another place of its
    list of replicas; it need not copy it again then (``needs_copy``). The lists must be of the same length,
    which ``steal_checks`` sees to.
    """
    numbers: dict[tuple[int, int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for store in stores:
        for number in range(len(before.owners)):
            old, new = before.replicas(number, store.replication), after.replicas(number, store.replication)
            for stealer, donor in _moved_copies(old, new):
                numbers[stealer, donor][store.name].append(number)
    return tuple(
        StealUnit(stealer, donor, tuple((name, tuple(numbers[stealer, donor][name])) for name in sorted(names)))
        for (stealer, donor), names in sorted(numbers.items())
    )


def _moved_copies(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[int, int]]:
    """(stealer, donor) of one partition: those that are new with those that go, in the order of their lists;
    and those that stay in another place with whoever was there."""
    lost = [node for node in old if node not in new]
    gained = [node for node in new if node not in old]
    places = zip(old, new, strict=True)
    shifted = [(stealer, donor) for donor, stealer in places if donor != stealer and stealer in old]
    return [*zip(gained, lost, strict=True), *shifted]


def needs_copy(
    unit: StealUnit, store: StoreDefinition, before: ClusterMetadata, optimized: bool
) -> tuple[int, ...]:
    """Partitions of ``store`` that the stealer has to copy: when ``optimized``, not those of which it had a
    replica already (VOL-101)."""
    return tuple(
        partition
        for partition in unit.partitions_of(store.name)
        if not (optimized and unit.stealer in before.replicas(partition, store.replication))
    )


def of_kind(
    units: Iterable[StealUnit], stores: Iterable[StoreDefinition], kind: StoreKind
) -> tuple[StealUnit, ...]:
    """The units with their stores of one kind only; those that have none are left out."""
    names = {store.name for store in stores if store.kind is kind}
    chosen = (unit.only(names) for unit in units)
    return tuple(unit for unit in chosen if unit.stores)


def by_stealer(units: Iterable[StealUnit]) -> Mapping[int, tuple[StealUnit, ...]]:
    """The plan as the document has it: stealer -> its donors with their partitions."""
    by_node: dict[int, list[StealUnit]] = defaultdict(list)
    for unit in units:
        by_node[unit.stealer].append(unit)
    return {stealer: tuple(of_node) for stealer, of_node in sorted(by_node.items())}


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """``moves``: its primary moves; ``after``: the transition metadata."""

    moves: tuple[PrimaryMove, ...]
    before: ClusterMetadata
    after: ClusterMetadata
    units: tuple[StealUnit, ...]


def plan(
    current: ClusterMetadata, target: ClusterMetadata, stores: Iterable[StoreDefinition], batch_size: int
) -> tuple[PlannedBatch, ...]:
    """Everything that a rebalancing does, before it does anything (VOL-021, VOL-087). New nodes of the target
    are in the first ``before`` already."""
    defined = tuple(stores)
    before = current.with_nodes(target.nodes)
    planned = []
    for moves in batches(primary_moves(before, target), batch_size):
        after = transition(before, moves)
        planned.append(PlannedBatch(moves, before, after, plan_batch(before, after, defined)))
        before = after
    return tuple(planned)


def describe(planned: Iterable[PlannedBatch]) -> str:
    """Text of ``--show-plan``: a paragraph for each batch, a line for each unit."""
    lines = []
    for number, batch in enumerate(planned, 1):
        lines.append(f"batch {number}: primary partitions {[move.partition for move in batch.moves]}")
        lines += [f"  {unit.describe()}" for unit in batch.units]
    return "\n".join(lines) or "nothing moves: every partition is where the target wants it"
