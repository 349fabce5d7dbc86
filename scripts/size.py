"""Lines of code by package: neither blanks nor comments nor docstrings.

    .venv/bin/python scripts/size.py

counts the product; other folders are named as arguments.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

PRODUCT = ("app", "parser", "catalog", "rebalance", "spark", "migrations")
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
    root = Path(__file__).parents[1]
    sizes: Counter[str] = Counter()
    for folder in folders:
        for path in (root / folder).rglob("*.py"):
            package = ".".join(path.relative_to(root).parts[:-1][:2])
            sizes[package] += code_lines(path.read_text())
    for package, size in sorted(sizes.items()):
        print(f"{package:32}{size:8,}")
    print(f"{'lines of code':32}{sizes.total():8,}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(PRODUCT))
