"""Literals and casts of queries, written so that DuckDB makes of them exactly the value that was written.

DuckDB has a type for each of Trino's, but reads some texts otherwise: it rounds a DECIMAL without digits to
three places, drops a zone or a digit of a second that it has no room for, and knows intervals of one unit only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

BIGINT_MAX = 2**63 - 1
DECIMAL_DIGITS_MAX = 38
MICROS_DIGITS = 6
NANOS_DIGITS = 9
_UNIT_MILLIS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1000}
_UNITS = tuple(_UNIT_MILLIS)
_NOT_FINITE = {"NAN": "NaN", "INFINITY": "Infinity"}
_DECIMAL = re.compile(r"[+-]?(\d*)(?:\.(\d*))?")
_SECONDS = re.compile(r":\d\d\.(\d+)")
# "UTC+05:30", as drivers write an offset, would lose its minutes.
_OFFSET = re.compile(r"\s+(?:UTC|GMT|UT)?(?=[+-]\d\d?(?::?\d\d)?$)")

_UTC = re.compile(r"\s*Z$")

Refuse = Callable[[exp.Expr, str], Any]
"""Raises the error for a node."""


def exact(node: exp.Expr, refuse: Refuse) -> exp.Expr:
    """Return what stands in the place of ``node``: itself, or the same value in other words."""
    if isinstance(node, exp.Cast):
        return _cast(node, refuse)
    if isinstance(node, exp.Literal) and not node.is_string:
        return _number(node, refuse)
    if isinstance(node, exp.Interval):
        return _interval(node, refuse)
    if isinstance(node, exp.Struct) and not any(isinstance(part, exp.PropertyEQ) for part in node.expressions):
        return exp.Anonymous(this="ROW", expressions=node.expressions)
    if is_not_finite(node):
        return _typed(_NOT_FINITE[node.name.upper()], "DOUBLE")
    return node


def is_not_finite(node: exp.Expr) -> bool:
    """``nan()`` and ``infinity()``: how drivers write these numbers."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in _NOT_FINITE and not node.expressions


def _typed(text: str, kind: str) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(kind, dialect="duckdb"))


def _cast(node: exp.Cast, refuse: Refuse) -> exp.Expr:
    to = node.to
    if to.is_type("INT128"):
        node.set("to", _decimal_type(DECIMAL_DIGITS_MAX, 0))
    elif to.is_type("DECIMAL") and not to.expressions:
        node.set("to", _decimal_type(*_digits_of(node, refuse)))
    elif to.is_type("TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPTZ", "TIME", "TIMETZ") and node.this.is_string:
        zoned = to.is_type("TIMESTAMPTZ", "TIMETZ")
        if to.is_type("TIMESTAMPTZ"):
            _round_to_micros(node)
        _check_fraction(node, MICROS_DIGITS if zoned or to.is_type("TIME") else NANOS_DIGITS, refuse)
        if zoned:
            node.this.set("this", _UTC.sub("+00:00", _OFFSET.sub("", node.this.name.strip())))
    elif to.is_type("CHAR") and node.this is not None:
        length = to.expressions[0].this if to.expressions else exp.Literal.number(1)
        text = exp.Left(this=type(node)(this=node.this, to=exp.DataType.build("TEXT")), expression=length)
        return exp.Anonymous(this="RPAD", expressions=[text, length.copy(), exp.Literal.string(" ")])
    elif to.is_type("VARCHAR", "TEXT") and len(to.expressions) == 1:
        # DuckDB ignores the length.
        length = to.expressions[0].this
        return exp.Left(this=type(node)(this=node.this, to=exp.DataType.build("TEXT")), expression=length)
    return node


def _digits_of(node: exp.Cast, refuse: Refuse) -> tuple[int, int]:
    """Precision and scale: a literal has those of its digits."""
    if not node.this.is_string:
        return DECIMAL_DIGITS_MAX, 0
    match = _DECIMAL.fullmatch(node.this.name.strip())
    if match is None or not (match[1] or match[2]):
        return DECIMAL_DIGITS_MAX, 0
    whole, scale = len(match[1].lstrip("0")), len(match[2] or "")
    if whole + scale > DECIMAL_DIGITS_MAX:
        refuse(node, f"a decimal has at most {DECIMAL_DIGITS_MAX} digits")
    return max(whole + scale, 1), scale


def _decimal_type(precision: int, scale: int) -> exp.DataType:
    return exp.DataType.build(f"DECIMAL({precision}, {scale})", dialect="duckdb")


def _check_fraction(node: exp.Cast, digits_max: int, refuse: Refuse) -> None:
    match = _SECONDS.search(node.this.name)
    if match is not None and len(match[1].rstrip("0")) > digits_max:
        refuse(node, f"this type has at most {digits_max} digits of a second")


def _round_to_micros(node: exp.Cast) -> None:
    """Round an instant to microseconds, the most it has here; programs send clocks of nanoseconds."""
    text = node.this.name
    match = _SECONDS.search(text)
    if match is not None and MICROS_DIGITS < len(match[1]) <= NANOS_DIGITS:
        micros = (int(match[1].ljust(NANOS_DIGITS, "0")) + 500) // 1000
        # Half a microsecond before the next second stays in this one.
        node.this.set("this", f"{text[: match.start(1)]}{min(micros, 999_999):06d}{text[match.end(1) :]}")


def _number(node: exp.Literal, refuse: Refuse) -> exp.Expr:
    text = node.name
    if "e" in text.lower():
        return node
    digits = text.replace(".", "").lstrip("0")
    if len(digits) > DECIMAL_DIGITS_MAX:
        refuse(node, f"a number has at most {DECIMAL_DIGITS_MAX} digits")
    lowest = int(digits or 0) == BIGINT_MAX + 1 and isinstance(node.parent, exp.Neg)
    if "." in text or int(digits or 0) <= BIGINT_MAX or lowest:
        return node
    return _typed(text, f"DECIMAL({len(digits)}, 0)")


def _interval(node: exp.Interval, refuse: Refuse) -> exp.Expr:
    """``INTERVAL -'2 03:04:05.678' DAY TO SECOND`` is so many milliseconds, ``'3-2' YEAR TO MONTH`` months."""
    value, unit = node.this, node.unit
    negative = isinstance(value, exp.Neg)
    value = value.this if negative else value
    if value is None or not value.is_string or unit is None:
        return node
    if isinstance(unit, exp.IntervalSpan):
        first, last = unit.this.name.upper(), unit.expression.name.upper()
        count = _spanned(value.name, first, last)
        if count is None:
            refuse(node, f"{value.name!r} is not an interval {first} TO {last}")
        kind = "MONTH" if last == "MONTH" else "MILLISECOND"
    elif negative:
        count, kind = value.name, unit.name
    else:
        return node
    text = f"-{count}" if negative and not str(count).startswith("-") else str(count).removeprefix("--")
    return exp.Interval(this=exp.Literal.string(text), unit=exp.Var(this=kind))


def _spanned(text: str, first: str, last: str) -> int | None:
    """Months or milliseconds; None for a text of another form."""
    sign = -1 if text.startswith("-") else 1
    text = text.strip().lstrip("+-")
    if (first, last) == ("YEAR", "MONTH"):
        match = re.fullmatch(r"(\d{1,9})-(\d{1,2})", text)
        return sign * (int(match[1]) * 12 + int(match[2])) if match else None
    if first not in _UNITS or last not in _UNITS:
        return None
    units = _UNITS[_UNITS.index(first) : _UNITS.index(last) + 1]
    parts = re.split(r"[ :]", text)
    if len(parts) != len(units) or not all(re.fullmatch(r"\d{1,9}(\.\d{1,3})?", part) for part in parts):
        return None
    if any("." in part for part in parts[:-1]) or ("." in parts[-1] and last != "SECOND"):
        return None
    whole, _, fraction = parts[-1].partition(".")
    millis = sum(int(part) * _UNIT_MILLIS[unit] for part, unit in zip((*parts[:-1], whole), units, strict=True))
    return sign * (millis + int(fraction.ljust(3, "0") or 0))
