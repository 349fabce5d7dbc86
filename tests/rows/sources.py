"""The tests as they are written: the functions, what they name, and the row markers that they carry.

Read from the syntax trees, without importing or collecting anything: it takes a second for all tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
NOT_USUAL = frozenset({"soak", "long", "thorough"})
"""Markers of tests that ``make test`` leaves out (``USUAL`` in the Makefile)."""


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """``path`` below the root of the repository; ``name`` as pytest prints it, without parameters; ``rows``: of
    ``@pytest.mark.row("I3-021", "I3-024..027")``; ``is_usual``: ``make test`` runs it."""

    path: str
    name: str
    rows: tuple[str, ...]
    is_usual: bool = True

    @property
    def id(self) -> str:
        return f"{self.path}::{self.name}"


@dataclass(slots=True)
class Source:
    """One Python file of the tests. ``definitions``: functions, classes and values of the module by name;
    ``imports``: local name -> (module, name in it), with an empty name for a module itself."""

    path: Path
    module: str
    tree: ast.Module
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)


class Sources:
    """The files below ``tests`` by module name, each read when it is first needed."""

    def __init__(self) -> None:
        self.paths = {_module(path): path for path in sorted(TESTS.rglob("*.py"))}
        self._read: dict[str, Source] = {}

    def get(self, module: str) -> Source | None:
        """None: the tests have no such module."""
        if module not in self._read:
            if module not in self.paths:
                return None
            self._read[module] = _read(self.paths[module], module)
        return self._read[module]

    def __iter__(self) -> Iterator[Source]:
        """The test modules whose text holds a row marker."""
        for module, path in self.paths.items():
            if path.name.startswith("test_") and "mark.row(" in path.read_text():
                source = self.get(module)
                assert source is not None
                yield source


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read(path: Path, module: str) -> Source:
    source = Source(path, module, ast.parse(path.read_text(), str(path)))
    for statement in source.tree.body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                source.definitions[statement.name] = statement
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                source.definitions[name] = statement
    # Imports inside functions count as well.
    for node in ast.walk(source.tree):
        match node:
            case ast.ImportFrom(module=str(origin), names=names, level=0):
                source.imports |= {name.asname or name.name: (origin, name.name) for name in names}
            case ast.Import(names=names):
                source.imports |= {name.asname or name.name: (name.name, "") for name in names}
    return source


def marked_tests(source: Source) -> Iterator[MarkedTest]:
    """Every test of the file with a row marker: its own, its class's, its module's, or a parameter's."""
    path = source.path.relative_to(ROOT).as_posix()
    of_module = _assigned(source.definitions.get("pytestmark"))
    for name, decorators in _decorated(source.tree.body, "", of_module):
        if rows := tuple(_rows(decorators)):
            yield MarkedTest(path, name, rows, not any(map(_is_left_out, decorators)))


def _decorated(
    body: Iterable[ast.stmt], prefix: str, inherited: list[ast.expr]
) -> Iterator[tuple[str, list[ast.expr]]]:
    """Each test with what decorates it, its classes and its module."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) if name.startswith("Test"):
                decorators = [*inherited, *statement.decorator_list]
                tests = list(_decorated(statement.body, f"{prefix}{name}::", decorators))
                # A state machine's class inherits its test.
                yield from tests or [(f"{prefix}{name}", decorators)]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test"):
                yield f"{prefix}{name}", [*inherited, *statement.decorator_list]


def _assigned(statement: ast.stmt | None) -> list[ast.expr]:
    """The markers of ``pytestmark``, one or several."""
    match statement:
        case ast.Assign(value=ast.List(elts=markers) | ast.Tuple(elts=markers)):
            return markers
        case ast.Assign(value=marker):
            return [marker]
    return []


def _is_left_out(decorator: ast.expr) -> bool:
    """A marker of ``NOT_USUAL``, with or without arguments; not one of a single parameter."""
    name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.removeprefix("pytest.mark.") in NOT_USUAL


def _rows(expressions: Iterable[ast.expr]) -> Iterator[str]:
    """Rows of markers in decorators, ``marks=`` of parameters and ``pytestmark`` alike.

    ValueError: it has more than ids, or one that is no literal, and cannot be read without running it."""
    for expression in expressions:
        for node in ast.walk(expression):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="row"), args=arguments):
                    if node.keywords:
                        raise ValueError(f"{ast.unparse(node)}: a row's marker has ids alone")
                    for argument in arguments:
                        yield from expanded(ast.literal_eval(argument))


def expanded(text: str) -> Iterator[str]:
    """``I3-016..018`` -> I3-016, I3-017, I3-018; any other text as it is."""
    match = re.fullmatch(r"(\w+-)(\d{3})\.\.(\d{3})", text)
    if match is None:
        yield text
    else:
        yield from (f"{match[1]}{number:03d}" for number in range(int(match[2]), int(match[3]) + 1))
