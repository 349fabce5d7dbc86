"""232 statements with known outcomes (``tests/data/zone_statements.jsonl``), through parser and catalog core.

Assumed cluster: ``CLUSTER`` below, no zone at the start. "AUTO" is PARTITIONS left out. Shows IEP-013, IEP-014,
IEP-015, IEP-020, IEP-022, IEP-023, IEP-024, IEP-025, IEP-026, IEP-030, IEP-031, IEP-032, I3-003.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog.core.errors import ErrorKind, StatementError
from catalog.core.snapshot import ZoneDefaults
from catalog.core.zone import Node
from catalog.service import CatalogService
from tests.fixtures.memory_unit_of_work import MemoryUnitOfWork
from tests.fixtures.script_runner import ScriptRunner

DATA = Path(__file__).parents[1] / "data" / "zone_statements.jsonl"
CASES = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
CLUSTER = (
    Node("n1", (("region", "US"), ("storage", "SSD"), ("tier", "10")), ("default", "rocks")),
    Node("n2", (("region", "EU"), ("storage", "SSD")), ("default", "rocks")),
    Node("n3", (("region", "EU"), ("storage", "HDD"), ("tier", "4")), ("default", "rocks", "archive")),
)
DEFAULTS = ZoneDefaults(partitions=25)

NAMED_OTHERWISE = {"Z104": ErrorKind.OPTION_UNKNOWN, "Z119": ErrorKind.OPTION_UNKNOWN}
"""An unknown option of the new form ends the parsing there as here, and is called what it is: 2 of 232 rows."""

REFUSED_HERE = {"Z044": ErrorKind.OPTION_OUT_OF_RANGE}
"""A distribution algorithm that does not exist: the reference ignores the option, here it has a meaning."""

QUERIES = frozenset({"Z376"})
"""SELECT is not a statement of this parser: the query engine answers it."""

STATEMENTS = [case for case in CASES if case["id"] not in QUERIES]

KINDS = {
    "PARSE": frozenset({ErrorKind.SYNTAX_ERROR}),
    "ALREADY_EXISTS": frozenset({ErrorKind.ZONE_ALREADY_EXISTS}),
    "NOT_FOUND": frozenset({ErrorKind.ZONE_NOT_FOUND}),
    "IN_USE": frozenset({ErrorKind.ZONE_IN_USE}),
    "DEFAULT_ZONE": frozenset({ErrorKind.DEFAULT_ZONE_PROTECTED}),
    "UNSUPPORTED": frozenset({ErrorKind.STATEMENT_NOT_SUPPORTED}),
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
            ErrorKind.FILTER_INVALID,
            ErrorKind.FILTER_MATCHES_NO_NODE,
            ErrorKind.STORAGE_PROFILE_UNKNOWN,
            ErrorKind.STORAGE_PROFILES_EMPTY,
            ErrorKind.PARAMETERS_MISMATCH,
        }
    ),
}


class Catalog:
    """Catalog as a server has it, with a store in memory and without the engine's limits."""

    def __init__(self) -> None:
        service = CatalogService(MemoryUnitOfWork(), DEFAULTS, pause=lambda seconds: None)
        self._runner = ScriptRunner(service)

    def run(self, case: dict[str, Any]) -> tuple[list[dict[str, Any]], StatementError | None]:
        """The effects of the case's statements, and the error that ended them."""
        for sql in case["setup"]:
            self._runner.run(sql, CLUSTER)
        try:
            single = case["api"] == "single"
            results = self._runner.run(case["sql"], CLUSTER, single=single, parameters=case.get("params", ()))
        except StatementError as error:
            done = getattr(error, "results", ())
            return [{**each.effect, "applied": each.applied} for each in done], error
        return [{**each.effect, "applied": each.applied} for each in results], None


def _expected(effect: dict[str, Any] | None) -> list[dict[str, Any]]:
    effects = [] if effect is None else effect["results"] if effect["op"] == "script" else [effect]
    for each in effects:
        for params in (each.get("params"), each.get("created_default_zone")):
            if params and params["partitions"] == "AUTO":
                params["partitions"] = DEFAULTS.partitions
    return effects


def test_every_row_is_run() -> None:
    ids = [case["id"] for case in CASES]
    assert len(ids) == len(set(ids)) == 232
    assert set(ids) >= QUERIES
    assert {case["error_kind"] for case in CASES} - {None} <= set(KINDS)


@pytest.mark.row("I3-003", "IEP-013..015", "IEP-020", "IEP-022..026", "IEP-030..032")
@pytest.mark.parametrize("case", STATEMENTS, ids=lambda case: case["id"])
def test_statement(case: dict[str, Any]) -> None:
    effects, refused = Catalog().run(case)
    if case["id"] in REFUSED_HERE:
        assert refused is not None
        assert refused.kind is REFUSED_HERE[case["id"]]
        return
    assert (refused is None) == case["ok"]
    if refused is not None:
        own = NAMED_OTHERWISE.get(case["id"])
        assert refused.kind is own if own else refused.kind in KINDS[case["error_kind"]]
        assert refused.line is not None
        assert refused.column is not None
    if case["effect"] or not case["ok"]:
        assert effects == _expected(case["effect"])


def test_queries_are_left_to_their_engine() -> None:
    (case,) = (case for case in CASES if case["id"] in QUERIES)
    _, refused = Catalog().run(case)
    assert refused is not None
    assert refused.kind is ErrorKind.STATEMENT_NOT_SUPPORTED
