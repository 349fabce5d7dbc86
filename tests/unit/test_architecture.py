"""The architecture as written is the architecture as built."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest

from rebalance.ports.groups import GroupChange, GroupHost

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "parser", "catalog", "rebalance", "spark", "migrations")
BESIDE = ("simulator", "monitoring", "scripts")
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 8


def flow_table_names() -> list[str]:
    text = (ROOT / "app/tech-notes/ways.md").read_text().split("## The way of a statement")[1].split("\n## ")[0]
    return re.findall(rf"`((?:{'|'.join(PACKAGES)})\.[\w.]+)`", text)


@pytest.mark.parametrize("name", flow_table_names())
def test_the_flow_table_names_what_exists(name: str) -> None:
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[split:]:
            found = getattr(found, attribute)
        assert callable(found)
        return
    pytest.fail(f"no module of {name} exists")


def test_the_flow_table_was_read() -> None:
    assert len(flow_table_names()) >= 14


def test_layers_import_downwards_only() -> None:
    """The contracts of pyproject.toml, kept."""
    program = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([str(program), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert len(contracts) >= 4


@pytest.mark.parametrize("port", [GroupHost, GroupChange])
def test_a_group_host_is_given_nothing_to_call_its_agent_by(port: type) -> None:
    """Values go down and values come back: no parameter is a callable or a protocol."""
    methods = [member for name, member in vars(port).items() if callable(member) and name[0] != "_"]
    assert methods
    for method in methods:
        for name, hint in get_type_hints(method).items():
            for each in (hint, *get_args(hint)):
                is_port = getattr(each, "_is_protocol", False)
                assert name == "return" or (not is_port and get_origin(each) is not Callable), (method, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_files_keep_their_size(package: str) -> None:
    """Files of up to 600 lines; the names util, helper, manager, process, data and info tell nothing."""
    for path in (ROOT / package).rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 600, path
        assert not re.search(r"(^|_)(util|utils|helper|helpers|manager|data|info)$", path.stem), path


def test_vague_names_are_not_module_names() -> None:
    allowed = {"data_nodes", "data_client"}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert path.stem in allowed or not path.stem.startswith(("data_", "process_", "info_")), path


@cache
def code() -> tuple[dict[str, ast.arguments], dict[str, int], list[tuple[str, ast.expr]]]:
    """The parameters and the lines of each function, and what calls give by a star."""
    parameters, sizes, given = dict[str, ast.arguments](), dict[str, int](), list[tuple[str, ast.expr]]()
    for path in sorted(path for package in (*PACKAGES, *BESIDE) for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                parameters[place] = node.args
                sizes[place] = (node.end_lineno or 0) - node.lineno + 1
            elif isinstance(node, ast.Call):
                stars = (each.value for each in node.args if isinstance(each, ast.Starred))
                given += [(f"{path.relative_to(ROOT)}:{node.lineno}", value) for value in stars]
    assert len(sizes) > 5_000
    return parameters, sizes, given


def test_functions_keep_their_size() -> None:
    """Their docstring counts."""
    assert {place: size for place, size in code()[1].items() if size > FUNCTION_LINES_MAX} == {}


def test_more_than_eight_parameters_are_a_value() -> None:
    found = {}
    for place, each in code()[0].items():
        more = [one for one in (each.vararg, each.kwarg) if one is not None]
        names = [one.arg for one in (*each.posonlyargs, *each.args, *each.kwonlyargs, *more)]
        found[place] = [name for name in names if name not in ("self", "cls")]
    assert {place: names for place, names in found.items() if len(names) > PARAMETERS_MAX} == {}


def test_calls_say_what_they_give() -> None:
    """No ``f(*(a, b))``, which hides from the reader, and from a formatter, which parameters these are."""
    given = code()[2]
    assert given
    assert [place for place, value in given if isinstance(value, ast.Tuple | ast.List)] == []
