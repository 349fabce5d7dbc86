"""The decisions with one thing taken away: a guard, a write, or a comparison turned round."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rebalance.core.assignments import change_lock, guarded_write, withdrawal
from rebalance.core.moves import joiners
from tests.model.world import Decisions

WRITES = guarded_write.__name__
MODULES = (guarded_write, change_lock, joiners, withdrawal)
"""The first one is what the others import."""
_PARTS: dict[str, tuple[str, ...]] = {
    joiners.__name__: ("decide_on_joiners_gone", "target_without", "joiners_of", "_recorded"),
    withdrawal.__name__: ("decide_on_withdrawal", "decide_on_call_back", "_voters"),
}
"""Functions to change in these modules: the decisions and what they call; of the others everything."""
_MUTANT = "mutant_of_"
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.GtE: ast.Gt,
    ast.Gt: ast.GtE,
    ast.LtE: ast.Lt,
    ast.Lt: ast.LtE,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NOT_PART_OF_IT = ("encode_", "decode_")
"""A value's format is shown by round trips, not by the protocol."""


@dataclass(frozen=True)
class Mutant:
    """``name`` says what is done, and where: module, function and line. It is done when it is asked for: each
    worker of a run collects every mutant."""

    name: str
    module: str
    place: int

    def decisions(self) -> Decisions:
        """Decisions of the mutant, with a copy of all modules of its own."""
        trees = {module.__name__: source_of(module) for module in MODULES}
        places_in(trees[self.module], self.module)[self.place].apply()
        return Decisions.of(*loaded_from(trees))


def mutants() -> Iterator[Mutant]:
    """Every one, one after the other."""
    for module in MODULES:
        for number, place in enumerate(places_in(source_of(module), module.__name__)):
            yield Mutant(f"{module.__name__.rsplit('.', 1)[1]}: {place.name()}", module.__name__, number)


@dataclass
class Place:
    """One thing that can be taken away. ``index``: of the argument, of the element, of the comparison."""

    function: str
    node: ast.Call | ast.Tuple | ast.Compare | ast.BoolOp
    index: int

    def name(self) -> str:
        node, index = self.node, self.index
        if isinstance(node, ast.Call):
            change = f"no guard on {ast.unparse(node.args[index])}"
        elif isinstance(node, ast.Tuple):
            change = f"no {ast.unparse(node.elts[index])} in {ast.unparse(node)}"
        elif isinstance(node, ast.Compare):
            turned = ast.Compare(node.left, self._turned_ops(node), node.comparators)
            change = f"{ast.unparse(node)} turned to {ast.unparse(turned)}"
        else:
            change = f"no {ast.unparse(node.values[index])} in {ast.unparse(node)}"
        return f"{self.function}:{node.lineno}: {change}"

    def apply(self) -> None:
        """Changes the tree that the place is in."""
        node, index = self.node, self.index
        if isinstance(node, ast.Call):
            del node.args[index]
        elif isinstance(node, ast.Tuple):
            del node.elts[index]
        elif isinstance(node, ast.Compare):
            node.ops = self._turned_ops(node)
        else:
            del node.values[index]
            node.values = node.values * 2 if len(node.values) == 1 else node.values

    def _turned_ops(self, node: ast.Compare) -> list[ast.cmpop]:
        return [_TURNED[type(op)]() if number == self.index else op for number, op in enumerate(node.ops)]


def places_in(tree: ast.Module, module: str) -> list[Place]:
    found: list[Place] = []
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.name.startswith(_NOT_PART_OF_IT):
            continue
        if function.name not in _PARTS.get(module, (function.name,)):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "observed.guards":
                count = sum(not isinstance(each, ast.Starred) for each in node.args)
                found += [Place(function.name, node, index) for index in range(count)]
            elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
                found += [
                    Place(function.name, node, index)
                    for index, each in enumerate(node.elts)
                    if _is_write(each) or isinstance(each, ast.Starred)
                ]
            elif isinstance(node, ast.Compare):
                found += [Place(function.name, node, index) for index in range(len(node.ops))]
            elif isinstance(node, ast.BoolOp):
                found += [Place(function.name, node, index) for index in range(len(node.values))]
    return found


def _is_write(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_write(node.body)
    if isinstance(node, ast.Name):
        return node.id in ("stable", "trigger", "unlock", "put")
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("Put", "Delete", "unchanged", "as_read")


def source_of(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text())


def loaded_from(trees: dict[str, ast.Module]) -> list[ModuleType]:
    """Load modules in order. Classes stay the product's own, so that values of both sides are equal."""
    loaded: list[ModuleType] = []
    try:
        for name, tree in trees.items():
            module = ModuleType(_MUTANT + name.rsplit(".", 1)[1])
            sys.modules[module.__name__] = module
            loaded.append(module)
            body = [_own(each, name) for each in tree.body]
            code = compile(ast.fix_missing_locations(ast.Module(body, [])), module.__name__, "exec")
            exec(code, module.__dict__)
    finally:
        for module in loaded:
            del sys.modules[module.__name__]
    return loaded


def _own(statement: ast.stmt, module: str) -> ast.stmt:
    if isinstance(statement, ast.ClassDef):
        return ast.ImportFrom(module, [ast.alias(statement.name)], 0)
    if isinstance(statement, ast.ImportFrom) and statement.module == WRITES:
        return ast.ImportFrom(_MUTANT + WRITES.rsplit(".", 1)[1], statement.names, 0)
    return statement
