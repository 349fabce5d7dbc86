"""Values of DuckDB as SQL clients read them: for each type its name there, and what makes its values JSON.

Nothing is lost on the way: decimals, dates, times and intervals travel as text that DuckDB itself writes
(Python's types know neither the year 12000 nor nanoseconds, and have one infinity too few), bytes as base64.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from parser.time_zones import offset_minutes

BIGINT_MAX = 2**63 - 1
DECIMAL_DIGITS_MAX = 38
INTERVAL = "interval"
"""Type of a column whose values decide which of the two interval types it has: DuckDB's is both."""

Convert = Callable[[Any], Any]

_BC = " (BC)"
_WORD = re.compile(r"[a-z_][a-z0-9_]*")
_INTERVAL = re.compile(
    r"(?:(-?\d+) years?)?\s*(?:(-?\d+) months?)?\s*(?:(-?\d+) days?)?\s*"
    r"(?:(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)
_MOMENT = re.compile(r"(\d+)-(\d\d-\d\d)(.*?)( \(BC\))?")
_OFFSET = re.compile(r"[+-]\d\d(?::\d\d)*$")
_CLOCK = re.compile(r"(.*?)(?:\.(\d+))?([+-]\d\d(?::\d\d){0,2})?")


@dataclass(frozen=True, slots=True)
class WireType:
    """``name`` is the type for clients. The query casts to ``carrier`` when ``is_cast``; ``convert`` takes
    what Python then has of a value that is not NULL."""

    name: str
    carrier: str
    convert: Convert
    is_cast: bool = False
    zone: str = ""
    """Time zone of the clock that instants are shown by; empty: the session's."""

    def text_of(self, column: str) -> str:
        """SQL for a column's value as a text. A clock that goes back shows an hour twice, of which drivers mean
        the first; the second is written with the session's zone."""
        text = f"CAST({column} AS {self.carrier})"
        if not self.zone:
            return text
        zone = "'" + self.zone.replace("'", "''") + "'"
        minutes = offset_minutes(self.zone)
        if minutes is not None:
            return f"CAST(timezone('UTC', {column}) + INTERVAL '{minutes} minutes' AS VARCHAR) || ' ' || {zone}"
        local = f"timezone({zone}, {column})"
        shown = f"CAST({local} AS VARCHAR) || ' ' || {zone}"
        before = (f"timezone({zone}, {column} - INTERVAL '{shift} minutes')" for shift in (30, 60, 120))
        return f"CASE WHEN {local} IN ({', '.join(before)}) THEN {text} ELSE {shown} END"


def as_written(wire: WireType, name: str, zone: str) -> WireType:
    """``wire`` with what the query's text says of the column: its length, digits of a second, or zone."""
    base, digits = name.partition("(")[0], re.search(r"\((\d+)\)", name)
    if wire.name == "varchar" and base in ("char", "varchar"):
        return replace(wire, name=name)
    if digits is None or wire.name.partition("(")[0] != base or ("zone" in wire.name) != ("zone" in name):
        return wire
    size = int(digits[1])
    if base == "time":
        return replace(wire, name=name, convert=_clock(size))
    if "zone" in name:
        return replace(wire, name=name, convert=_in_zone(size, zone), zone=zone)
    return replace(wire, name=name, convert=_timestamp(size))


def wire_type(kind: Any) -> WireType:
    """Wire type of a ``DuckDBPyType``; text for one that clients do not have."""
    name = str(kind)
    if name == "JSON":
        return WireType("json", name, _same)
    if kind.id in _NESTED:
        return _NESTED[kind.id](kind)
    if kind.id == "decimal":
        precision, scale = (size for _, size in kind.children)
        return WireType(f"decimal({precision},{scale})", name, _decimal)
    if kind.id in _TEXTS:
        wire_name, convert = _TEXTS[kind.id]
        return WireType(wire_name, "VARCHAR", convert, is_cast=True)
    if kind.id == "bignum":
        return WireType("decimal(38,0)", "VARCHAR", _decimal, is_cast=True)
    plain = _PLAIN.get(kind.id)
    return WireType(plain[0], name, plain[1]) if plain else WireType("varchar", "VARCHAR", str, is_cast=True)


def query_text(sql: str, types: Sequence[WireType]) -> str:
    """``sql``, with the columns whose values would not survive Python cast to their carriers."""
    if not any(wire.is_cast for wire in types):
        return sql
    names = [f'"c{n}"' for n in range(len(types))]
    columns = [wire.text_of(name) if wire.is_cast else name for name, wire in zip(names, types, strict=True)]
    return f"SELECT {', '.join(columns)} FROM ({sql}\n) AS q({', '.join(names)})"


def rows_and_types(rows: Sequence[tuple[Any, ...]], types: Sequence[WireType]) -> tuple[list[Any], list[str]]:
    """Rows fit for JSON, and the columns' types. Raises OverflowError for a value that clients cannot take."""
    names = [wire.name for wire in types]
    converters = [wire.convert for wire in types]
    for n, name in enumerate(names):
        if name == INTERVAL:
            names[n], converters[n] = _interval_type([row[n] for row in rows if row[n] is not None])
    return [[_value(value, c) for value, c in zip(row, converters, strict=True)] for row in rows], names


def _value(value: Any, convert: Convert) -> Any:
    return None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _bigint(value: int) -> int:
    if not -BIGINT_MAX - 1 <= value <= BIGINT_MAX:
        raise OverflowError(f"{value} does not fit into a bigint")
    return value


def _decimal(value: Decimal | int | str) -> str:
    text = format(value, "f") if isinstance(value, Decimal) else str(value)
    if sum(character.isdigit() for character in text.lstrip("-0")) > DECIMAL_DIGITS_MAX:
        raise OverflowError(f"{text} does not fit into a decimal of {DECIMAL_DIGITS_MAX} digits")
    return text


def _double(value: float) -> float | str:
    """JSON has neither infinities nor NaN."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _real(value: float) -> float | str:
    """The shortest number that is this one in 32 bits."""
    if not math.isfinite(value):
        return _double(value)
    digits = (float(f"{value:.{n}g}") for n in range(1, 9))
    packed = struct.pack("f", value)
    return next((real for real in digits if _packed(real) == packed), float(f"{value:.9g}"))


def _packed(value: float) -> bytes | None:
    try:
        return struct.pack("f", value)
    except OverflowError:
        return None


def _date(text: str) -> str:
    """Years before 1 are counted as astronomers do: 1 BC is 0."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise OverflowError(f"{text} is not a date that SQL clients can take")
    year = int(match[1])
    if match[4]:
        year = 1 - year
    sign = "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{match[2]}{match[3]}"


def _clock(digits: int) -> Convert:
    """Converter of times of day to ``digits`` of a second; an offset without minutes gets ``:00``."""

    def clock(text: str) -> str:
        match = _CLOCK.fullmatch(text)
        assert match is not None
        fraction = f".{(match[2] or '').ljust(digits, '0')[:digits]}" if digits else ""
        offset = match[3] or ""
        return f"{match[1]}{fraction}{offset}{':00' if len(offset) == 3 else ''}"

    return clock


def _timestamp(digits: int) -> Convert:
    clock = _clock(digits)

    def timestamp(text: str) -> str:
        if _MOMENT.fullmatch(text) is None:
            raise OverflowError(f"{text} is not a time that SQL clients can take")
        return _date(clock(text.replace(_BC, "")) + (_BC if _BC in text else ""))

    return timestamp


_zoned = _timestamp(6)


def _timestamp_with_zone(text: str) -> str:
    """Write a time in the session's zone, which is written as an offset: a name would be ambiguous for an hour
    each autumn."""
    offset = _OFFSET.search(text)
    if offset is None:
        raise OverflowError(f"{text} is not a time that SQL clients can take")
    if len(offset[0]) > len("+00:00"):  # Local mean time, before there were zones.
        moment = datetime.fromisoformat(text).astimezone(UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond:06d} UTC"
    local, zone = _zoned(text)[:-6], _zoned(text)[-6:]
    return f"{local} {'UTC' if zone == '+00:00' else zone}"


def _in_zone(digits: int, zone: str) -> Convert:
    shown = _timestamp(digits)

    def in_zone(text: str) -> str:
        if zone and text.endswith(f" {zone}"):
            return f"{shown(text.removesuffix(f' {zone}'))} {zone}"
        local, _, offset = _timestamp_with_zone(text).rpartition(" ")
        return f"{shown(local)} {offset}"

    return in_zone


def _interval_parts(text: str) -> tuple[int, int]:
    """Months, and milliseconds."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise OverflowError(f"{text} is not an interval that SQL clients can take")
    years, months, days = (int(match[n] or 0) for n in (1, 2, 3))
    seconds = int(match[5] or 0) * 3600 + int(match[6] or 0) * 60 + int(match[7] or 0)
    micros = int((match[8] or "").ljust(6, "0"))
    if micros % 1000:
        raise OverflowError(f"the interval {text} has microseconds; SQL clients take milliseconds")
    millis = (seconds * 1000 + micros // 1000) * (-1 if match[4] else 1)
    return years * 12 + months, days * 86_400_000 + millis


def _interval_type(texts: Sequence[str]) -> tuple[str, Convert]:
    parts = [_interval_parts(text) for text in texts]
    if any(months for months, _ in parts):
        if any(millis for _, millis in parts):
            raise OverflowError("the intervals of a column are either of months or of days and seconds")
        return "interval year to month", _months
    return "interval day to second", _days


def _months(text: str) -> str:
    months = _interval_parts(text)[0]
    return f"{'-' if months < 0 else ''}{abs(months) // 12}-{abs(months) % 12}"


def _days(text: str) -> str:
    millis = _interval_parts(text)[1]
    seconds, fraction = divmod(abs(millis), 1000)
    hours, rest = divmod(seconds, 3600)
    clock = f"{hours % 24:02d}:{rest // 60:02d}:{rest % 60:02d}.{fraction:03d}"
    return f"{'-' if millis < 0 else ''}{hours // 24} {clock}"


def _inner(kind: Any) -> WireType:
    """Wire type of a part of a nested value. An interval there is text: the rows are not looked through for its
    kind."""
    if kind.id == INTERVAL:
        return WireType("varchar", "VARCHAR", _same, is_cast=True)
    return wire_type(kind)


def _list(kind: Any) -> WireType:
    inner = _inner(kind.children[0][1])

    def convert(value: Sequence[Any]) -> list[Any]:
        return [_value(item, inner.convert) for item in value]

    return WireType(f"array({inner.name})", f"{inner.carrier}[]", convert, inner.is_cast)


def _row(kind: Any) -> WireType:
    """Python has a dictionary of a struct, in the order of its fields, and a tuple of one without names."""
    is_named, fields = kind.id == "struct", [(name, _inner(child)) for name, child in kind.children]

    def convert(value: dict[str, Any] | Sequence[Any]) -> list[Any]:
        items = value.values() if isinstance(value, dict) else value
        return [_value(item, inner.convert) for item, (_, inner) in zip(items, fields, strict=True)]

    names = ", ".join(f"{_identifier(name)} {inner.name}" if is_named else inner.name for name, inner in fields)
    carriers = (f"{_quoted(name)} {inner.carrier}" if is_named else inner.carrier for name, inner in fields)
    carrier = f"{'STRUCT' if is_named else 'TUPLE'}({', '.join(carriers)})"
    return WireType(f"row({names})", carrier, convert, any(inner.is_cast for _, inner in fields))


def _map(kind: Any) -> WireType:
    (_, key_kind), (_, value_kind) = kind.children
    keys, values = _inner(key_kind), _inner(value_kind)

    def convert(value: dict[Any, Any]) -> dict[str, Any]:
        # Keys that Python cannot have in a dictionary come beside their values.
        pairs = zip(value["key"], value["value"], strict=True) if key_kind.id in _NESTED else value.items()
        return {_key(keys.convert(k)): _value(v, values.convert) for k, v in pairs}

    return WireType(
        f"map({keys.name}, {values.name})",
        f"MAP({keys.carrier}, {values.carrier})",
        convert,
        keys.is_cast or values.is_cast,
    )


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _identifier(name: str) -> str:
    return name if _WORD.fullmatch(name) and name != INTERVAL else _quoted(name)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


_NESTED: dict[str, Callable[[Any], WireType]] = {
    "list": _list,
    "array": _list,
    "struct": _row,
    "tuple": _row,
    "map": _map,
}
_PLAIN: dict[str, tuple[str, Convert]] = {
    "boolean": ("boolean", _same),
    "tinyint": ("tinyint", _same),
    **dict.fromkeys(("smallint", "utinyint"), ("smallint", _same)),
    **dict.fromkeys(("integer", "usmallint"), ("integer", _same)),
    **dict.fromkeys(("bigint", "uinteger"), ("bigint", _same)),
    "ubigint": ("decimal(20,0)", _decimal),
    # What sum() makes of integers. Its callers know it as a bigint, and no query can ask for a wider integer.
    "hugeint": ("bigint", _bigint),
    "uhugeint": ("decimal(38,0)", _decimal),
    "float": ("real", _real),
    "double": ("double", _double),
    "varchar": ("varchar", _same),
    "blob": ("varbinary", lambda value: base64.b64encode(value).decode()),
    "uuid": ("uuid", str),
    "null": ("unknown", _same),
}
_TEXTS: dict[str, tuple[str, Convert]] = {
    "date": ("date", _date),
    "time": ("time(6)", _clock(6)),
    "time_ns": ("time(9)", _clock(9)),
    "time with time zone": ("time(6) with time zone", _clock(6)),
    "timestamp_s": ("timestamp(0)", _timestamp(0)),
    "timestamp_ms": ("timestamp(3)", _timestamp(3)),
    "timestamp": ("timestamp(6)", _timestamp(6)),
    "timestamp_ns": ("timestamp(9)", _timestamp(9)),
    "timestamp with time zone": ("timestamp(6) with time zone", _timestamp_with_zone),
    INTERVAL: (INTERVAL, _same),
}
