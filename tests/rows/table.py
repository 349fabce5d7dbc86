"""The requirements, the tests that show them, and what is wrong with either."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.rows.levels import LEVELS, PROCESSES, level_of, processes_in
from tests.rows.reach import Reach
from tests.rows.sources import ROOT, MarkedTest, Sources, marked_tests

REQUIREMENTS = ROOT / "docs" / "requirements.csv"
NOT_BUILT = ROOT / "docs" / "requirements-not-built.csv"
TABLE = ROOT / "docs" / "requirements.md"
COMMAND = "make rows"
REASON_WORDS = 5
UNCHECKED = ("decision", "rule")
"""Kinds that need no test: decisions explain rows, rules are part of how they are met."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """``kind``: as the document says it (``must``, ``out-of-scope``, ...), or ``decision`` or ``rule``."""

    id: str
    document: str
    text: str
    acceptance: str
    kind: str


@dataclass(frozen=True, slots=True)
class Claim:
    """``test`` shows a row as ``level``."""

    test: MarkedTest
    level: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """``shown``: row -> tests, the best level first. ``not_built``: row -> reason. ``processes``: entries of
    ``PROCESSES`` that any test reaches."""

    requirements: Mapping[str, Requirement]
    shown: Mapping[str, tuple[Claim, ...]]
    not_built: Mapping[str, str]
    processes: frozenset[tuple[str, str]]


def read_requirements() -> dict[str, Requirement]:
    with REQUIREMENTS.open(newline="") as file:
        return {row["id"]: Requirement(**row) for row in csv.DictReader(file)}


def read_coverage(sources: Sources) -> Coverage:
    reach = Reach(sources)
    shown: dict[str, list[Claim]] = {}
    processes: set[tuple[str, str]] = set()
    for source in sources:
        for test in marked_tests(source):
            reached = reach.of(source, test.name)
            processes |= processes_in(reached)
            claim = Claim(test, level_of(reached))
            for row in test.rows:
                shown.setdefault(row, []).append(claim)
    with NOT_BUILT.open(newline="") as file:
        not_built = {row["id"]: row["reason"] for row in csv.DictReader(file)}
    ordered = {row: tuple(sorted(tests, key=_order)) for row, tests in shown.items()}
    return Coverage(read_requirements(), ordered, not_built, frozenset(processes))


def _order(claim: Claim) -> tuple[int, str]:
    return (LEVELS.index(claim.level), claim.test.id)


def problems(coverage: Coverage) -> Iterator[str]:
    """Yield the problems, one line each, with the place and what is accepted."""
    known, not_built = coverage.requirements, coverage.not_built
    for row, claims in coverage.shown.items():
        if row not in known:
            yield f"{claims[0].test.id}: {row} is not in {REQUIREMENTS.name}"
    for row, reason in not_built.items():
        if row not in known:
            yield f"{NOT_BUILT.name}: {row} is not in {REQUIREMENTS.name}"
        if row in coverage.shown:
            yield f"{NOT_BUILT.name}: {row} is shown by {coverage.shown[row][0].test.id}: remove it here"
        if len(reason.split()) < REASON_WORDS:
            yield f"{NOT_BUILT.name}: {row} needs a reason of at least {REASON_WORDS} words"
    for row, requirement in known.items():
        if requirement.kind not in UNCHECKED and row not in coverage.shown and row not in not_built:
            yield f"{row}: no test shows it, and {NOT_BUILT.name} does not list it"
        if row in coverage.shown and not any(claim.test.is_usual for claim in coverage.shown[row]):
            yield f"{row}: only tests that make test leaves out show it"
    for package, name in PROCESSES.keys() - coverage.processes:
        yield f"tests/rows/levels.py: PROCESSES names {name} in {package}, which no marked test reaches"


def render(coverage: Coverage) -> str:
    """``docs/requirements.md``."""
    return "".join(f"{line}\n" for line in _lines(coverage))


MEANINGS = {
    "process": "a test runs what `zonectl` runs: its processes, members of groups, store servers, Spark",
    "core": "tests call shipped code in their own process, without servers but a metastore or a database",
    "model": "only something simulated or written again shows it: `simulator`, `tests/model`",
}


def _lines(coverage: Coverage) -> Iterator[str]:
    requirements = coverage.requirements.values()
    best = [
        _best(coverage.shown.get(requirement.id, ()))
        for requirement in requirements
        if requirement.kind not in UNCHECKED
    ]
    yield "# Requirements and the tests that show them"
    yield ""
    yield f"Made from the tests' `@pytest.mark.row` by `{COMMAND}`; do not edit it. The texts are those of"
    yield f"`{REQUIREMENTS.name}`, which also has each row's acceptance."
    yield ""
    yield "| Shown as | Rows | Means |"
    yield "|---|---|---|"
    for level in LEVELS:
        yield f"| {level} | {best.count(level)} | {MEANINGS[level]} |"
    yield f"| not built | {len(coverage.not_built)} | with the reason, in `{NOT_BUILT.name}` |"
    yield ""
    yield "| Document | Rows | process | core | model | not built |"
    yield "|---|---|---|---|---|---|"
    for document in dict.fromkeys(each.document for each in requirements if each.kind not in UNCHECKED):
        yield _counts(document, coverage)
    yield ""
    yield "What a test runs decides (`tests/rows/levels.py`), and a row has the best of its tests' words. Each"
    yield "row names its tests of that word (below `tests`), and counts the others."
    for document in dict.fromkeys(requirement.document for requirement in requirements):
        yield ""
        yield f"## {document}"
        yield "| Id | Text | Shown as | By |"
        yield "|---|---|---|---|"
        yield from (
            _line(requirement, coverage) for requirement in requirements if requirement.document == document
        )


def _counts(document: str, coverage: Coverage) -> str:
    rows = [
        requirement.id
        for requirement in coverage.requirements.values()
        if requirement.document == document and requirement.kind not in UNCHECKED
    ]
    best = [_best(coverage.shown.get(row, ())) for row in rows]
    counts = (len(rows), *map(best.count, LEVELS))
    not_built = sum(row in coverage.not_built for row in rows)
    return f"| {document} | {' | '.join(map(str, counts))} | {not_built} |"


def _line(requirement: Requirement, coverage: Coverage) -> str:
    claims = coverage.shown.get(requirement.id, ())
    text = requirement.text.replace("|", "\\|")
    if requirement.id in coverage.not_built:
        return f"| {requirement.id} | {text} | not built | {coverage.not_built[requirement.id]} |"
    return f"| {requirement.id} | {text} | {_best(claims)} | {_tests(claims)} |"


def _best(claims: tuple[Claim, ...]) -> str:
    return claims[0].level if claims else ""


def _tests(claims: tuple[Claim, ...]) -> str:
    """``folder/test_file::test, ...; 2 core``."""
    levels = [claim.level for claim in claims]
    tests = [
        claim.test.id.removeprefix("tests/").replace(".py::", "::")
        for claim in claims
        if claim.level == levels[0]
    ]
    others = [f"{levels.count(level)} {level}" for level in LEVELS if level in levels and level != levels[0]]
    return "; ".join([", ".join(f"`{test}`" for test in tests), *others]) if tests else ""
