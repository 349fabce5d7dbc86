"""Size and tidiness of the product: lines of code by package (neither blanks nor comments nor docstrings),
class names that mean two things, and imports that close a circle.

    .venv/bin/python scripts/house.py

counts the product, and what is beside it; ``scripts/house.py tests`` counts another folder's lines.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PRODUCT = ("app", "parser", "catalog", "rebalance", "spark", "migrations")
BESIDE = ("clients", "simulator", "scripts", "monitoring")
"""Folders that are a distribution of their own, or are not shipped, or not as code."""
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def docstring_lines(text: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_lines(text: str) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(text))


def main(folders: list[str]) -> None:
    sizes: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            package = ".".join(path.relative_to(ROOT).parts[:-1][:2])
            text = path.read_text()
            sizes[package] += code_lines(text)
            classes.update(node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    for package, size in sorted(sizes.items()):
        print(f"{package:36}{size:8,}")
    print(f"{'lines of code':36}{sizes.total():8,}")
    repeated = sorted(name for name, times in classes.items() if times > 1)
    print(f"{'class names that stand twice':36}{len(repeated):8,}  {', '.join(repeated)}".rstrip())
    if folders == list(PRODUCT):
        for folder in BESIDE:
            size = sum(code_lines(path.read_text()) for path in (ROOT / folder).rglob("*.py"))
            print(f"{f'beside it: {folder}':36}{size:8,}")
        graph = grimp.build_graph(*PRODUCT, cache_dir=None)
        packages = [module for module in graph.modules if graph.find_children(module)]
        circles = sum(len(graph.nominate_cycle_breakers(package)) for package in packages)
        print(f"{'imports that close a circle':36}{circles:8,}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(PRODUCT))
