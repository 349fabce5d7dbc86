"""Shares of replicas, voters and primaries that each node should hold: whole numbers next to exact quotas.

A quota is a node's share of a level by weight, water-filled: nobody holds more copies of a zone than it has
partitions, nor a failure domain more voters of a partition than its cap. Quotas are fractions, so that equal
nodes have equal ones and a floor is never off by one. A target is its quota's floor or ceiling: two nodes of
equal weight (in one domain, where there are domains) differ by at most one, at every level.

Levels are nested, primary <= voter <= replica on every node, and so are the targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

ROUNDING = 1e-6
LARGE_ZONE = 1000
"""Partitions from which on every unneeded move counts."""


@dataclass(frozen=True, slots=True)
class Level:
    """``targets`` int64 [N] sums to the level's total; ``low``, ``high`` are the quotas' floors and ceilings,
    between which a repair may choose otherwise."""

    targets: Counts
    low: Counts
    high: Counts


@dataclass(frozen=True, slots=True)
class Quotas:
    """Exact shares of each node, N fractions a level."""

    replicas: tuple[Fraction, ...]
    voters: tuple[Fraction, ...]
    primaries: tuple[Fraction, ...]

    @property
    def shares(self) -> Shares:
        """float64 [3, N]."""
        return np.array([self.replicas, self.voters, self.primaries], dtype=np.float64)


def voters_per_domain(sizes: Sequence[int], voters: int) -> list[int]:
    """Return how many voters of one partition each failure domain may hold: one while there are domains enough,
    else the smallest number that places all of them. ``sizes`` are the domains' nodes."""
    cap = 1
    while sum(min(cap, size) for size in sizes) < voters:
        cap += 1
    return [min(cap, size) for size in sizes]


def zone_quotas(
    weights: Sequence[float], domains: Sequence[int] | None, partitions: int, replicas: int, voters: int
) -> Quotas:
    """Shares of N nodes; ``domains`` numbers each node's failure domain from 0, None: there are none.

    ``voters <= replicas <= N`` is the caller's to see to. Without domains voters and primaries follow the
    replicas, which makes every level reachable by roles alone; with them replicas follow the voters.
    """
    exact = [Fraction(weight) for weight in weights]
    whole = [Fraction(partitions)] * len(exact)
    none = [Fraction(0)] * len(exact)
    if domains is None:
        of_replicas = _filled(partitions * replicas, exact, none, whole)
        of_voters = [share * Fraction(voters, replicas) for share in of_replicas]
    else:
        of_voters = _domain_shares(exact, domains, partitions, voters)
        of_replicas = _filled(partitions * replicas, exact, of_voters, whole)
    of_primaries = [share / voters for share in of_voters]
    return Quotas(tuple(of_replicas), tuple(of_voters), tuple(of_primaries))


def _domain_shares(
    weights: list[Fraction], domains: Sequence[int], partitions: int, voters: int
) -> list[Fraction]:
    members: list[list[int]] = [[] for _ in range(max(domains) + 1)]
    for node, domain in enumerate(domains):
        members[domain].append(node)
    caps = voters_per_domain([len(nodes) for nodes in members], voters)
    totals = _filled(
        partitions * voters,
        [sum((weights[node] for node in nodes), Fraction(0)) for nodes in members],
        [Fraction(0)] * len(members),
        [Fraction(partitions * cap) for cap in caps],
    )
    shares = [Fraction(0)] * len(weights)
    for nodes, total in zip(members, totals, strict=True):
        inside = [weights[node] for node in nodes]
        bounds = [Fraction(0)] * len(nodes), [Fraction(partitions)] * len(nodes)
        for node, share in zip(nodes, _filled(total, inside, *bounds), strict=True):
            shares[node] = share
    return shares


def _filled(
    total: Fraction | int, weights: list[Fraction], low: list[Fraction], high: list[Fraction]
) -> list[Fraction]:
    """``total`` split by weight, each share between its bounds: clamp who is outside, split the rest again.

    Of the two kinds of violation the one that weighs more is clamped; the other may have gone by then.
    """
    shares: dict[int, Fraction] = {}
    left, free = Fraction(total), list(range(len(weights)))
    while free:
        unit = left / sum(weights[node] for node in free)
        below = [node for node in free if unit * weights[node] < low[node]]
        above = [node for node in free if unit * weights[node] > high[node]]
        missing = sum((low[node] - unit * weights[node] for node in below), Fraction(0))
        excess = sum((unit * weights[node] - high[node] for node in above), Fraction(0))
        clamped, bound = (below, low) if missing > excess else (above, high)
        if not clamped and not below:
            shares.update((node, unit * weights[node]) for node in free)
            break
        for node in clamped or below:
            shares[node] = bound[node] if clamped else low[node]
            left -= shares[node]
        free = [node for node in free if node not in shares]
    return [shares[node] for node in range(len(weights))]


@dataclass(frozen=True, slots=True)
class Standing:
    """Standing of nodes that compete for a level's ceilings: ``held`` int64 [N] is what each holds of this zone
    already, ``elsewhere`` float64 [N] how far other zones' copies on it are above their shares. With ``fresh``
    nothing is held yet in truth, and other zones decide first."""

    held: Counts
    elsewhere: Shares
    fresh: bool

    def slack(self, low: Counts, partitions: int) -> int:
        """Return how many ceilings may go to another node than the cheapest, one more move each, so that totals
        over all zones are even: a small part of what moves anyway, so none where nothing does. A newcomer holds
        nothing, and would otherwise get the floor of every zone."""
        moves = int(np.maximum(low - self.held, 0).sum())
        if partitions >= LARGE_ZONE:
            return moves // 200
        return min(moves, max(2, moves // 8))


def nested_targets(
    quotas: Quotas, partitions: int, sizes: tuple[int, int], standing: Sequence[Standing]
) -> list[Level]:
    """Targets of replicas, voters and primaries; ``sizes`` are replicas and voters of a partition, ``standing``
    is in the order of the levels.

    The ceilings go to the nodes that hold most (nothing moves then), among equals to those that got
    fewest of other zones. Inner levels choose first; an outer one follows where its floor is below the inner
    target.
    """
    levels = (quotas.replicas, quotas.voters, quotas.primaries)
    totals = (partitions * sizes[0], partitions * sizes[1], partitions)
    inner = np.zeros(len(quotas.replicas), dtype=np.int64)
    chosen: list[Level] = []
    for shares, total, at in zip(reversed(levels), reversed(totals), reversed(standing), strict=True):
        low = np.array([share.numerator // share.denominator for share in shares], dtype=np.int64)
        high = np.array([-(-share.numerator // share.denominator) for share in shares], dtype=np.int64)
        targets = low.copy()
        order = sorted(
            (int(node) for node in np.flatnonzero(high > low)),
            key=lambda node: (
                targets[node] >= inner[node],
                *_rank(at, node, int(low[node])),
            ),
        )
        targets[order[: total - int(low.sum())]] += 1
        _lean(Level(targets, low, high), inner, shares, at, partitions)
        chosen.append(Level(targets, low, high))
        inner = targets
    return _nested(chosen[::-1])


def _lean(level: Level, inner: Counts, shares: tuple[Fraction, ...], at: Standing, partitions: int) -> None:
    """Give ceilings to nodes that got fewer of them in other zones, as far as ``at.slack`` goes."""
    quota = np.array([float(share) for share in shares])
    targets, low, high = level.targets, level.low, level.high
    for _ in range(0 if at.fresh else at.slack(low, partitions)):
        above = targets - quota + at.elsewhere
        givers = np.flatnonzero((targets > low) & (targets > inner))
        takers = np.flatnonzero(targets < high)
        if not len(givers) or not len(takers):
            return
        giver = givers[np.argmax(above[givers])]
        taker = takers[np.argmin(above[takers])]
        if above[giver] - above[taker] <= 1 + ROUNDING:
            return
        targets[giver] -= 1
        targets[taker] += 1


def _rank(at: Standing, node: int, floor: int) -> tuple[float, ...]:
    held, elsewhere = int(at.held[node]), round(float(at.elsewhere[node]), 6)
    if at.fresh:
        return elsewhere, -held, node
    return int(held <= floor), elsewhere, -held, node


def _nested(levels: list[Level]) -> list[Level]:
    """Give an inner ceiling to another node where unequal weights left an inner target above the outer one."""
    for outer, inner in pairwise(levels):
        for node in np.flatnonzero(inner.targets > outer.targets):
            takers = np.flatnonzero((inner.targets < inner.high) & (inner.targets < outer.targets))
            if len(takers):
                inner.targets[node] -= 1
                inner.targets[takers[0]] += 1
    return levels
