"""The check of membership steps with one thing taken away: a condition, a part of one, or a comparison turned
round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from rebalance.core.moves import step_checks
from tests.model.mutants import loaded_from, places_in, source_of

CHECKS = step_checks.__name__


@dataclass(frozen=True)
class StepMutant:
    """``name`` says what is done, and where; ``number`` is that of its place, or of its condition."""

    name: str
    number: int
    is_condition: bool

    def checks(self) -> ModuleType:
        """Stands in for ``rebalance.core.moves.step_checks``."""
        tree = source_of(step_checks)
        if self.is_condition:
            _conditions(tree)[self.number][1].test = ast.Constant(value=False)
        else:
            places_in(tree, CHECKS)[self.number].apply()
        return loaded_from({CHECKS: tree})[0]


def step_mutants() -> Iterator[StepMutant]:
    tree = source_of(step_checks)
    for number, place in enumerate(places_in(tree, CHECKS)):
        yield StepMutant(place.name(), number, is_condition=False)
    for number, (function, node) in enumerate(_conditions(tree)):
        name = f"{function}:{node.lineno}: not asked: {ast.unparse(node.test)}"
        yield StepMutant(name, number, is_condition=True)


def _conditions(tree: ast.Module) -> list[tuple[str, ast.If]]:
    """Conditions that end in another answer than the rest of their function."""
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    return [(each.name, node) for each in functions for node in ast.walk(each) if isinstance(node, ast.If)]
