"""Type names as drivers get them spelled out."""

from __future__ import annotations

from typing import Any

import pytest

from app.sql.trino.pages import type_signature


def long(value: int) -> dict[str, Any]:
    return {"kind": "LONG", "value": value}


def spelled(raw: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"rawType": raw, "arguments": list(arguments)}


def field(name: str | None, kind: dict[str, Any]) -> dict[str, Any]:
    named = {"fieldName": {"name": name}} if name is not None else {}
    return {"kind": "NAMED_TYPE", "value": {"typeSignature": kind, **named}}


ZONED = spelled("timestamp with time zone", long(6))


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("bigint", spelled("bigint")),
        ("varchar", spelled("varchar", long(2**31 - 1))),
        ("decimal(38,0)", spelled("decimal", long(38), long(0))),
        ("timestamp(6) with time zone", ZONED),
        ("interval day to second", spelled("interval day to second")),
        ("array(date)", spelled("array", {"kind": "TYPE", "value": spelled("date")})),
        (
            "map(date, timestamp(6) with time zone)",
            spelled("map", {"kind": "TYPE", "value": spelled("date")}, {"kind": "TYPE", "value": ZONED}),
        ),
        ("row(integer, date)", spelled("row", field(None, spelled("integer")), field(None, spelled("date")))),
        (
            'row(time timestamp(6) with time zone, "a ""b"", c" date)',
            spelled("row", field("time", ZONED), field('a "b", c', spelled("date"))),
        ),
        ("row(timestamp(6) with time zone)", spelled("row", field(None, ZONED))),
    ],
)
def test_signatures(name: str, signature: dict[str, Any]) -> None:
    assert type_signature(name) == signature
