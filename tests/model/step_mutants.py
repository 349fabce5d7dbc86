"""The check of membership steps with one thing taken away: a condition, a part of one, or a comparison turned
round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from types import ModuleType

from rebalance.core import step_checks
from tests.model.mutants import loaded_from, places_in, source_of

CHECKS = step_checks.__name__


@dataclass(frozen=True)
class StepMutant:
    """``name`` says what was done, and where; ``checks`` stands in for ``rebalance.core.step_checks``."""

    name: str
    checks: ModuleType


def step_mutants() -> Iterator[StepMutant]:
    tree = source_of(step_checks)
    for number in range(len(places_in(tree, CHECKS))):
        changed = deepcopy(tree)
        done = places_in(changed, CHECKS)[number].apply()
        yield StepMutant(done, _loaded(changed))
    for number in range(len(_conditions(tree))):
        changed = deepcopy(tree)
        function, node = _conditions(changed)[number]
        done = f"{function}:{node.lineno}: not asked: {ast.unparse(node.test)}"
        node.test = ast.Constant(value=False)
        yield StepMutant(done, _loaded(changed))


def _conditions(tree: ast.Module) -> list[tuple[str, ast.If]]:
    """What ends in another answer than the rest of its function."""
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    return [(each.name, node) for each in functions for node in ast.walk(each) if isinstance(node, ast.If)]


def _loaded(tree: ast.Module) -> ModuleType:
    return loaded_from({CHECKS: tree})[0]
