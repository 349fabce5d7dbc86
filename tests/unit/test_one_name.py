"""A name means one thing in the whole product."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "parser", "catalog", "rebalance", "spark", "migrations")

SHARED_CLASSES = {}
"""Names that two classes have, and why. At most ten."""

SUBJECTS = {
    "admission",
    "alerts",
    "audit",
    "errors",
    "health",
    "joiners",
    "keys",
    "kv",
    "maintenance",
    "metastore",
    "metastore_mark",
    "names",
    "node",
    "nodes",
    "operations",
    "partition_map",
    "plan",
    "problems",
    "rebalance",
    "recovery",
    "retention",
    "services",
    "statement_log",
    "statements",
    "store",
    "upgrade",
    "zone",
    "zones",
}
"""Names that several layers have a module of: what decides, what acts, its route, its command, its page."""


def classes() -> dict[str, list[str]]:
    places = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(path.relative_to(ROOT)))
    return places


def test_no_two_classes_have_one_name() -> None:
    repeated = {name: places for name, places in classes().items() if len(places) > 1}
    assert sorted(repeated) == sorted(SHARED_CLASSES), repeated
    assert len(SHARED_CLASSES) <= 10


def test_modules_of_one_name_are_of_one_subject_in_different_layers() -> None:
    folders = defaultdict(list)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.stem not in {"__init__", "__main__"}:
                folders[path.stem].append(path.relative_to(ROOT).parent.as_posix())
    repeated = {stem for stem, places in folders.items() if len(places) > 1}
    assert repeated == SUBJECTS
