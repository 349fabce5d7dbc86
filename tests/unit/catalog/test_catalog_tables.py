"""Tables in the catalog: what is written, what is refused, and the zone that they live in."""

from __future__ import annotations

import pytest

from catalog.core.errors import ErrorKind
from catalog.core.snapshot import DefaultZoneEntry, TableEntry, ZoneEntry
from catalog.core.table import Column, Table, TableId
from catalog.core.zone import Node, ZoneId
from parser.render import render_table
from tests.unit.catalog.commands import catalog, change, command, refusal

ROCKS = tuple(Node(f"n{n}", profiles=("default", "rocks")) for n in (1, 2, 3))
ZONE = "CREATE ZONE z STORAGE PROFILES ['rocks', 'default']"


def test_a_table_takes_the_zones_first_profile_and_its_key_for_colocation() -> None:
    sql = "CREATE TABLE shop.t (a INT, b CHARACTER VARYING(9) NOT NULL, PRIMARY KEY (b, a)) ZONE z"
    made = change(sql, catalog(ZONE, topology=ROCKS), ROCKS)
    columns = (Column("A", "INTEGER", nullable=False), Column("B", "VARCHAR(9)", nullable=False))
    table = Table(TableId(1), "T", ZoneId(1), "rocks", columns, ("B", "A"), ("B", "A"))
    (entry,) = made.entries
    assert isinstance(entry, TableEntry)
    assert entry.table == table
    assert (made.zone_id, made.after) == (1, None)
    assert made.effect == {
        "op": "create_table", "table": "T", "zone": "Z", "storage_profile": "rocks", "colocation": ["B", "A"],
    }  # fmt: skip
    assert command(render_table(table, "Z")) == command(
        "CREATE TABLE t (a INTEGER NOT NULL, b VARCHAR(9) NOT NULL, PRIMARY KEY (b, a)) "
        "COLOCATE (b, a) ZONE z STORAGE PROFILE 'rocks'"
    )


def test_the_first_table_without_a_zone_brings_the_default_zone() -> None:
    """Atomically: one version has the zone, that it is the default, and the table."""
    made = change("CREATE TABLE t (id INT PRIMARY KEY)")
    assert [type(entry) for entry in made.entries] == [ZoneEntry, DefaultZoneEntry, TableEntry]
    assert made.after is not None
    assert (made.after.name, made.after.storage_profiles, made.quorum) == ("Default", ("default",), 1)
    snapshot = catalog("CREATE TABLE t (id INT PRIMARY KEY)")
    assert (snapshot.version, snapshot.default_zone) == (1, made.after)
    second = change("CREATE TABLE u (id INT PRIMARY KEY)", snapshot)
    assert len(second.entries) == 1
    assert second.effect["zone"] == "Default"


def test_the_default_zone_can_be_another() -> None:
    snapshot = catalog(ZONE, "ALTER ZONE z SET DEFAULT", topology=ROCKS)
    assert change("CREATE TABLE t (id INT PRIMARY KEY)", snapshot, ROCKS).effect["zone"] == "Z"
    again = change("ALTER ZONE z SET DEFAULT", snapshot)
    assert (again.applied, again.entries) == (False, ())
    assert refusal("DROP ZONE IF EXISTS z", snapshot)[0] is ErrorKind.DEFAULT_ZONE_PROTECTED


def test_a_zone_called_default_is_not_taken_over() -> None:
    snapshot = catalog('CREATE ZONE "Default"')
    kind, message = refusal("CREATE TABLE t (id INT PRIMARY KEY)", snapshot)
    assert kind is ErrorKind.ZONE_ALREADY_EXISTS
    assert "SET DEFAULT" in message
    nodes = (Node("n", profiles=("rocks",)),)
    assert refusal("CREATE TABLE t (id INT PRIMARY KEY)", None, nodes)[0] is ErrorKind.STORAGE_PROFILE_UNKNOWN


def test_a_zone_with_tables_stays() -> None:
    tables = [f"CREATE TABLE t{n} (id INT PRIMARY KEY) ZONE z" for n in (1, 2)]
    snapshot = catalog("CREATE ZONE z", *tables)
    kind, message = refusal("DROP ZONE IF EXISTS z", snapshot)
    assert kind is ErrorKind.ZONE_IN_USE
    assert message == "table T1 and 1 more is stored in zone Z: drop its tables first"
    emptied = catalog("CREATE ZONE z", *tables, "DROP TABLE t1", "DROP TABLE IF EXISTS t2", "DROP ZONE z")
    assert (emptied.zones, emptied.tables, emptied.next_table_id) == ((), (), 3)


def test_a_renamed_zone_keeps_id_and_tables() -> None:
    table = "CREATE TABLE t (id INT PRIMARY KEY) ZONE z"
    snapshot = catalog("CREATE ZONE z", table, "ALTER ZONE z RENAME TO y")
    zone = snapshot.zone("Y")
    assert zone is not None
    assert (zone.zone_id, snapshot.zone("Z")) == (1, None)
    assert snapshot.tables_in(zone) == snapshot.tables
    assert refusal("ALTER ZONE IF EXISTS y RENAME TO y", snapshot)[0] is ErrorKind.ZONE_ALREADY_EXISTS
    assert not change("ALTER ZONE IF EXISTS z RENAME TO y", snapshot).applied


def test_columns_come_and_go() -> None:
    snapshot = catalog(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        "ALTER TABLE t ADD COLUMN (b TIMESTAMP(3) WITH LOCAL TIME ZONE, c DOUBLE PRECISION DEFAULT -1.5)",
        "ALTER TABLE t DROP (a, b)",
    )
    (table,) = snapshot.tables
    assert table.columns == (
        Column("ID", "INTEGER", nullable=False),
        Column("C", "DOUBLE", default="-1.5"),
    )
    assert change("ALTER TABLE t DROP COLUMN c", snapshot).effect == {
        "op": "alter_table", "table": "T", "columns": ["ID"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("CREATE TABLE t$ (id INT PRIMARY KEY) ZONE ghost", ErrorKind.NAME_INVALID),
        ('CREATE TABLE t (" " INT PRIMARY KEY) ZONE ghost', ErrorKind.NAME_INVALID),
        (f"CREATE TABLE {'t' * 129} (id INT PRIMARY KEY)", ErrorKind.NAME_TOO_LONG),
        ("CREATE TABLE t (id INT, id INT) ZONE ghost", ErrorKind.TABLE_COLUMN_DUPLICATE),
        ("CREATE TABLE t (id STRING PRIMARY KEY) ZONE ghost", ErrorKind.TABLE_COLUMN_TYPE),
        ("CREATE TABLE t (id INT(3) PRIMARY KEY) ZONE ghost", ErrorKind.TABLE_COLUMN_TYPE),
        ("CREATE TABLE t (id VARCHAR(0) PRIMARY KEY) ZONE ghost", ErrorKind.TABLE_COLUMN_TYPE),
        ("CREATE TABLE t (id DECIMAL(3, 4) PRIMARY KEY) ZONE ghost", ErrorKind.TABLE_COLUMN_TYPE),
        ("CREATE TABLE t (id INT) ZONE ghost", ErrorKind.TABLE_PRIMARY_KEY_INVALID),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)", ErrorKind.TABLE_PRIMARY_KEY_INVALID),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a, a))", ErrorKind.TABLE_COLUMN_DUPLICATE),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b))", ErrorKind.TABLE_COLUMN_NOT_FOUND),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT) COLOCATE BY (b)", ErrorKind.TABLE_COLOCATION_INVALID),
        ("CREATE TABLE t (a INT PRIMARY KEY) COLOCATE (a, a)", ErrorKind.TABLE_COLOCATION_INVALID),
        ("CREATE TABLE old (id INT PRIMARY KEY) STORAGE PROFILE ' '", ErrorKind.STORAGE_PROFILES_EMPTY),
        ("CREATE TABLE old (id INT PRIMARY KEY) ZONE ghost", ErrorKind.TABLE_ALREADY_EXISTS),
        ("CREATE TABLE t (id INT PRIMARY KEY) ZONE ghost STORAGE PROFILE 'x'", ErrorKind.ZONE_NOT_FOUND),
        ("CREATE TABLE t (id INT PRIMARY KEY) ZONE z STORAGE PROFILE 'x'", ErrorKind.TABLE_STORAGE_PROFILE),
        ("ALTER TABLE ghost ADD COLUMN a INT", ErrorKind.TABLE_NOT_FOUND),
        ("ALTER TABLE IF EXISTS ghost ADD COLUMN (a INT, a INT)", ErrorKind.TABLE_COLUMN_DUPLICATE),
        ("ALTER TABLE old ADD COLUMN id INT", ErrorKind.TABLE_COLUMN_DUPLICATE),
        ("ALTER TABLE old DROP COLUMN nothing", ErrorKind.TABLE_COLUMN_NOT_FOUND),
        ("ALTER TABLE old DROP COLUMN (a, a)", ErrorKind.TABLE_COLUMN_DUPLICATE),
        ("ALTER TABLE old DROP COLUMN id", ErrorKind.TABLE_COLUMN_IN_KEY),
        ("DROP TABLE ghost", ErrorKind.TABLE_NOT_FOUND),
    ],
)
def test_the_first_refusal(sql: str, kind: ErrorKind) -> None:
    snapshot = catalog("CREATE ZONE z", "CREATE TABLE old (id INT PRIMARY KEY, a INT)")
    assert refusal(sql, snapshot)[0] is kind


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE IF NOT EXISTS old (a INT PRIMARY KEY) ZONE ghost",
        "ALTER TABLE IF EXISTS ghost DROP COLUMN a",
        "ALTER TABLE IF EXISTS ghost ADD a INT",
        "DROP TABLE IF EXISTS ghost",
    ],
)
def test_if_exists_does_nothing_and_says_so(sql: str) -> None:
    nothing = change(sql, catalog("CREATE TABLE old (id INT PRIMARY KEY)"))
    assert (nothing.applied, nothing.entries, nothing.effect) == (False, (), {"op": "noop"})


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE TABLE t ()", "expected a column name, found )"),
        ("CREATE TABLE t (a)", "expected a type, found )"),
        ("CREATE TABLE t (a NOT NULL)", "expected a type, found NOT"),
        ("CREATE TABLE t (a INT,)", "expected a column name"),
        ("CREATE TABLE t (a INT NOT NULL NULL)", "NULL or NOT NULL"),
        ("CREATE TABLE t (a INT DEFAULT x)", "expected a literal"),
        ("CREATE TABLE t (a INT, UNIQUE (a))", "UNIQUE"),
        ("CREATE TABLE t (a INT PRIMARY KEY) ZONE a.b", "found ."),
        ("CREATE TABLE t (a INT PRIMARY KEY) ZONE z COLOCATE BY (a)", "the order is COLOCATE, ZONE"),
        ("CREATE TABLE t (a INT PRIMARY KEY) STORAGE PROFILES ['a']", "expected PROFILE"),
        ("ALTER TABLE t ADD COLUMN a INT PRIMARY KEY", "fixed when a table is created"),
        ("ALTER TABLE t ADD COLUMN a INT, b INT", "in parentheses"),
        ("ALTER TABLE t RENAME TO u", "expected ADD or DROP"),
    ],
)
def test_syntax(sql: str, message: str) -> None:
    kind, found = refusal(sql)
    assert kind is ErrorKind.SYNTAX_ERROR
    assert message in found
