"""Literals and casts of queries, written so that DuckDB makes of them exactly the value that was written.

DuckDB has a type for each of Trino's, but reads some texts otherwise: it rounds a DECIMAL without digits to
three places, drops a zone or a digit of a second that it has no room for, and knows intervals of one unit only.

Types that the text alone tells are here, too, where DuckDB's are coarser than Trino's: it makes a TIMESTAMP of
a date that an interval is added to, has no length of a text and no digits of a second, divides decimals as
doubles, and keeps of AT TIME ZONE what a clock shows there, without the zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from sqlglot import exp

from parser.time_zones import offset_minutes, zone_of

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


_QUOTIENTS = Context(prec=4 * DECIMAL_DIGITS_MAX, rounding=ROUND_HALF_UP)
"""Context with as many digits as a quotient of two decimals can have."""
_INTEGER_DIGITS, _BIGINT_DIGITS, _INTEGER_MAX = 10, 19, 2**31 - 1
_ZONE = re.compile(r"[0-9)]\s+([A-Za-z][\w/+:-]*)$|([+-]\d\d:\d\d)$")
_TEXTS = ("CHAR", "VARCHAR")
_CLOCKS = {"TIME": "time", "TIMESTAMP": "timestamp", "TIMESTAMPNTZ": "timestamp", "TIMESTAMPTZ": "timestamp"}

_OF_WALL_TIME = (
    *(exp.Extract, exp.Year, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.Second, exp.Week, exp.Quarter),
    *(exp.DayOfWeek, exp.DayOfYear, exp.TimeToStr, exp.DateTrunc, exp.TimestampTrunc, exp.Cast),
)
"""Functions that ask a timestamp for what its zone's clock shows."""


class Inner(exp.Expression):
    """Stand-in for the node itself, which stays as it is, in what ``trino_value`` makes of it. Copying it would
    cost its size again for each level of a nested text."""


_NAMES = {
    "FLOAT": "real",
    "BLOB": "varbinary",
    "HUGEINT": "decimal(38,0)",
    "TIME": "time(6)",
    "TIME WITH TIME ZONE": "time(6) with time zone",
    "TIMESTAMP": "timestamp(6)",
    "TIMESTAMP_MS": "timestamp(3)",
    "TIMESTAMP_NS": "timestamp(9)",
    "TIMESTAMP WITH TIME ZONE": "timestamp(6) with time zone",
    '"NULL"': "unknown",
}
"""DuckDB's names of types that are not the protocol's in lower case."""


@dataclass(frozen=True, slots=True)
class TrinoColumn:
    """Knowledge of a column besides DuckDB's: its type, and the zone that its instants are shown in; empty:
    nothing."""

    name: str = ""
    zone: str = ""


def column_type(node: exp.Expr) -> TrinoColumn:
    """Return the column of a projection, before ``trino_value`` changes it."""
    node = node.this if isinstance(node, exp.Alias) else node
    if isinstance(node, exp.AtTimeZone) and isinstance(node.args["zone"], exp.Literal):
        inner = column_type(node.this)
        size = re.search(r"\(\d\)", inner.name)
        return TrinoColumn(
            f"timestamp{size[0] if size else '(6)'} with time zone", zone_of(node.args["zone"].name)
        )
    if not isinstance(node, exp.Cast) or isinstance(node, exp.TryCast):
        return TrinoColumn()
    kind, length = node.to.this.name, _size(node.to)
    if kind in _TEXTS and (length is not None or kind == "CHAR"):
        return TrinoColumn(f"{kind.lower()}({1 if length is None else length})")
    if kind in _CLOCKS and length is not None and length <= 9:
        zoned = kind == "TIMESTAMPTZ"
        digits = min(length, 6) if zoned or kind == "TIME" else length
        match = _ZONE.search(node.this.name.strip()) if zoned and node.this.is_string else None
        zone = zone_of(match[1] or match[2]) if match else ""
        return TrinoColumn(f"{_CLOCKS[kind]}({digits}){' with time zone' * zoned}", zone)
    return TrinoColumn()


def _size(kind: exp.DataType) -> int | None:
    """The only number behind the type's name; None: there is no such."""
    (size,) = kind.expressions if len(kind.expressions) == 1 else (None,)
    return int(size.name) if size is not None and size.name.isdecimal() else None


def trino_value(node: exp.Expr) -> exp.Expr:
    """Return what stands in the place of ``node`` so that DuckDB makes of it what Trino does: itself, if it
    does.

    Parts of ``node`` may have moved there; ``Inner`` stands for the whole."""
    if isinstance(node, exp.AtTimeZone):
        instant = exp.cast(node.this, "TIMESTAMPTZ", copy=False)
        asks = isinstance(node.parent, _OF_WALL_TIME) and not _is_zoned_cast(node.parent)
        return _wall_time(instant, node.args["zone"]) if asks else instant
    if _is_date_sum(node):
        return exp.cast(Inner(), "DATE", copy=False)
    if isinstance(node, exp.Cast) and not node.this.is_string:
        return _rounded(node)
    if isinstance(node, exp.Div):
        return _quotient(node) or node
    return node


def _wall_time(instant: exp.Expr, zone: exp.Expr) -> exp.Expr:
    """Return what the zone's clock shows. DuckDB knows names of zones only."""
    minutes = offset_minutes(zone_of(zone.name)) if zone.is_string else None
    if minutes is None:
        return exp.AtTimeZone(this=instant, zone=zone.copy())
    shift = exp.Interval(this=exp.Literal.string(str(minutes)), unit=exp.Var(this="MINUTE"))
    utc = exp.AtTimeZone(this=instant, zone=exp.Literal.string("UTC"))
    return exp.Paren(this=exp.Add(this=utc, expression=shift))


def _is_zoned_cast(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Cast) and node.to.is_type("TIMESTAMPTZ")


def _is_date_sum(node: exp.Expr) -> bool:
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc | exp.DateAdd | exp.DateSub):
        return _is_date(node.this)
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        return _is_date(node.this)
    return isinstance(node, exp.Add) and isinstance(node.this, exp.Interval) and _is_date(node.expression)


def _is_date(node: exp.Expr) -> bool:
    if isinstance(node, exp.Paren):
        return _is_date(node.this)
    is_cast = isinstance(node, exp.Cast) and node.to.is_type("DATE")
    return is_cast or isinstance(node, exp.CurrentDate | exp.Date) or _is_date_sum(node)


def _rounded(node: exp.Cast) -> exp.Expr:
    """Half of the last digit more; what is behind that digit is not shown."""
    size = _size(node.to)
    if node.to.this.name not in _CLOCKS or size is None or size >= MICROS_DIGITS:
        return node
    half = 5 * 10 ** (MICROS_DIGITS - 1 - size)
    interval = exp.Interval(this=exp.Literal.string(str(half)), unit=exp.Var(this="MICROSECOND"))
    return exp.Paren(this=exp.Add(this=Inner(), expression=interval))


def type_name(node: exp.Typeof) -> exp.Expr:
    """The name of its argument's type, before anything is put in the argument's place."""
    written = node.this
    if written.is_string:
        return exp.Literal.string(f"varchar({len(written.name)})")
    known = column_type(written).name
    if known:
        return exp.Literal.string(known)
    case = exp.Case(this=node.copy(), default=exp.Lower(this=node.copy()))
    for name, shown in _NAMES.items():
        case.append("ifs", exp.If(this=exp.Literal.string(name), true=exp.Literal.string(shown)))
    return case


def _quotient(node: exp.Div) -> exp.Expr | None:
    """Return the quotient of two numbers that are written there, one of them with a point: a decimal."""
    left, right = _digits(node.this), _digits(node.expression)
    if left is None or right is None or not (left[2] or right[2]) or right[0] == 0:
        return None
    (dividend, p1, s1), (divisor, _, s2) = left, right
    scale = max(s1, s2)
    if scale > DECIMAL_DIGITS_MAX:
        # Refused as it stands there.
        return None
    precision = min(DECIMAL_DIGITS_MAX, p1 + s2 + max(s2 - s1, 0))
    value = _QUOTIENTS.quantize(_QUOTIENTS.divide(dividend, divisor), Decimal(1).scaleb(-scale))
    kind = exp.DataType.build(f"DECIMAL({max(precision, scale, 1)}, {scale})", dialect="duckdb")
    return exp.Cast(this=exp.Literal.string(format(value, "f")), to=kind)


def _digits(node: exp.Expr) -> tuple[Decimal, int, int] | None:
    """Value, precision and scale of a number that is written there."""
    if isinstance(node, exp.Paren):
        return _digits(node.this)
    if isinstance(node, exp.Neg):
        inner = _digits(node.this)
        return inner and (-inner[0], inner[1], inner[2])
    if not isinstance(node, exp.Literal) or node.is_string or not re.fullmatch(r"\d*\.?\d*", node.name):
        return None
    value, (whole, _, fraction) = Decimal(node.name), node.name.partition(".")
    if "." not in node.name:
        return value, _INTEGER_DIGITS if value <= _INTEGER_MAX else _BIGINT_DIGITS, 0
    return value, max(len(whole.lstrip("0")) + len(fraction), 1), len(fraction)
