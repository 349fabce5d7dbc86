"""What DuckDB says of a query, in this program's words: names of its settings, its own types and its advice are
of no use to who asked."""

from __future__ import annotations

import re

_OF_INTERNALS = "the query cannot be run"

_WORDED: tuple[tuple[str, str], ...] = (
    (r"Max expression depth limit", "the query is nested too deeply"),
    (r'Referenced column "([^"]*)"', r"there is no column \1"),
    (r'(?:Values list|Table) "([^"]*)" does not have a column named "([^"]*)"', r"\1 has no column \2"),
    (
        r'Column "([^"]*)" does not exist on (left|right) side',
        r"there is no column \1 on the \2 side of the join",
    ),
    (r'Ambiguous reference to column name "([^"]*)" \(use: (.*)\)', r"the column \1 is ambiguous: write \2"),
    (r'Referenced table "([^"]*)" not found', r"there is no table \1 in FROM"),
    (r'column "([^"]*)" must appear in', r"the column \1 must be in GROUP BY or within an aggregate function"),
    (
        r"(?:Could not choose a best candidate function for the function call|"
        r"No function matches the given name and argument types) .([^(]+)\(",
        r"\1 does not take arguments of these types",
    ),
    (r"Could not convert string ('.*') to (\w+)", r"\1 is no value of the type \2"),
    (r"Type \w+ with value (.*) can't be cast .* destination type (\w+)", r"\1 is beyond the type \2"),
    (r"Overflow in (\w+) of (\w+)", r"overflow in the \1 of two values of the type \2"),
    (r"Division by zero", "division by zero"),
    (r"More than one row returned by a subquery", "a subquery that stands for one value has more than one row"),
    (r"INTERNAL|.*\b(?:SET|PRAGMA) \w+_\w+", _OF_INTERNALS),
)
_PATTERNS = tuple((re.compile(pattern, re.DOTALL), words) for pattern, words in _WORDED)
_ADVICE = re.compile(
    r"(?:^|[.!,;:]?\s+)(?:Use|Try|You (?:might|may|can)|In order to|Did you mean|Candidate|Consider|"
    r"Please|Possible solutions|Hint)\b.*",
    re.DOTALL,
)
_INTEGERS = {
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INTEGER",
    "INT64": "BIGINT",
    "INT128": "DECIMAL(38,0)",
}
_INTEGER = re.compile(r"\bINT(?:8|16|32|64)\b")


def own_words(detail: str) -> str:
    """``detail`` is the first line of what DuckDB says, without the name of its error."""
    for pattern, words in _PATTERNS:
        match = pattern.match(detail)
        if match is not None:
            return _INTEGER.sub(lambda name: _INTEGERS[name[0]], match.expand(words))
    plain = _ADVICE.sub("", detail).strip().rstrip(".!")
    return _INTEGER.sub(lambda name: _INTEGERS[name[0]], plain) or _OF_INTERNALS
