"""Balanced placement: even at every level, and moving as little as that allows.

Stateful: it starts from the previous assignment, or at creation from the rendezvous order. Replicas, voters and
primaries of any two nodes of equal weight (in one failure domain, where domains are given) differ by at most
one, and what is even already stays as it is: ``balance(previous=t) == t``.

1. Targets: floors and ceilings of the nodes' shares (``shares``); ceilings go where most is held already.
2. Copies on nodes that left, and those that a smaller REPLICAS gives up, become holes; holes are filled.
3. Nodes above their target give to nodes below it; chains of moves resolve what is stuck, first those that move
   no data.
4. Roles are settled by swaps inside a partition.

With failure domains no two voters of a partition share one while there are domains enough.

Source: IEP-036. Time is linear in the cells of the matrix, plus a search for each stuck move; memory is a few
copies of the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rebalance.kernels.assessment import level_counts, renumbered
from rebalance.kernels.balanced_chains import ANY_MOVE, FREE_ONLY, repair
from rebalance.kernels.balanced_moves import (
    Cells,
    ColumnStage,
    Terms,
    fill_and_shed,
    fill_anyhow,
    pack,
    row_order,
    trim,
)
from rebalance.kernels.balanced_roles import exchange, swap_directly, swap_in_chains
from rebalance.kernels.rendezvous import Matrix, effective_replicas, node_dictionary, node_terms_of, place
from rebalance.kernels.rendezvous import voters as voter_columns
from rebalance.kernels.shares import (
    Counts,
    Level,
    Quotas,
    Shares,
    Standing,
    nested_targets,
    voters_per_domain,
    zone_quotas,
)


@dataclass(frozen=True, slots=True)
class Placed:
    """An assignment as it stands: ``matrix`` int32 [P, R], indexes into ``nodes``, the first ``voters`` columns
    vote, column 0 is the primary."""

    nodes: tuple[str, ...]
    matrix: Matrix
    voters: int

    def totals(self) -> Counts:
        """int64 [3, N]: replicas, voters and primaries of each node."""
        return level_counts(len(self.nodes), self.matrix, self.voters)


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Input of a placement. ``nodes``: N data nodes. ``weights`` (N positive numbers, empty: all equal),
    ``domains`` (N names of failure domains, empty: none). ``elsewhere`` float64 [3, N]: the sum of other zones'
    ``surplus``. ``previous`` None: the zone is new."""

    nodes: tuple[str, ...]
    partitions: int
    replicas: int
    voters: int
    previous: Placed | None = None
    weights: tuple[float, ...] = ()
    domains: tuple[str, ...] = ()
    elsewhere: Shares | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class BalancedPlan:
    """A problem made ready: ``levels`` are the targets of replicas, voters and primaries.

    Cheap to make, so that the zones of a batch can take each other's targets into account before their cells
    are settled side by side.
    """

    problem: PlacementProblem
    start: Cells
    """int32 [P, W]: the candidates for each partition in order of preference, -1 for who left."""
    voters_before: int
    levels: tuple[Level, Level, Level]
    quotas: Quotas

    def surplus(self) -> Shares:
        """float64 [3, N]: how far the targets are above the exact shares, each between -1 and 1. Summed over
        zones it tells on which nodes ceilings pile up, whatever data nodes each zone has."""
        targets = np.stack([level.targets for level in self.levels])
        return np.subtract(targets, self.quotas.shares)


def balance(problem: PlacementProblem) -> Matrix:
    """int32 [P, min(replicas, N)] in preference order. Raises ValueError as ``rendezvous.place`` does, and for
    weights that are not positive or lists that are not as long as ``nodes``."""
    return settle(plan(problem))


def plan(problem: PlacementProblem) -> BalancedPlan:
    """The targets. Raises ValueError as ``balance``."""
    nodes, partitions = problem.nodes, problem.partitions
    for name, given in (("weights", problem.weights), ("domains", problem.domains)):
        if given and len(given) != len(nodes):
            raise ValueError(f"{len(given)} {name} for {len(nodes)} nodes")
    if any(not 0 < weight < float("inf") for weight in problem.weights):
        raise ValueError(f"weights must be positive numbers, not {min(problem.weights)}")
    previous = problem.previous
    if previous is not None and len(previous.matrix) != partitions:
        raise ValueError(f"the previous assignment has {len(previous.matrix)} partitions, not {partitions}")
    width = effective_replicas(len(nodes), problem.replicas)
    votes = voter_columns(problem.voters, width)
    if previous is None or not previous.matrix.size:
        start, before, fresh = place(nodes, range(partitions), problem.replicas), votes, True
    else:
        start, before, fresh = renumbered(previous.nodes, previous.matrix, nodes), previous.voters, False
    if not len(nodes):
        none = np.zeros(0, dtype=np.int64)
        return BalancedPlan(problem, start, before, (Level(none, none, none),) * 3, Quotas((), (), ()))
    weights = problem.weights or (1.0,) * len(nodes)
    quotas = zone_quotas(weights, _domain_numbers(problem.domains), partitions, width, votes)
    elsewhere = problem.elsewhere
    if elsewhere is None:
        elsewhere = np.zeros((3, len(nodes)))
    holding = [_counted(start[:, :columns], len(nodes)) for columns in (start.shape[1], before, 1)]
    standing = [Standing(held, other, fresh) for held, other in zip(holding, elsewhere, strict=True)]
    replicas, voters, primaries = nested_targets(quotas, partitions, (width, votes), standing)
    return BalancedPlan(problem, start, before, (replicas, voters, primaries), quotas)


def settle(made: BalancedPlan) -> Matrix:
    """The cells of a plan: int32 [P, min(replicas, N)]. What is even already is returned as it is."""
    problem, previous = made.problem, made.problem.previous
    width = effective_replicas(len(problem.nodes), problem.replicas)
    votes = voter_columns(problem.voters, width)
    same_shape = previous is not None and (previous.matrix.shape[1], previous.voters) == (width, votes)
    stood = _excess(made.start, made, votes) if same_shape and (made.start >= 0).all() else None
    if stood == 0:
        return made.start
    cells = _settled(made)
    # In a zone too small for its weights and domains the bounds may be out of reach from one side and not from
    # another; the answer is one that a second look would not change.
    excess = _excess(cells, made, votes)
    if stood is not None and excess >= stood:
        return made.start
    while excess:
        again = plan(replace(problem, previous=Placed(problem.nodes, cells, votes)))
        others = _settled(again)
        less = _excess(others, made, votes)
        if less >= excess:
            break
        cells, excess = others, less
    return cells


def _settled(plan: BalancedPlan) -> Matrix:
    problem = plan.problem
    nodes, partitions = len(problem.nodes), problem.partitions
    width = effective_replicas(nodes, problem.replicas)
    if nodes <= 1 or partitions == 0:
        return np.zeros((partitions, width), dtype=np.int32)
    columns = _Columns(problem, plan.start, plan.levels[0].targets)
    votes = voter_columns(problem.voters, width)
    replicas, voters, primaries = plan.levels
    if not problem.domains or votes == width:
        cells = columns.placed(plan.start, width, replicas, spread=bool(problem.domains))
        if votes < width:
            _settle_roles(cells, votes, width, voters, columns.order, may_move=True)
    else:
        cells = columns.placed_in_two(plan.start, plan.voters_before, (votes, width), replicas, voters)
    _settle_roles(cells, 1, votes, primaries, columns.order, may_move=not problem.domains)
    return cells


def surplus_of(placed: Placed, weights: Sequence[float] = (), domains: Sequence[str] = ()) -> Shares:
    """``Plan.surplus`` of an assignment as it came out: float64 [3, N]."""
    partitions, width = placed.matrix.shape
    exact = zone_quotas(
        tuple(weights) or (1.0,) * len(placed.nodes), _domain_numbers(domains), partitions, width, placed.voters
    )
    return np.subtract(placed.totals(), exact.shares)


def _excess(cells: Cells, made: BalancedPlan, votes: int) -> int:
    """Return how far the levels are outside their bounds, and how many voters share a domain that should
    not."""
    nodes = len(made.problem.nodes)
    far = 0
    for level, width in zip(made.levels, (cells.shape[1], votes, 1), strict=True):
        count = _counted(cells[:, :width], nodes)
        far += int(np.maximum(count - level.high, 0).sum() + np.maximum(level.low - count, 0).sum())
    numbers = _domain_numbers(made.problem.domains)
    if numbers is not None:
        of = np.array(numbers, dtype=np.int64)
        caps = voters_per_domain(np.bincount(of).tolist(), votes)
        for domain, cap in enumerate(caps):
            far += int(np.maximum((of[cells[:, :votes]] == domain).sum(axis=1) - cap, 0).sum())
    return far


class _Columns:
    """Settles columns of a matrix by counts; holds what all columns of a problem share."""

    def __init__(self, problem: PlacementProblem, start: Cells, targets: Counts) -> None:
        nodes = len(problem.nodes)
        self._terms = _terms(problem.nodes)
        # Another order for other nodes or other targets: see ``row_order``.
        seed = ((targets.astype(np.uint64) + np.uint64(1)) * self._terms).sum(dtype=np.uint64)
        self.order = row_order(problem.partitions, seed)
        # At creation nobody has any data: every move is free.
        fresh = problem.previous is None or not problem.previous.matrix.size
        self._was = np.full((problem.partitions, 1), -1, dtype=np.int32) if fresh else start
        self._alone = np.arange(nodes, dtype=np.int64)
        self._once = np.ones(nodes, dtype=np.int64)
        numbers = _domain_numbers(problem.domains)
        self._domain = self._alone if numbers is None else np.array(numbers, dtype=np.int64)
        self._voters = problem.voters

    def placed(self, candidates: Cells, width: int, level: Level, *, spread: bool) -> Cells:
        """int32 [P, width] out of ``candidates``; with ``spread`` over failure domains."""
        domain, cap = (self._domain, self._cap(width)) if spread else (self._alone, self._once)
        stage = ColumnStage(0, width, domain, cap)
        if candidates.shape[1] <= width and not spread:
            cells = pack(candidates, width)
        else:
            cells = trim(candidates, width, level.targets, domain, cap, self.order)
            # Which copies are given up is still free to choose, and choosing well is cheaper than moving.
            repair(cells, self._was, stage, level.targets, level.targets, FREE_ONLY)
        self._settle(cells, stage, level)
        return cells

    def placed_in_two(
        self, start: Cells, voters_before: int, widths: tuple[int, int], replicas: Level, voters: Level
    ) -> Cells:
        """Voters over failure domains first, then learners wherever there is room."""
        votes, width = widths
        cells = np.full((len(start), width), -1, dtype=np.int32)
        cells[:, :votes] = self.placed(
            np.ascontiguousarray(start[:, :voters_before]), votes, voters, spread=True
        )
        targets = replicas.targets - np.bincount(cells[:, :votes].ravel(), minlength=len(self._alone))
        learners = np.where((start[:, :, None] == cells[:, None, :votes]).any(axis=2), np.int32(-1), start)
        cells[:, votes:] = trim(learners, width - votes, targets, self._alone, self._once, self.order)
        level = Level(targets, np.maximum(targets - 1, 0), targets + 1)
        self._settle(cells, ColumnStage(votes, width, self._alone, self._once), level)
        return cells

    def _cap(self, votes: int) -> Counts:
        sizes = np.bincount(self._domain)
        return np.array(voters_per_domain(sizes.tolist(), votes), dtype=np.int64)

    def _settle(self, cells: Cells, stage: ColumnStage, level: Level) -> None:
        if fill_and_shed(cells, self._was, stage, level.targets, self._terms, self.order):
            left = fill_anyhow(cells, self._was, stage, level.targets)
            assert not left, "a partition has a copy that no node may hold"
        for low, high, mode in (
            (level.targets, level.targets, FREE_ONLY),
            (level.low, level.high, FREE_ONLY),
            (level.low, level.high, ANY_MOVE),
        ):
            if not repair(cells, self._was, stage, low, high, mode):
                return


def _settle_roles(
    cells: Cells, chosen: int, among: int, level: Level, order: Counts, *, may_move: bool
) -> None:
    """Settle which ``chosen`` of the first ``among`` columns have the role; at worst two copies change
    places."""
    if chosen == among:
        return
    swap_directly(cells, chosen, among, level.targets, order)
    if not swap_in_chains(cells, chosen, among, level.targets, level.targets):
        return
    while swap_in_chains(cells, chosen, among, level.low, level.high) and may_move:
        count = _counted(cells[:, :chosen], len(level.low))
        giver = int(np.argmax(count - level.high))
        taker = int(np.argmin(count - level.low))
        if giver == taker or not exchange(cells, chosen, among, giver, taker):
            return


def _counted(cells: Cells, nodes: int) -> Counts:
    """Cells of each node, without the holes: int64 [N]."""
    return np.bincount(cells.ravel() + 1, minlength=nodes + 1)[1:].astype(np.int64)


def _domain_numbers(domains: Sequence[str]) -> list[int] | None:
    if not domains:
        return None
    known: dict[str, int] = {}
    return [known.setdefault(name, len(known)) for name in domains]


def _terms(nodes: Sequence[str]) -> Terms:
    """``node_terms_of`` in the order of ``nodes``."""
    dictionary = node_dictionary(nodes)
    hashes = np.empty(len(nodes), dtype=np.int32)
    hashes[dictionary.order] = dictionary.hashes
    return node_terms_of(hashes)
