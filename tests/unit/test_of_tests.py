"""Code that tests share is in ``tests.fixtures`` and in the packages of rigs, never in a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_test_module(module: str) -> bool:
    """Check that a module is one of tests, or a ``conftest``: pytest alone imports those."""
    path = TESTS.parent.joinpath(*module.split(".")).with_suffix(".py")
    return path.is_file() and (path.stem == "conftest" or path.stem.startswith(("test_", "bench_")))


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda path: path.name)
def test_nothing_is_imported_from_a_test_module(folder: Path) -> None:
    for path in folder.glob("*.py"):
        borrowed = [
            module for module in imported_modules(ast.parse(path.read_text())) if is_test_module(module)
        ]
        assert not borrowed, f"{path.relative_to(TESTS)}: move what it needs to tests/fixtures: {borrowed}"


def test_helper_modules_are_in_the_package_of_fixtures() -> None:
    assert {path.name for path in TESTS.glob("*.py")} == {"__init__.py", "conftest.py"}


def test_a_test_module_is_recognized() -> None:
    assert is_test_module("tests.unit.test_of_tests")
    assert is_test_module("tests.conftest")
    assert not is_test_module("tests.fixtures.ports")
    assert not is_test_module("tests.unit.test_cli")
