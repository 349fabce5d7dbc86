"""Reach of a test, as far as names show it: through the fixtures and helpers of the tests, up to the
product."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.rows.sources import Source, Sources

Name = tuple[str, str]
"""Module, and name in it."""
PROGRAMS = ("app.cli",)
"""Programs that command lines of the tests name, beside test modules: ``(<program>, "main")`` stands for
one."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Reach:
    """Follows names from one test to another, never the text of the product."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._named: dict[Name, frozenset[Name]] = {}
        self._fixtures: dict[str, dict[str, str]] = {}

    def of(self, source: Source, test: str) -> frozenset[Name]:
        """All names that ``test`` (``name`` or ``Class::name``) reaches, of the tests and of the product."""
        reached: set[Name] = set()
        waiting: list[Name] = list(self._names_in(source, _find(source.tree, test.split("::"))))
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self._behind(name)
        return frozenset(reached)

    def _behind(self, name: Name) -> frozenset[Name]:
        """Names in the definition of ``name``; none for names of the product."""
        if name not in self._named:
            source = self._sources.get(name[0])
            names: Iterator[Name] = iter(())
            if source is not None and name[1] in source.definitions:
                names = self._names_in(source, source.definitions[name[1]])
            elif source is not None and name[1] in source.imports:
                names = iter([source.imports[name[1]]])
            self._named[name] = frozenset(names)
        return self._named[name]

    def _names_in(self, source: Source, body: ast.AST) -> Iterator[Name]:
        for node in ast.walk(body):
            match node:
                case ast.Name(id=name) if name in source.imports:
                    yield source.imports[name]
                case ast.Name(id=name) if name in source.definitions:
                    yield (source.module, name)
                case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in source.imports:
                    yield (".".join(filter(None, source.imports[name])), attribute)
                case ast.arg(arg=name):
                    yield from self._fixture(source, name)
                case ast.Constant(value=str(module)) if self._is_program(module):
                    yield (module, "main")
                case ast.Call(func=ast.Attribute(attr="usefixtures" | "getfixturevalue"), args=arguments):
                    for argument in arguments:
                        if isinstance(argument, ast.Constant):
                            yield from self._fixture(source, str(argument.value))

    def _is_program(self, text: str) -> bool:
        return text in PROGRAMS or (text.startswith("tests.") and self._sources.get(text) is not None)

    def _fixture(self, source: Source, name: str) -> Iterator[Name]:
        """The nearest of that name: imported, in the module, in a conftest above it, in a plugin."""
        if name in source.imports:
            yield source.imports[name]
            return
        parts = source.module.split(".")
        above = [".".join([*parts[:depth], "conftest"]) for depth in range(len(parts) - 1, 0, -1)]
        for module in (source.module, *above, *self._plugins()):
            if local := self._fixtures_of(module).get(name):
                yield (module, local)
                return

    def _fixtures_of(self, module: str) -> dict[str, str]:
        """Name of each fixture that the module defines -> of its function."""
        if module not in self._fixtures:
            source = self._sources.get(module)
            functions = source.definitions.items() if source is not None else ()
            self._fixtures[module] = {
                fixture: name
                for name, statement in functions
                if isinstance(statement, Function) and (fixture := _fixture_name(statement))
            }
        return self._fixtures[module]

    def _plugins(self) -> tuple[str, ...]:
        conftest = self._sources.get("tests.conftest")
        match conftest and conftest.definitions.get("pytest_plugins"):
            case ast.Assign(value=value):
                return tuple(ast.literal_eval(value))
        return ()


def _find(tree: ast.AST, names: list[str]) -> ast.AST:
    for name in names:
        body: list[ast.stmt] = getattr(tree, "body", [])
        tree = next(statement for statement in body if getattr(statement, "name", "") == name)
    return tree


def _fixture_name(statement: Function) -> str:
    """Empty: it is none."""
    for decorator in statement.decorator_list:
        if "fixture" in ast.unparse(decorator):
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            names = [ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg == "name"]
            return str(names[0]) if names else statement.name
    return ""
