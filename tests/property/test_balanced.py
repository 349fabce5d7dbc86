"""Balanced placement after any change: even at every level, and hardly more moves than are needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalance.kernels.balanced import Placed, PlacementProblem, balance, plan, settle
from tests.fixtures.balanced_events import DOMAIN_SHAPES, SHAPES, Shape, Zone, assert_valid, spreads
from tests.fixtures.examples import examples

EVENTS = 12
PER_EVENT, PER_RUN = 1.1, 1.01


@pytest.mark.row("IEP-036")
@pytest.mark.parametrize("shape", [*SHAPES, *DOMAIN_SHAPES], ids=lambda shape: shape.name)
def test_even_after_every_event(shape: Shape) -> None:
    """IEP-036: replicas, voters and primaries of equal nodes differ by one at most; what is even stays."""
    for step in Zone(shape, seed=1).steps(EVENTS):
        assert_valid(step)
        assert max(spreads(step)) <= 1, step.event
        again = balance(replace(step.problem, previous=step.placed))
        assert np.array_equal(again, step.placed.matrix), step.event


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_moves_hardly_more_than_it_must(shape: Shape) -> None:
    moved = bound = 0
    for step in Zone(shape, seed=2).steps(EVENTS):
        assert step.moved <= PER_EVENT * step.bound, (step.event, step.moved, step.bound)
        moved, bound = moved + step.moved, bound + step.bound
    assert moved <= PER_RUN * bound


@pytest.mark.soak
def test_five_hundred_events() -> None:
    """The bounds after each of 500 events; prints the figures."""
    events, moved, bound, worst, seed = 0, 0, 0, 1.0, 0
    while events < 500:
        for shape in SHAPES:
            seed += 1
            for step in Zone(shape, seed).steps(16):
                assert_valid(step)
                assert max(spreads(step)) <= 1
                assert step.moved <= PER_EVENT * step.bound, (
                    shape.name,
                    seed,
                    step.event,
                    step.moved,
                    step.bound,
                )
                moved, bound, events = moved + step.moved, bound + step.bound, events + (step.event != "create")
                worst = max(worst, step.moved / step.bound if step.bound else 1.0)
    print(f"balanced: {events} events, moves {moved / bound:.4f} of the least, worst event {worst:.3f}")
    assert moved <= PER_RUN * bound


NAMES = st.lists(st.sampled_from([f"n{number}" for number in range(9)]), min_size=1, max_size=9, unique=True)


@st.composite
def problems(
    draw: st.DrawFn, previous: Placed | None = None, partitions: int | None = None
) -> PlacementProblem:
    nodes = tuple(draw(NAMES))
    replicas = draw(st.integers(1, 6))
    weights = draw(st.just(()) | st.tuples(*[st.sampled_from([0.5, 1.0, 2.0])] * len(nodes)))
    domains = draw(st.just(()) | st.tuples(*[st.sampled_from("abc")] * len(nodes)))
    return PlacementProblem(
        nodes,
        draw(st.integers(0, 40)) if partitions is None else partitions,
        replicas,
        draw(st.integers(1, replicas)),
        previous,
        weights,
        domains,
    )


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_small_zones_stay_valid_and_even(data: st.DataObject) -> None:
    """Anything may change at once, and the zone is too small for statistics to help."""
    problem = data.draw(problems())
    for _ in range(3):
        matrix = balance(problem)
        placed = Placed(problem.nodes, matrix, min(problem.voters, matrix.shape[1]))
        width = min(problem.replicas, len(problem.nodes))
        assert matrix.shape == (problem.partitions, width)
        ordered = np.sort(matrix, axis=1)
        assert (ordered[:, 1:] != ordered[:, :-1]).all()
        if not problem.weights and not problem.domains and problem.partitions:
            assert all(np.ptp(level) <= 1 for level in placed.totals())
        assert np.array_equal(balance(replace(problem, previous=placed)), matrix)
        problem = data.draw(problems(placed, problem.partitions))


def test_ceilings_of_many_zones_do_not_pile_up() -> None:
    """Twenty zones on the same nodes, placed one after another, through joins and leaves."""
    nodes = tuple(f"n{number}" for number in range(7))
    zones: dict[int, tuple[PlacementProblem, np.ndarray]] = {}
    placed: dict[int, Placed] = {}
    for event in range(12):
        if event % 3 == 1:
            nodes = (*nodes, f"joined-{event}")
        elif event % 3 == 2:
            nodes = nodes[2:]
        for number in range(20):
            elsewhere = np.zeros((3, len(nodes)))
            for other, (problem, surplus) in zones.items():
                for at, name in enumerate(problem.nodes):
                    if other != number and name in nodes:
                        elsewhere[:, nodes.index(name)] += surplus[:, at]
            replicas = (1, 2, 3, 5)[number % 4]
            partitions = (25, 64, 100, 1000)[number // 4 % 4]
            wanted = PlacementProblem(
                nodes, partitions, replicas, replicas, placed.get(number), elsewhere=elsewhere
            )
            made = plan(wanted)
            placed[number] = Placed(nodes, settle(made), replicas)
            zones[number] = (wanted, made.surplus())
        totals = np.sum([each.totals() for each in placed.values()], axis=0)
        assert np.ptp(totals, axis=1).max() <= 4, event
        alone = np.sum([balance(replace(problem, elsewhere=None)).size for problem, _ in zones.values()])
        assert totals[0].sum() == alone


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (PlacementProblem(("a", "b"), 4, 1, 1, weights=(1.0,)), "1 weights for 2 nodes"),
        (PlacementProblem(("a", "b"), 4, 1, 1, weights=(1.0, 0.0)), "weights must be positive"),
        (PlacementProblem(("a", "b"), 4, 1, 1, domains=("x",)), "1 domains for 2 nodes"),
        (PlacementProblem(("a", "a"), 4, 1, 1), "named twice"),
        (PlacementProblem(("a", "b"), 4, 0, 1), "at least 1"),
        (
            PlacementProblem(("a",), 4, 1, 1, Placed(("a",), np.zeros((3, 1), np.int32), 1)),
            "3 partitions, not 4",
        ),
    ],
)
def test_what_cannot_be_placed_is_said(problem: PlacementProblem, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        balance(problem)
