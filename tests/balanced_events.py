"""A zone that lives through random events under balanced placement, and what is measured after each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from rebalance.kernels.balanced import Placed, PlacementProblem, balance, moved_replicas

REPLICAS = (1, 2, 3, 4, 5, 7)
WEIGHTS = (0.5, 1.0, 1.0, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a zone begins; ``kinds`` are the events that it meets."""

    name: str
    partitions: int
    nodes: int
    replicas: int
    voters: int
    weighted: bool = False
    domains: int = 0
    kinds: tuple[str, ...] = ("join", "leave", "filter", "replicas", "quorum")


SHAPES = (
    Shape("few nodes", 1000, 4, 3, 3),
    Shape("ten nodes", 1024, 10, 3, 3),
    Shape("a hundred nodes", 4096, 100, 3, 3),
    Shape("five copies, three vote", 2048, 12, 5, 3),
    Shape("seven copies", 1000, 9, 7, 5),
    Shape("one copy", 3000, 20, 1, 1),
    Shape("weights", 2048, 16, 3, 3, weighted=True, kinds=("join", "leave", "weight", "replicas", "quorum")),
    Shape("joins and leaves", 1024, 25, 3, 3, kinds=("join", "leave")),
)
DOMAIN_SHAPES = (
    Shape("three domains", 1000, 9, 3, 3, domains=3, kinds=("join", "leave")),
    Shape("five domains", 1024, 20, 5, 3, domains=5),
    Shape("fewer domains than voters", 512, 8, 5, 5, domains=2),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One event and its outcome. ``bound``: fewer moves are impossible for these targets."""

    event: str
    problem: PlacementProblem
    placed: Placed
    moved: int = 0
    bound: int = 0


@dataclass
class Zone:
    """``steps`` yields the creation, then one step an event."""

    shape: Shape
    seed: int
    random: random.Random = field(init=False)
    born: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def steps(self, events: int) -> Iterator[Step]:
        shape = self.shape
        names = tuple(self._name() for _ in range(shape.nodes))
        problem = PlacementProblem(names, shape.partitions, shape.replicas, shape.voters)
        if shape.weighted:
            problem = replace(problem, weights=(1.0,) * shape.nodes)
        if shape.domains:
            problem = replace(problem, domains=tuple(f"d{at % shape.domains}" for at in range(shape.nodes)))
        step = _step("create", problem)
        yield step
        for _ in range(events):
            event = self.random.choice(shape.kinds)
            step = _step(event, replace(self._changed(event, step.problem), previous=step.placed))
            yield step

    def _name(self) -> str:
        self.born += 1
        return f"node-{self.born}"

    def _changed(self, event: str, problem: PlacementProblem) -> PlacementProblem:
        choose = self.random
        if event == "replicas":
            replicas = choose.choice(REPLICAS)
            return replace(problem, replicas=replicas, voters=choose.randint(1, replicas))
        if event == "quorum":
            return replace(problem, voters=choose.randint(1, problem.replicas))
        if event == "weight":
            weights = list(problem.weights)
            weights[choose.randrange(len(weights))] = choose.choice(WEIGHTS)
            return replace(problem, weights=tuple(weights))
        count = len(problem.nodes)
        leaving = {"join": 0, "leave": 1, "filter": count // 4}[event]
        joining = {"join": choose.randint(1, 2), "leave": 0, "filter": choose.randint(0, 5)}[event]
        kept = sorted(choose.sample(range(count), max(count - leaving, 2)))

        def some(old: Sequence[object], new: Sequence[object]) -> tuple[object, ...]:
            return (*(old[at] for at in kept), *new) if old else ()

        domains = [f"d{choose.randrange(max(self.shape.domains, 1))}" for _ in range(joining)]
        return replace(
            problem,
            nodes=some(problem.nodes, [self._name() for _ in range(joining)]),
            weights=some(problem.weights, [1.0] * joining),
            domains=some(problem.domains, domains),
        )


def _step(event: str, problem: PlacementProblem) -> Step:
    matrix = balance(problem)
    placed = Placed(problem.nodes, matrix, min(max(problem.voters, 1), matrix.shape[1]))
    if problem.previous is None:
        return Step(event, problem, placed)
    moved = moved_replicas(problem.previous, problem.nodes, matrix)
    return Step(event, problem, placed, moved, least_moves(problem.previous, problem.nodes, matrix))


def least_moves(previous: Placed, nodes: Sequence[str], matrix: npt.NDArray[np.int32]) -> int:
    """Copies that must move so that every node holds what it holds in ``matrix``: all but those that a maximum
    flow can leave in place, from partitions (R each) over the copies that are there to nodes (their target)."""
    number = {name: at for at, name in enumerate(nodes)}
    before = np.array([number.get(name, -1) for name in previous.nodes])[previous.matrix]
    partitions, width = matrix.shape
    rows, columns = np.nonzero(before >= 0)
    first, last = 1 + partitions, 1 + partitions + len(nodes)
    tails = (np.zeros(partitions, int), 1 + rows, first + np.arange(len(nodes)))
    heads = (1 + np.arange(partitions), first + before[rows, columns], np.full(len(nodes), last))
    targets = np.bincount(matrix.ravel(), minlength=len(nodes))
    capacity = np.concatenate((np.full(partitions, width), np.ones(len(rows), int), targets)).astype(np.int32)
    graph = csr_matrix((capacity, (np.concatenate(tails), np.concatenate(heads))), shape=(last + 1, last + 1))
    return int(matrix.size - maximum_flow(graph, 0, last).flow_value)


def spreads(step: Step) -> list[int]:
    """Most minus least of replicas, voters and primaries among equal nodes, the worst of all kinds of node."""
    problem, totals = step.problem, step.placed.totals()
    weights = problem.weights or (1.0,) * len(problem.nodes)
    domains = problem.domains or ("",) * len(problem.nodes)
    equals: dict[tuple[float, str], list[int]] = {}
    for at, kind in enumerate(zip(weights, domains, strict=True)):
        equals.setdefault(kind, []).append(at)
    return [max(int(np.ptp(level[members])) for members in equals.values()) for level in totals]


def assert_valid(step: Step) -> None:
    """No node twice in a partition, as many as asked for, and no two voters in one domain while there are
    domains enough."""
    problem, matrix = step.problem, step.placed.matrix
    assert matrix.shape == (problem.partitions, min(problem.replicas, len(problem.nodes)))
    ordered = np.sort(matrix, axis=1)
    assert (ordered[:, 1:] != ordered[:, :-1]).all()
    assert matrix.min() >= 0
    assert matrix.max() < len(problem.nodes)
    if problem.domains and len(set(problem.domains)) >= step.placed.voters:
        numbers = {name: at for at, name in enumerate(sorted(set(problem.domains)))}
        of = np.array([numbers[name] for name in problem.domains])
        voting = np.sort(of[matrix[:, : step.placed.voters]], axis=1)
        assert (voting[:, 1:] != voting[:, :-1]).all()
