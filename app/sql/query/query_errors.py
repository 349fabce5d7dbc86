"""Words of this program for what DuckDB says of a query: names of its settings, its own types and its advice
are of no use to a client. What is not in the table below is put in general words."""

from __future__ import annotations

import re

_TYPE = r"(?P<type{}>[A-Z]\w*(?: WITH TIME ZONE)?(?:\([\w ,]*\))?(?:\[\d*\])*)"
"""Pattern of one of DuckDB's types, which is shown as clients know it."""
_DATES = r"[Dd]ate|[Tt]ime|[Tt]imestamp|[Ii]nterval|Epoch"
_EXPRESSIONS = (
    r"missing [)\]]|invalid (?:character class|named capture|repetition|escape sequence|perl operator|UTF-8)|"
    r"no argument for repetition|bad repetition|trailing \\|unexpected \)|expression too big"
)
"""Beginnings of complaints of DuckDB's library of regular expressions."""

_WORDED: tuple[tuple[str, str], ...] = (
    # Names.
    (r'Referenced column "([^"]*)"', "there is no column {0}"),
    (r"there is no column (\w+)$", "there is no column {0}"),
    (r'(?:Values list|Table) "([^"]*)" does not have a column named "([^"]*)"', "{0} has no column {1}"),
    (
        r'Column "([^"]*)" does not exist on (left|right) side',
        "there is no column {0} on the {1} side of the join",
    ),
    (
        r'Column "([^"]*)" in (EXCLUDE|REPLACE|RENAME) list not found',
        "{1} names {0}, and there is no such column",
    ),
    (
        r'Ambiguous reference to column name "([^"]*)" \(use: ([^)]*)\)',
        "the column {0} is ambiguous: write {1}",
    ),
    (r'Ambiguous reference to table "([^"]*)"', "two tables in FROM are called {0}: give one another alias"),
    (r'Referenced table "([^"]*)" not found', "there is no table {0} in FROM"),
    (r'Table with name "?([^\s"!]+)"? does not exist', "there is no table {0}"),
    (r"(?:\w+ )?Function with name (\S+) does not exist", "there is no function {0}"),
    (r"Type with name (\S+) does not exist", "there is no type {0}"),
    (r'Duplicate CTE name "([^"]*)"', "two parts of WITH are called {0}"),
    (r'Circular reference to CTE "([^"]*)"', "{0} in WITH refers to itself, which needs WITH RECURSIVE"),
    (
        r'table "([^"]*)" has (\d+) columns available but (\d+) columns specified',
        "names for {2} columns are given to {0}, which has {1}",
    ),
    (r'window "([^"]*)" is already defined', "two windows are called {0}"),
    (r'window "([^"]*)" does not exist', "there is no window {0}"),
    (r'Could not find key "([^"]*)" in', "a row has no field {0}"),
    (r"Cannot extract field '([^']*)' from", "{0} is taken from a value that has no fields"),
    (r'Duplicate named argument "([^"]*)"', "two fields of a row are called {0}"),
    (r"Unknown TimeZone '([^']*)'", "there is no time zone {0}"),
    # The form of a query.
    (r"Max expression depth limit", "the query is nested too deeply"),
    (r'syntax error at or near "([^"]*)"', "the query is not understood near {0}"),
    (r"unterminated ", "a text, a quoted name or a comment has no end"),
    (r"SELECT clause without selection list", "SELECT names no columns"),
    (r"STAR expression is only allowed", "* stands for columns in the list of SELECT and in count(*) alone"),
    (r"\* expression without FROM", "* needs FROM"),
    (r'column "([^"]*)" must appear in', "the column {0} must be in GROUP BY or within an aggregate function"),
    (r"aggregate function calls cannot be nested", "an aggregate function may not be within another one"),
    (
        r"aggregate function calls cannot contain window function",
        "an aggregate function may not have a window function within it",
    ),
    (r"(WHERE|GROUP BY) clause cannot contain aggregates", "{0} may not have aggregate functions"),
    (r"(WHERE|GROUP BY|HAVING) clause cannot contain window", "{0} may not have window functions"),
    (r"[Ww]indow functions are not (?:supported|allowed)", "a window function may not be here"),
    (r"at least one window function must appear", "QUALIFY needs a window function"),
    (r"(?:RANGE|GROUPS) frames|Frame |Window (?:ROWS|RANGE|GROUPS)", "the frame of a window is not valid"),
    (r"Argument for ntile", "ntile takes a number above 0"),
    (r"GROUPING ", "grouping takes columns of GROUP BY"),
    (r"(\w+) is not an aggregate function", "{0} is no aggregate function"),
    (r'Function "(\w+)" is a Scalar Function', "{0} is no aggregate function"),
    (r'Unknown ordered aggregate "(\w+)"', "{0} takes no WITHIN GROUP"),
    (
        r"(ORDER|GROUP)(?: BY)? term out of range - should be between 1 and (\d+)",
        "{0} BY has the number of a column that is not between 1 and {1}",
    ),
    (r"ORDER BY non-integer literal", "ORDER BY has a constant"),
    (r"ORDER BY in a recursive query", "the recursive part of WITH RECURSIVE may not have ORDER BY"),
    (
        r'Could not ORDER BY column "([^"]*)"',
        "ORDER BY names {0}, which is no column of each SELECT of the UNION",
    ),
    (
        r"Set operations can only apply to expressions with the same number",
        "the parts of a UNION, INTERSECT or EXCEPT have different numbers of columns",
    ),
    (r"Subquery returns (\d+) columns - expected (\d+)", "a subquery has {0} columns instead of {1}"),
    (r"Subqueries are not supported in LATERAL join", "a condition of a LATERAL join may not have a subquery"),
    (r"VALUES lists must all be the same length", "the rows of VALUES have different numbers of values"),
    (r"No columns found to join on in NATURAL JOIN", "NATURAL JOIN has no column in common"),
    (r"UNNEST\b", "UNNEST takes an array, in FROM or in the list of SELECT"),
    (r"LIMIT/OFFSET cannot be negative", "LIMIT and OFFSET may not be negative"),
    (r"Values were not provided for", "values of parameters are missing"),
    (r"More than one row returned by a subquery", "a subquery that stands for one value has more than one row"),
    # Values and types.
    (
        r"(?:Could not choose a best candidate function for the function call|"
        r"No function matches the given name and argument types) .([^\s('\"]+)\(",
        "{0} does not take arguments of these types",
    ),
    (
        rf"(?:Failed to cast value: )?Could not convert string '(.*?)' to {_TYPE.format(1)}",
        "'{0}' is no value of the type {1}",
    ),
    (rf'Could not convert string "(.*?)" to {_TYPE.format(1)}', "'{0}' is no value of the type {1}"),
    (r'(?:invalid )?date field [^:]*: "([^"]*)"', "'{0}' is no value of the type DATE"),
    (r'(?:invalid )?timestamp field [^:]*: "([^"]*)"', "'{0}' is no value of the type TIMESTAMP"),
    (r'(?:invalid )?time field [^:]*: "([^"]*)"', "'{0}' is no value of the type TIME"),
    (
        rf"Type \w+ with value (.*?) can't be cast .* destination type {_TYPE.format(1)}",
        "{0} is beyond the type {1}",
    ),
    (rf"Could not cast value (\S+) to {_TYPE.format(1)}", "{0} is beyond the type {1}"),
    (
        rf"Unimplemented type for cast \({_TYPE.format(1)} -> {_TYPE.format(2)}\)",
        "a value of the type {0} cannot be cast to {1}",
    ),
    (
        rf"Cannot (?:combine types|mix values|compare values) of (?:type )?{_TYPE.format(1)}"
        rf" and (?:type )?{_TYPE.format(2)}",
        "values of the types {0} and {1} do not go together without a cast",
    ),
    (
        rf"Type {_TYPE.format(1)} does not match with {_TYPE.format(2)}",
        "values of the types {0} and {1} do not go together without a cast",
    ),
    (r"Cannot deduce template type", "the elements of an array have different types"),
    (
        r"DECIMAL type (?:width|scale)",
        "a DECIMAL has at most 38 digits, and no more than these after its point",
    ),
    (rf"Overflow in (\w+) of {_TYPE.format(1)}", "overflow in the {0} of two values of the type {1}"),
    (r"Overflow on (\w+)\(", "overflow in {0}"),
    (r"(\w+) is out of range!?$", "the result of {0} is out of range"),
    (r"Value out of range", "a value is out of range"),
    (rf"(?:{_DATES}) .*\brange\b", "a date or time is out of range"),
    (r"Division by zero", "division by zero"),
    (r'extract specifier "([^"]*)" not recognized', "{0} is no part of a date or time"),
    (r"Failed to parse format specifier", "the format of a date or time is not valid"),
    (r'Could not parse string "(.*?)" according to', "'{0}' does not have the format"),
    (_EXPRESSIONS, "a regular expression is not valid"),
    (r"Invalid escape string", "ESCAPE takes one character"),
    (r"Invalid UTF8 Codepoint", "there is no character of this number"),
    (
        r"Invalid (?:input for hex digit|hex escape)|Hex string literal",
        "a text has digits that are not hexadecimal",
    ),
    (r"Map keys must be unique", "the keys of a map must differ"),
    (r"Map keys can ?not be NULL", "a key of a map may not be NULL"),
    (r"The map key list does not align", "a map needs as many keys as values"),
    (r"Malformed JSON", "a text is no JSON"),
    (r"(?:APPROXIMATE )?QUANTILE|PERCENTILE", "a quantile takes a number from 0 to 1"),
    (r"Cardinality can only", "cardinality takes an array or a map"),
    (r"Cannot create a string of size|Lists larger than", "a value would be too large"),
)
_PATTERNS = tuple((re.compile(pattern, re.DOTALL), words) for pattern, words in _WORDED)
_TYPES = {
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INTEGER",
    "INT64": "BIGINT",
    "INT128": "DECIMAL(38,0)",
    "HUGEINT": "DECIMAL(38,0)",
    "INTEGER_LITERAL": "INTEGER",
    "STRING_LITERAL": "VARCHAR",
    "BOOL": "BOOLEAN",
    "FLOAT": "REAL",
    "BLOB": "VARBINARY",
}
_GENERAL = {
    "QUERY_INVALID": "the query is not valid as it is written",
    "QUERY_NOT_ALLOWED": "the query asks for what queries may not do",
    "QUERY_FAILED": "the query failed while it ran",
}


def own_words(detail: str) -> str | None:
    """``detail`` is the first line of what DuckDB says, without the name of its error. None: there are no words
    for it but the general ones."""
    for pattern, words in _PATTERNS:
        match = pattern.match(detail)
        if match is not None:
            types = {number for group, number in pattern.groupindex.items() if group.startswith("type")}
            texts = enumerate(match.groups(), start=1)
            return words.format(*(_TYPES.get(text, text) if n in types else text for n, text in texts))
    return None


def general_words(name: str) -> str:
    """General words for an error by its name: what the engine says of it is not for clients."""
    return f"{_GENERAL.get(name, _GENERAL['QUERY_FAILED'])} ({name})"
