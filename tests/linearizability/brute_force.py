"""The definition itself, for tiny histories: try every order of every choice of what took effect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations, permutations

from tests.linearizability.history import Operation


def is_linearizable(history: Sequence[Operation]) -> bool:
    """Slow without shame: all orders of all subsets of the operations whose outcome is unknown."""
    by_key: defaultdict[str, list[Operation]] = defaultdict(list)
    for each in history:
        by_key[each.key].append(each)
    return all(_has_order(operations) for operations in by_key.values())


def _has_order(operations: Sequence[Operation]) -> bool:
    told = [each for each in operations if each.returned is not None]
    unknown = [each for each in operations if each.returned is None]
    for count in range(len(unknown) + 1):
        for chosen in combinations(unknown, count):
            if any(_explains(order) for order in permutations([*told, *chosen])):
                return True
    return False


def _explains(order: Sequence[Operation]) -> bool:
    for index, earlier in enumerate(order):
        for later in order[index + 1 :]:
            if later.returned is not None and later.returned < earlier.invoked:
                return False
    state: str | None = None
    for each in order:
        if not each.fits(state):
            return False
        state = each.value if each.changes else state
    return True
