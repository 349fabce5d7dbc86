"""232 statements with known outcomes (``zone_statements.jsonl``), through parser and catalog core.

Assumed cluster: n1 and n2 have the profiles default and rocks, n3 also archive; no zone at the start.
Shows IEP-013, IEP-020, IEP-022, IEP-023, IEP-024, IEP-025, IEP-030, IEP-031, IEP-032, I3-003.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog.core.errors import ErrorKind, StatementError
from catalog.core.snapshot import CatalogSnapshot, Change, ZoneDefaults, apply_command
from catalog.core.zone import Node
from parser.to_command import parse_ddl

CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("zone_statements.jsonl").read_text(encoding="utf-8").splitlines()
]
CLUSTER = (
    Node("n1", profiles=("default", "rocks")),
    Node("n2", profiles=("default", "rocks")),
    Node("n3", profiles=("default", "rocks", "archive")),
)
DEFAULTS = ZoneDefaults(partitions=25)

LEFT_OUT = {
    "AUTO SCALE, NODES FILTER, CONSISTENCY MODE and DISTRIBUTION ALGORITHM are not built": (
        """Z009 Z014 Z015 Z016 Z018 Z039 Z042 Z044 Z152 Z153 Z154 Z155 Z161 Z162 Z184 Z196 Z205 Z206 Z210
        Z247 Z249 Z254 Z289""",
        ErrorKind.OPTION_NOT_SUPPORTED,
    ),
    "RENAME TO and SET DEFAULT are not built": (
        """Z296 Z297 Z298 Z299 Z300 Z301 Z304 Z305 Z306 Z311 Z312 Z314 Z315 Z316 Z322 Z329 Z330 Z340 Z359""",
        ErrorKind.STATEMENT_NOT_SUPPORTED,
    ),
    "tables are not built": (
        """Z321 Z326 Z327 Z328 Z339 Z343 Z344 Z346 Z351 Z354 Z356 Z357""",
        ErrorKind.STATEMENT_NOT_SUPPORTED,
    ),
    "SELECT on system views is not built": ("Z376", ErrorKind.STATEMENT_NOT_SUPPORTED),
    "parameters that a call binds beside the text never reach parser or catalog": ("Z368", None),
}
"""Why a row is left out -> its ids, and how the statement is refused instead (None: not refused here)."""

REFUSALS: dict[str, frozenset[ErrorKind]] = {
    # An unknown option of the new form ends the parsing, but has the code of unknown options.
    "PARSE": frozenset({ErrorKind.SYNTAX_ERROR, ErrorKind.OPTION_UNKNOWN}),
    "ALREADY_EXISTS": frozenset({ErrorKind.ZONE_ALREADY_EXISTS}),
    "NOT_FOUND": frozenset({ErrorKind.ZONE_NOT_FOUND}),
    "VALIDATION": frozenset(
        {
            ErrorKind.NAME_INVALID,
            ErrorKind.NAME_TOO_LONG,
            ErrorKind.OPTION_UNKNOWN,
            ErrorKind.OPTION_DUPLICATE,
            ErrorKind.OPTION_TYPE,
            ErrorKind.OPTION_OUT_OF_RANGE,
            ErrorKind.OPTION_NOT_ALTERABLE,
            ErrorKind.PARTITIONS_NOT_ALTERABLE,
            ErrorKind.QUORUM_BELOW_MINIMUM,
            ErrorKind.QUORUM_ABOVE_MAXIMUM,
            ErrorKind.QUORUM_CONFLICTS_WITH_REPLICAS,
            ErrorKind.QUORUM_EXCEEDS_DATA_NODES,
            ErrorKind.STORAGE_PROFILE_UNKNOWN,
            ErrorKind.STORAGE_PROFILES_EMPTY,
        }
    ),
}

_REFUSED_INSTEAD = {id_: kind for ids, kind in LEFT_OUT.values() for id_ in ids.split()}
SUPPORTED = [case for case in CASES if case["id"] not in _REFUSED_INSTEAD]
UNSUPPORTED = [case for case in CASES if _REFUSED_INSTEAD.get(case["id"]) is not None]


class Catalog:
    """A catalog in memory: what the service does, without a store."""

    def __init__(self) -> None:
        self.snapshot = CatalogSnapshot()
        self.effects: list[dict[str, Any]] = []

    def run(self, sql: str) -> None:
        for command in parse_ddl(sql):
            change = apply_command(self.snapshot, command, CLUSTER, DEFAULTS)
            self.snapshot = self.snapshot.after(change.entries)
            self.effects.append(_effect(change))


def _effect(change: Change) -> dict[str, Any]:
    return {**change.effect, "applied": change.applied}


def _expected(effect: dict[str, Any]) -> list[dict[str, Any]]:
    effects = effect["results"] if effect["op"] == "script" else [effect]
    for each in effects:
        if each.get("params", {}).get("partitions") == "AUTO":
            each["params"]["partitions"] = DEFAULTS.partitions
    return effects


def test_every_row_is_run_or_left_out_for_a_reason() -> None:
    ids = [case["id"] for case in CASES]
    assert len(ids) == len(set(ids)) == 232
    assert set(_REFUSED_INSTEAD) <= set(ids)
    assert len(SUPPORTED) == 176


@pytest.mark.parametrize("case", SUPPORTED, ids=lambda case: case["id"])
def test_statement(case: dict[str, Any]) -> None:
    catalog = Catalog()
    for sql in case["setup"]:
        catalog.run(sql)
    catalog.effects.clear()
    refused: StatementError | None = None
    try:
        catalog.run(case["sql"])
    except StatementError as error:
        refused = error
    if case["error_kind"] is None:
        assert refused is None
    else:
        assert refused is not None
        assert refused.kind in REFUSALS[case["error_kind"]]
        assert refused.line is not None
        assert refused.column is not None
    if case["effect"]:
        assert catalog.effects == _expected(case["effect"])
    else:
        assert case["error_kind"] is None or catalog.effects == []


@pytest.mark.parametrize("case", UNSUPPORTED, ids=lambda case: case["id"])
def test_what_is_not_built_is_refused_by_name(case: dict[str, Any]) -> None:
    catalog = Catalog()

    def run_all() -> None:
        for sql in [*case["setup"], case["sql"]]:
            catalog.run(sql)

    with pytest.raises(StatementError) as refused:
        run_all()
    assert refused.value.kind is _REFUSED_INSTEAD[case["id"]]
    assert refused.value.kind.sqlstate == "0A000"
    assert refused.value.line is not None
