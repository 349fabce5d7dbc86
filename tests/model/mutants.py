"""The decisions with one thing taken away: a guard, a write, or a comparison turned round."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rebalance.core import change_lock, guarded_write
from tests.model.world import Decisions

WRITES, LOCK = "rebalance.core.guarded_write", "rebalance.core.change_lock"
_MUTANT = "mutant_of_guarded_write"
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.GtE: ast.Gt,
    ast.Gt: ast.GtE,
}
_NOT_PART_OF_IT = ("encode_", "decode_")
"""A value's format is shown by round trips, not by the protocol."""


@dataclass(frozen=True)
class Mutant:
    """``name`` says what was done, and where: module, function and line."""

    name: str
    decisions: Decisions


def mutants() -> Iterator[Mutant]:
    """Every one, one after the other; each has its own copy of both modules."""
    trees = {WRITES: _source(guarded_write), LOCK: _source(change_lock)}
    for module, tree in trees.items():
        for number in range(len(_places(tree))):
            changed = deepcopy(tree)
            done = _places(changed)[number].apply()
            yield Mutant(f"{module.rsplit('.', 1)[1]}: {done}", _loaded({**trees, module: changed}))


@dataclass
class _Place:
    """One thing that can be taken away. ``index``: of the argument, of the element, of the comparison."""

    function: str
    node: ast.Call | ast.Tuple | ast.Compare | ast.BoolOp
    index: int

    def apply(self) -> str:
        node, index = self.node, self.index
        before = ast.unparse(node)
        if isinstance(node, ast.Call):
            done = f"no guard on {ast.unparse(node.args.pop(index))}"
        elif isinstance(node, ast.Tuple):
            done = f"no {ast.unparse(node.elts.pop(index))}"
        elif isinstance(node, ast.Compare):
            node.ops[index] = _TURNED[type(node.ops[index])]()
            done = f"{before} turned to {ast.unparse(node)}"
        else:
            done = f"no {ast.unparse(node.values.pop(index))} in {before}"
            node.values = node.values * 2 if len(node.values) == 1 else node.values
        return f"{self.function}:{node.lineno}: {done}"


def _places(tree: ast.Module) -> list[_Place]:
    found: list[_Place] = []
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.name.startswith(_NOT_PART_OF_IT):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "guards_of":
                count = sum(not isinstance(each, ast.Starred) for each in node.args)
                found += [_Place(function.name, node, index) for index in range(count)]
            elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
                found += [
                    _Place(function.name, node, index)
                    for index, each in enumerate(node.elts)
                    if _is_write(each) or isinstance(each, ast.Starred)
                ]
            elif isinstance(node, ast.Compare):
                found += [_Place(function.name, node, index) for index in range(len(node.ops))]
            elif isinstance(node, ast.BoolOp):
                found += [_Place(function.name, node, index) for index in range(len(node.values))]
    return found


def _is_write(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_write(node.body)
    if isinstance(node, ast.Name):
        return node.id in ("stable", "trigger", "unlock")
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("Put", "Delete")


def _source(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text())


def _loaded(trees: dict[str, ast.Module]) -> Decisions:
    """Classes stay the product's own, so that values of both sides are equal."""
    writes = ModuleType(_MUTANT)
    sys.modules[_MUTANT] = writes
    try:
        _run(_with_own_classes(trees[WRITES], WRITES), writes)
        lock = ModuleType("mutant_of_change_lock")
        tree = deepcopy(_with_own_classes(trees[LOCK], LOCK))
        for each in tree.body:
            if isinstance(each, ast.ImportFrom) and each.module == WRITES:
                each.module = _MUTANT
        _run(tree, lock)
    finally:
        del sys.modules[_MUTANT]
    return Decisions.of(writes, lock)


def _with_own_classes(tree: ast.Module, module: str) -> ast.Module:
    body = [
        ast.ImportFrom(module, [ast.alias(each.name)], 0) if isinstance(each, ast.ClassDef) else each
        for each in tree.body
    ]
    return ast.Module(body, [])


def _run(tree: ast.Module, module: ModuleType) -> None:
    exec(compile(ast.fix_missing_locations(tree), module.__name__, "exec"), module.__dict__)
