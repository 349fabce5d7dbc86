"""Names that can be given, and names that are stored already."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.names import spellings, written
from catalog.core.snapshot import CatalogSnapshot, EntryKind, ZoneEntry
from catalog.core.visible import hidden_character, visible, visible_json
from catalog.core.zone import Node, Zone, ZoneId
from tests.unit.catalog.commands import catalog, change, nodes

HIDDEN = (
    "\n",
    "\r",
    "\t",
    "\x00",
    "\x1b",
    "\x85",
    "\u200b",
    "\u200f",
    "\u202e",
    "\u2028",
    "\u2066",
    "\ufeff",
    "\U000e0041",
)
SIGNS_OF_NUMBERS = {
    "\u0600",
    "\u0601",
    "\u0602",
    "\u0603",
    "\u0604",
    "\u0605",
    "\u06dd",
    "\u070f",
    "\u0890",
    "\u0891",
}
SIGNS_OF_NUMBERS |= {"\u08e2", "\U000110bd", "\U000110cd"}
"""Characters of the category of formats that have a shape nevertheless."""


def test_hidden_characters_are_those_of_unicode() -> None:
    """Controls, separators of lines and paragraphs, halves of pairs, and formats but for signs with a shape."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp", "Cs"):
            assert hidden_character(character) == f"U+{code:04X}"
        elif category == "Cf" and character not in SIGNS_OF_NUMBERS and not 0x13430 <= code <= 0x1343F:
            assert hidden_character(character), hex(code)
        elif category[0] in "LNPS" or character == " ":
            assert not hidden_character(character) or character in "\u115f\u1160\u3164\uffa0", hex(code)


@pytest.mark.parametrize("character", [each for each in HIDDEN if each != "\x00"])
@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ('CREATE ZONE "a{}b"', 13),
        ('ALTER ZONE z RENAME TO "a{}b"', 24),
        ('CREATE TABLE "a{}b" (k INT PRIMARY KEY) ZONE z', 14),
        ('CREATE TABLE t ("a{}b" INT, k INT PRIMARY KEY) ZONE z', 17),
        ('ALTER TABLE t ADD COLUMN "a{}b" INT', 26),
        ("CREATE ZONE y STORAGE PROFILES ['a{}b']", 33),
    ],
)
def test_a_new_name_can_be_seen(sql: str, column: int, character: str) -> None:
    before = catalog("CREATE ZONE z", "CREATE TABLE t (k INT PRIMARY KEY) ZONE z")
    topology = (*nodes(1), Node("p", profiles=("default", f"a{character}b")))
    with pytest.raises(RefusedError, match=rf"invisible character U\+{ord(character):04X}") as refused:
        change(sql.format(character), before, topology)
    assert refused.value.kind is ErrorKind.NAME_NOT_VISIBLE
    assert (refused.value.line, refused.value.column) == (1, column)


@pytest.mark.parametrize("name", [".", ".."])
def test_folders_are_no_names(name: str) -> None:
    for sql in (f'CREATE ZONE "{name}"', f'ALTER ZONE z RENAME TO "{name}"'):
        with pytest.raises(RefusedError) as refused:
            change(sql, catalog("CREATE ZONE z"))
        assert refused.value.kind is ErrorKind.NAME_INVALID


@pytest.mark.parametrize(
    "name", ["a/b?c#d", "%2f", "x y", "...", "Größe", "東京", "x\u0301", "🙂", "'\\", "<b>"]
)
def test_every_other_name_is_one(name: str) -> None:
    created = change(f'CREATE ZONE "{name}"').after
    assert created is not None
    assert created.name == name


@pytest.mark.parametrize(
    "sql",
    [
        'CREATE ZONE "z"',
        'CREATE ZONE IF NOT EXISTS "z"',
        'ALTER ZONE other RENAME TO "z"',
        'CREATE ZONE "z1 "',
        'CREATE ZONE " z1"',
        'ALTER ZONE other RENAME TO "z1 "',
        'CREATE TABLE "t " (k INT PRIMARY KEY)',
        'CREATE TABLE t ("k " INT PRIMARY KEY)',
    ],
)
def test_a_new_name_is_not_taken_for_another(sql: str) -> None:
    with pytest.raises(RefusedError) as refused:
        change(sql, catalog("CREATE ZONE z", "CREATE ZONE other"))
    assert refused.value.kind is ErrorKind.NAME_CONFUSABLE


def test_a_zone_may_get_another_case() -> None:
    before = catalog('CREATE ZONE "Orders"')
    renamed = before.after(change('ALTER ZONE "Orders" RENAME TO orders', before).entries)
    assert [zone.name for zone in renamed.zones] == ["ORDERS"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("orders", ("ORDERS", "orders")),
        ('"orders"', ("orders", '"orders"')),
        ('"a ""b"""', ('a "b"', '"a ""b"""')),
        ('a"b', ('A"B', 'a"b')),
        ('""', ('""', '""')),
    ],
)
def test_a_text_stands_for_the_name_that_sql_reads(text: str, names: tuple[str, ...]) -> None:
    assert spellings(text) == names


@pytest.mark.parametrize("name", ["ORDERS", "orders", 'a"b', '"X"', '"', "STRASSE", "straße", "A B"])
def test_what_is_written_stands_for_the_name(name: str) -> None:
    assert spellings(written(name))[0] == name


@pytest.mark.parametrize("name", ["..", *(f"a{each}b" for each in HIDDEN if each != "\x00")])
def test_what_is_stored_can_be_altered_renamed_and_dropped(name: str) -> None:
    stored = Zone(ZoneId(1), name, 4, 1, None, ("default",))
    snapshot = CatalogSnapshot().after((ZoneEntry(EntryKind.WRITTEN, stored),))
    altered = change(f'ALTER ZONE "{name}" SET (REPLICAS 2)', snapshot)
    assert altered.after is not None
    assert (altered.after.name, altered.after.replicas) == (name, 2)
    renamed = snapshot.after(change(f'ALTER ZONE "{name}" RENAME TO seen', snapshot).entries)
    assert [zone.name for zone in renamed.zones] == ["SEEN"]
    assert snapshot.after(change(f'DROP ZONE "{name}"', snapshot).entries).zones == ()


@pytest.mark.parametrize(
    ("text", "shown", "document"),
    [
        ("plain é 東京 🙂", "plain é 東京 🙂", "plain é 東京 🙂"),
        ("a\nb\r\tc", "a\\nb\\r\\tc", "a\nb\\u000d\\u0009c"),
        ("\x1b[31m", "\\x1b[31m", "\\u001b[31m"),
        ("x\u202ey", "x\\u202ey", "x\\u202ey"),
        ("\U000e0041\ud800", "\\U000e0041\\ud800", "\\udb40\\udc41\\ud800"),
    ],
)
def test_how_hidden_characters_are_shown(text: str, shown: str, document: str) -> None:
    assert visible(text) == shown
    assert visible_json(text) == document
