"""Types of expressions that are told by the text alone, where DuckDB's are coarser than Trino's.

DuckDB makes a TIMESTAMP of a date that an interval is added to, has no length of a text and no digits of a
second, divides decimals as doubles, and keeps of AT TIME ZONE what a clock shows there, without the zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

from sqlglot import exp

from parser.time_zones import offset_minutes, zone_of

DECIMAL_DIGITS_MAX = 38
_QUOTIENTS = Context(prec=4 * DECIMAL_DIGITS_MAX, rounding=ROUND_HALF_UP)
"""Context with as many digits as a quotient of two decimals can have."""
_MICROS_DIGITS = 6
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
    if node.to.this.name not in _CLOCKS or size is None or size >= _MICROS_DIGITS:
        return node
    half = 5 * 10 ** (_MICROS_DIGITS - 1 - size)
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
