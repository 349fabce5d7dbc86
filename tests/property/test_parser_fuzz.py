"""A great many random and mutated statements: each ends as a command that is judged, or as a coded error.

``FUZZ_STATEMENTS`` says how many (a million in the soak run), ``FUZZ_SEED`` from which seed; a failure names
seed and text.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.core.errors import ParseError, RefusedError
from catalog.core.snapshot import CatalogSnapshot, apply_command
from catalog.core.zone import Node
from catalog.filters.json_path import JSON_PATH
from parser.render import render, render_table, render_zone
from parser.to_command import parse_ddl, parse_each

SLICE = 3_000
SOAK = int(os.environ.get("FUZZ_STATEMENTS", "1000000"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
ZONES_MAX = 30
RENDERED_EACH = 10
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""Every so many good statements one is also rendered and read back."""

DATA = Path(__file__).parents[1] / "data"
NODES = (
    Node("n1", (("region", "US"), ("tier", "10")), ("default", "rocks")),
    Node("n2", (("region", "EU"),), ("default", "rocks")),
    Node("n3", (), ("default", "archive")),
)
_WORDS = r"""
    CREATE CREATE CREATE ALTER ALTER DROP ZONE ZONE ZONE TABLE IF NOT EXISTS SET WITH ( ( ) ) , , ; = [ ] . ' "
    STORAGE PROFILES PROFILE ['default'] ['rocks','archive'] PARTITIONS REPLICAS QUORUM SIZE AUTO SCALE UP
    NODES FILTER DISTRIBUTION ALGORITHM CONSISTENCY MODE RENAME TO DEFAULT OFF ALL a b "c" 'd' "" 0 1 2 3 25
    1e9 0x1 2.5 PARTITIONS=4 REPLICAS=3 QUORUM_SIZE=2 DATA_NODES_FILTER='$..*' STORAGE_PROFILES='default' X=1
    'STRONG_CONSISTENCY' 'HIGH_AVAILABILITY' 'balanced' '$.region' '$[?(@.region=="US")]' '$[' '$[?(@.a!=1)]'
    id INT VARCHAR(3) DECIMAL(3,9) PRIMARY KEY NULL COLOCATE BY COLUMN ADD TIMESTAMP LOCAL TIME CONSTRAINT
    BEGIN COMMIT SELECT * FROM -- /* */ /*+ // ‘ ’ “ ” ‘a’ z$1 é \ ` N'x' {# #} $$ 2147483648 ? - + DOWN 65001
"""
WORDS = [*_WORDS.split(), "\n", "\t", "\u00a0", "\x00", "\ud800", "\U0001f600"]
_FILTER_PARTS = """
    $ @ . .. * [ ] ( ) ? ! && || == != === < > <= >= =~ in nin contains size empty 'US' "EU" 10 -1.5e3 1e999
    /U.*/i /(a+)+/ /[/ region tier ['region'] [0] [1:2] , : # ~ ^ _ | & $[?(@.region=='US')] $[?( )] @.region
    true null
"""
FILTER_PARTS = [*_FILTER_PARTS.split(), " "]


def seeds() -> list[str]:
    rows = (DATA / "zone_statements.jsonl").read_text(encoding="utf-8").splitlines()
    tables = [
        "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(10, 2) NOT NULL DEFAULT -1.5) COLOCATE (id) ZONE a",
        "ALTER TABLE t ADD COLUMN (x TIMESTAMP(3) WITH LOCAL TIME ZONE, y VARCHAR(7) DEFAULT 'q')",
        "ALTER TABLE IF EXISTS t DROP COLUMN (v, x)",
    ]
    return [json.loads(row)["sql"] for row in rows] + tables


def statements(count: int, seed: int) -> Iterator[str]:
    """Random words, random filters, and known statements with random changes."""
    rng = random.Random(seed)
    known = seeds()
    for _ in range(count):
        kind = rng.randrange(10)
        if kind < 3:
            yield rng.choice(["", " "]).join(rng.choices(WORDS, k=rng.randrange(1, 16)))
        elif kind == 3:
            text = "".join(rng.choices(FILTER_PARTS, k=rng.randrange(1, 12))).replace("'", "''")
            yield f"CREATE ZONE a (NODES FILTER '{text}')"
        else:
            yield mutated(rng, known)


def mutated(rng: random.Random, known: list[str]) -> str:
    text = rng.choice(known)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        at, how = rng.randrange(len(text) + 1), rng.randrange(5)
        if how == 0:
            text = text[:at] + text[at + rng.randrange(1, 6) :]
        elif how == 1:
            text = text[:at] + rng.choice(WORDS) + text[at:]
        elif how == 2:
            text = text[:at] + chr(rng.choice([rng.randrange(128), rng.randrange(0x11_0000)])) + text[at + 1 :]
        elif how == 3:
            text = text[:at] + rng.choice(known)[rng.randrange(20) :]
        else:
            old, new = rng.sample(["az", "a", "1", "3", "0", "(", ")", "'", " ", ","], 2)
            text = text.replace(old, new, 1)
    return text


def run(count: int, seed: int) -> Counter[str]:
    """Runs them on one catalog that grows and shrinks; counts how they ended."""
    ends: Counter[str] = Counter()
    snapshot = CatalogSnapshot()
    for text in statements(count, seed):
        try:
            snapshot = judge(text, snapshot, ends)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {text!r}: {error!r}") from error
        if len(snapshot.zones) > ZONES_MAX:
            snapshot = CatalogSnapshot()
    return ends


def judge(text: str, snapshot: CatalogSnapshot, ends: Counter[str]) -> CatalogSnapshot:
    try:
        statements_read = list(parse_each(text))
    except ParseError as error:
        ends["not storable" if UNSTORABLE.search(text) and error.line is not None else "no place"] += 1
        return snapshot
    for command, _ in statements_read:
        if isinstance(command, ParseError):
            assert command.line is not None
            ends[command.kind.name] += 1
            continue
        try:
            change = apply_command(snapshot, command, NODES, filters=JSON_PATH)
        except RefusedError as error:
            ends[error.kind.name if error.line is not None else "no place"] += 1
            continue
        snapshot = snapshot.after(change.entries)
        ends["ok"] += 1
        if ends["ok"] % RENDERED_EACH == 0:
            assert parse_ddl(render(command)) == (command,)
            for zone in snapshot.zones[-1:]:
                parse_ddl(render_zone(zone))
            for table in snapshot.tables[-1:]:
                parse_ddl(render_table(table, snapshot.zone_of(table).name))
    return snapshot


def test_a_slice() -> None:
    ends = run(SLICE, SEED)
    assert ends["ok"] > SLICE / 40
    assert "no place" not in ends
    assert ends["not storable"] > 0
    assert len(ends) > 15


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million() -> None:
    started = time.perf_counter()
    ends = run(SOAK, SEED)
    took_s = time.perf_counter() - started
    print(f"\n{SOAK} texts in {took_s:.0f} s ({1000 * took_s / SOAK:.2f} ms each): {ends.most_common()}")
    assert ends["ok"] > SOAK / 40
    assert "no place" not in ends
