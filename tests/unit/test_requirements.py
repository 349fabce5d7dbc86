"""Requirements, the row markers of tests, and references to either fit together."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import pytest

from tests.rows.levels import PROCESSES, level_of
from tests.rows.reach import Reach
from tests.rows.references import cited_in, known_ids, unresolved
from tests.rows.sources import NOT_USUAL, ROOT, MarkedTest, Source, Sources, marked_tests
from tests.rows.table import TABLE, Claim, Coverage, Requirement, problems, read_coverage, render

SCRIPTS = ROOT / "tests" / "datadriven" / "scripts"
PLACE = "tests/unit/test_it.py"


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources()


@pytest.fixture(scope="module")
def coverage(sources: Sources) -> Coverage:
    return read_coverage(sources)


def test_every_row_is_shown_or_listed_with_a_reason(coverage: Coverage) -> None:
    assert not list(problems(coverage))


def test_the_written_table_is_current(coverage: Coverage) -> None:
    """``make rows`` writes it."""
    assert TABLE.read_text() == render(coverage)


def test_scripts_name_no_row_that_their_tests_do_not_carry(coverage: Coverage) -> None:
    carried = {
        row
        for row, claims in coverage.shown.items()
        if any(claim.test.path.startswith("tests/datadriven/") for claim in claims)
    }
    rows = {row for row, requirement in coverage.requirements.items() if requirement.kind != "decision"}
    named = {cited for script in SCRIPTS.glob("*.txt") for cited in cited_in(script.read_text())}
    assert named & rows <= carried


def test_every_reference_resolves() -> None:
    assert not list(unresolved())


def test_references_are_read_as_people_write_them() -> None:
    text = "I3-016..018, decisions 1, 2 and 4; decisions 7-9 (M12, H4), S132; not M90 or IEP133."
    assert list(cited_in(text)) == [
        *("I3-016", "I3-017", "I3-018"),
        *(f"decision {number}" for number in (1, 2, 4, 7, 8, 9)),
        *("M12", "H4", "S132"),
    ]
    assert {"I3-001", "decision 26", "M13", "S132"} <= known_ids()
    assert not {f"I3-{62:03d}", f"decision {27}", f"M{14}", f"H{6}"} & known_ids()


ROW = Requirement("I3-001", "Ignite 3 rebalance", "The flow", "It is seen", "must")
CLAIM = Claim(MarkedTest(PLACE, "test_it", ("I3-001",)), "core")
LEFT_OUT = replace(CLAIM, test=replace(CLAIM.test, is_usual=False))
WHOLE = Coverage({"I3-001": ROW}, {"I3-001": (CLAIM,)}, {}, frozenset(PROCESSES))


def test_a_row_with_a_test_is_right() -> None:
    assert not list(problems(WHOLE))


@pytest.mark.parametrize(
    ("coverage", "problem"),
    [
        (replace(WHOLE, shown={}), "I3-001: no test shows it"),
        (replace(WHOLE, shown={"I3-001": (LEFT_OUT,)}), "I3-001: only tests that make test leaves out"),
        (replace(WHOLE, not_built={"I3-001": "why it is not built yet"}), "I3-001 is shown by"),
        (replace(WHOLE, shown={**WHOLE.shown, "NEW-1": (CLAIM,)}), f"{PLACE}::test_it: NEW-1 is not in"),
        (replace(WHOLE, not_built={"NEW-1": "why it is not built yet"}), "NEW-1 is not in"),
        (replace(WHOLE, shown={}, not_built={"I3-001": "later"}), "at least 5 words"),
        (replace(WHOLE, processes=frozenset()), "which no marked test reaches"),
    ],
)
def test_what_is_wrong_is_named(coverage: Coverage, problem: str) -> None:
    assert any(problem in line for line in problems(coverage))


def parsed(text: str) -> Source:
    tree = ast.parse(text)
    functions = {statement.name: statement for statement in tree.body if isinstance(statement, ast.FunctionDef)}
    return Source(ROOT / PLACE, "tests.unit.test_it", tree, dict(functions), {})


MARKED = """
@pytest.mark.row("I3-001", "I3-016..018")
@pytest.mark.parametrize("way", ["one", pytest.param("other", marks=pytest.mark.row("I3-002"))])
def test_function(way): ...

@pytest.mark.row("I3-003")
class TestClass:
    @pytest.mark.row("I3-004")
    def test_method(self): ...

@pytest.mark.soak
@pytest.mark.row("I3-005")
def test_long(): ...

@pytest.mark.row("I3-006")
@pytest.mark.thorough("test_function shows it of one node")
def test_again(): ...

def test_unmarked(): ...
"""


def test_markers_are_read_from_functions_parameters_and_classes() -> None:
    tests = list(marked_tests(parsed(MARKED)))
    assert {test.name: test.rows for test in tests} == {
        "test_function": ("I3-001", "I3-016", "I3-017", "I3-018", "I3-002"),
        "TestClass::test_method": ("I3-003", "I3-004"),
        "test_long": ("I3-005",),
        "test_again": ("I3-006",),
    }
    assert [test.name for test in tests if not test.is_usual] == ["test_long", "test_again"]


def test_make_test_leaves_out_what_the_rows_say() -> None:
    (usual,) = re.findall(r"^USUAL := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {term.removeprefix("not ") for term in usual.split(" and ")} == NOT_USUAL


def test_a_marker_says_nothing_but_its_rows() -> None:
    with pytest.raises(ValueError, match="a row's marker has ids alone"):
        list(marked_tests(parsed('@pytest.mark.row("I3-001", shows="core")\ndef test_it(): ...')))


@pytest.mark.parametrize(
    ("module", "test", "level"),
    [
        ("tests.e2e.test_kill", "test_kill_during_an_alter", "process"),
        ("tests.e2e.test_controller_kills", "test_controller_is_killed", "process"),
        ("tests.integration.test_node_moves", "test_a_planned_target_follows_by_itself", "process"),
        ("tests.unit.catalog.test_apply_command", "test_partitions_cannot_be_altered", "core"),
        ("tests.contract.test_controllers", "test_create_then_alter", "core"),
        ("tests.datadriven.test_guarded_write", "test_script", "core"),
        ("tests.simulation.test_store_seeds", "test_seeds", "model"),
        ("tests.simulation.test_stealing_seeds", "test_seeds", "model"),
        ("tests.model.test_protocol_model", "test_small_scope", "model"),
    ],
)
def test_what_a_test_runs_is_found_through_fixtures_and_helpers(
    sources: Sources, module: str, test: str, level: str
) -> None:
    source = sources.get(module)
    assert source is not None
    assert level_of(Reach(sources).of(source, test)) == level


def test_a_row_that_only_simulated_networks_show_is_a_models(coverage: Coverage) -> None:
    rows = {
        row: {claim.level for claim in claims}
        for row, claims in coverage.shown.items()
        if all(claim.test.path.startswith("tests/simulation/") for claim in claims)
    }
    assert rows
    assert set().union(*rows.values()) == {"model"}


def test_a_row_has_the_best_of_its_tests_words() -> None:
    model, core, process = (replace(CLAIM, level=level) for level in ("model", "core", "process"))
    for claims, word in (([model], "model"), ([core, model], "core"), ([process, core, model], "process")):
        assert f"| The flow | {word} | " in render(replace(WHOLE, shown={"I3-001": tuple(claims)}))
