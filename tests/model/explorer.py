"""Breadth-first exploration of every state that a model can reach, to an empty frontier."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Violation:
    """``steps`` lead from the initial state to the one that broke the rule, the shortest way."""

    rule: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return "\n  ".join((f"broken: {self.rule}", *self.steps))


@dataclass(frozen=True, slots=True)
class Exploration:
    """``violation`` None: the frontier is empty, and no state breaks a rule."""

    states: int
    transitions: int
    seconds: float
    violation: Violation | None


class Explorer(Generic[S]):
    """``successors`` yields (step, broken rule or "", state); ``at_rest`` names what is wrong with a state in
    which nothing can happen any more. None: nothing need ever come to rest, only safety is checked."""

    def __init__(
        self,
        initial: S,
        successors: Callable[[S], Iterable[tuple[str, str, S]]],
        at_rest: Callable[[S], str] | None,
    ) -> None:
        self._initial, self._successors, self._at_rest = initial, successors, at_rest
        self._numbers: dict[S, int] = {initial: 0}
        self._parents = array("l", [-1])
        self._steps: list[str] = [""]
        self._edges_from, self._edges_to = array("l"), array("l")

    def run(self) -> Exploration:
        """Safety first, state by state; then that each state can still reach one that is well at rest."""
        begun = time.perf_counter()
        violation, resting = self._explore()
        if violation is None and self._at_rest is not None:
            violation = self._check_liveness(resting)
        seconds = time.perf_counter() - begun
        return Exploration(len(self._numbers), len(self._edges_to), seconds, violation)

    def _explore(self) -> tuple[Violation | None, list[int]]:
        numbers, resting = self._numbers, []
        level = [self._initial]
        while level:
            following: list[S] = []
            for state in level:
                number, moved = numbers[state], False
                for step, broken, reached in self._successors(state):
                    if broken:
                        return Violation(broken, (*self._way_to(number), step)), resting
                    if reached == state:
                        continue
                    moved = True
                    known = numbers.setdefault(reached, len(numbers))
                    self._edges_from.append(number)
                    self._edges_to.append(known)
                    if known == len(self._parents):
                        self._parents.append(number)
                        self._steps.append(step)
                        following.append(reached)
                if not moved and self._at_rest is not None:
                    broken = self._at_rest(state)
                    if broken:
                        return Violation(broken, self._way_to(number)), resting
                    resting.append(number)
            level = following
        return None, resting

    def _check_liveness(self, resting: list[int]) -> Violation | None:
        """Backwards from the states at rest; what is not met can only go round for ever."""
        before: list[array[int] | None] = [None] * len(self._numbers)
        for source, reached in zip(self._edges_from, self._edges_to, strict=True):
            sources = before[reached]
            if sources is None:
                before[reached] = array("l", [source])
            else:
                sources.append(source)
        met = bytearray(len(self._numbers))
        stack = list(resting)
        for number in stack:
            met[number] = 1
        while stack:
            for source in before[stack.pop()] or ():
                if not met[source]:
                    met[source] = 1
                    stack.append(source)
        lost = met.find(0)
        return None if lost < 0 else Violation("it can never come to rest from here", self._way_to(lost))

    def _way_to(self, number: int) -> tuple[str, ...]:
        steps: list[str] = []
        while number > 0:
            steps.append(self._steps[number])
            number = self._parents[number]
        return tuple(reversed(steps))
