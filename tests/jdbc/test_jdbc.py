"""The official JDBC driver against a real server: ``JdbcProbe.java`` says what a program sees."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.jdbc_driver import QUICK_JVM, jdbc_driver

PROBE = Path(__file__).parent / "JdbcProbe.java"
ZONE = "Europe/Berlin"
PROBE_S = 480

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jdbc_driver(tmp_path_factory)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, etcd_server: Etcd) -> Iterator[ApiServer]:
    directory = tmp_path_factory.mktemp("server")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving(directory, etcd_server, Keyspace("test-jdbc/"), url) as servers:
        yield servers[0]


@pytest.fixture(scope="module")
def seen(driver: Path, server: ApiServer) -> dict[str, Any]:
    address = f"jdbc:trino://127.0.0.1:{server.port}/zonekeeper/system"
    command = ["java", *QUICK_JVM, f"-Duser.timezone={ZONE}", "-cp", str(driver), str(PROBE), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.slow("a JVM reads everything that a driver may ask for")
def test_no_section_fails(seen: dict[str, Any]) -> None:
    failed = {name: what for name, what in seen.items() if isinstance(what, dict) and "failed" in what}
    assert failed == {}


def test_metadata(seen: dict[str, Any]) -> None:
    assert seen["versions"] == {
        "product": "Trino",  # The driver says so whatever the server is.
        "version": "450-zonekeeper",
        "driver": "Trino JDBC Driver",
        "read_only": False,
        "quote": '"',
        "catalog": "zonekeeper",
        "schema": "system",
    }
    assert seen["catalogs"] == [{"table_cat": "zonekeeper"}]
    assert [row["table_schem"] for row in seen["schemas"]] == ["information_schema", "public", "system"]
    assert [(row["table_name"], row["table_type"]) for row in seen["tables"]] == [("zones", "TABLE")]
    columns = {row["column_name"]: row for row in seen["columns"]}
    assert (columns["zone_id"]["data_type"], columns["zone_id"]["type_name"]) == (4, "integer")
    assert [row["ordinal_position"] for row in seen["columns"]] == list(range(1, len(columns) + 1))
    assert {"bigint", "decimal", "varbinary", "timestamp(6)", "array"} < {
        row["type_name"] for row in seen["types"]
    }
    assert [row["table_type"] for row in seen["table_types"]] == ["TABLE", "VIEW"]
    empty = (
        *("primary_keys", "imported_keys", "procedures", "procedure_columns", "udts", "attributes"),
        *("super_tables", "super_types", "pseudo_columns"),
    )
    assert {name: seen[name] for name in empty} == {name: [] for name in empty}


def test_statements(seen: dict[str, Any]) -> None:
    assert seen["statement"] == [{"one": 1, "text": "x", "nothing": None}]
    changes = seen["changes"]
    # The driver takes the row that says TRUE for a result, as it does for CREATE SCHEMA of any server.
    assert changes["zones"] == [{"zone_name": "JDBC", "zone_replicas": 2}]
    assert changes["prepared"] == [{"zone_name": "JDBC2", "zone_partitions": 3}]
    (warning,) = seen["warnings"]
    assert warning.startswith("REPLICAS 7, but 3 data nodes match now")
    assert seen["fetch_size"] == [7, True]
    assert seen["max_rows"] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert seen["batch"] == {"supported": True, "counts": 1}
    assert seen["session"] == {
        "schema": "information_schema",
        "tables": [{"_col0": True}],
        "used": "system",
        "in_transaction": [{"_col0": 2}],
    }
    assert (seen["valid"], seen["close"]) == (True, [True, False])


def test_values_go_there_and_come_back(seen: dict[str, Any]) -> None:
    """Send and read values of all types; a timestamp with a zone holds an instant here, not the zone that wrote
    it."""
    assert seen["values"] == {
        "boolean": ["boolean", "true"],
        "tinyint": ["tinyint", "-128"],
        "smallint": ["smallint", "-32768"],
        "integer": ["integer", "-2147483648"],
        "bigint": ["bigint", "9223372036854775807"],
        "bigint_min": ["bigint", "-9223372036854775808"],
        "real": ["real", "0.1"],
        "double": ["double", "0.3333333333333333"],
        "nan": ["double", "NaN"],
        "infinity": ["double", "-Infinity"],
        "real_infinity": ["real", "Infinity"],
        "decimal": ["decimal(11,6)", "12345.678901"],
        "decimal38": ["decimal(38,18)", "-12345678901234567890.123456789012345678"],
        "varchar": ["varchar", "it's; -- ? \u2603 \U0001f600"],
        "varbinary": ["varbinary", "0065ff"],
        "date": ["date", "2024-02-29"],
        "local_date": ["date", "2024-02-29"],
        "time": ["time(3)", "01:02:03"],
        "timestamp": ["timestamp(3)", "2024-02-03 04:05:06.789"],  # The driver's setTimestamp sends no more.
        "local_timestamp": ["timestamp(9)", "2024-02-03 04:05:06.789123456"],
        "timestamp_zone": ["timestamp(6) with time zone", "2024-02-02T22:35:06.789123Z"],
        "timestamp_named_zone": ["timestamp(3) with time zone", "2024-07-03T08:05:06.789Z"],
        "time_zone": ["time(6) with time zone", "01:02:03.500000+05:30"],
        "time_micros": ["time(6)", "01:02:03.123456"],
        "uuid": ["uuid", "12151fd2-7586-11e9-8f9e-2a86e4085a59"],
        "json": ["json", '{"a":[1,2]}'],
        "array_date": ["array(date)", "[2024-02-29, null]"],
        "map": ["map(varchar,decimal(3,2))", "{a=1.50, b=null}"],
        "row": ["row(n bigint,b varbinary,d date)", "[n=1, b=65, d=2024-02-29]"],
        "interval_months": ["interval year to month", "-3-2"],
        "interval_days": ["interval day to second", "2 03:04:05.678"],
        "sum": ["bigint", "null"],
        "year_12000": ["date", "12000-01-01"],
    }
    assert seen["nulls"] == [True, True, True]
    described = [
        ["zone_id", "integer", 4, 10, 0, "java.lang.Integer"],
        ["n", "varchar", 12, 2147483647, 0, "java.lang.String"],
        ["d", "decimal(3,2)", 3, 3, 2, "java.math.BigDecimal"],
        ["is_default_zone", "boolean", 16, 0, 0, "java.lang.Boolean"],
    ]
    assert seen["result_metadata"] == described * 2  # Of a result, and of a prepared statement before it runs.
    assert seen["parameter_metadata"] == 2


def test_errors_have_code_and_sqlstate(seen: dict[str, Any]) -> None:
    assert {sql: error[:2] for sql, error in seen["errors"].items()} == {
        "SELEC 1": [1001, "42601"],
        "SELECT nope FROM zones": [1103, "42703"],
        "SELECT 1 / 0": [1105, "22000"],
        "DROP ZONE nowhere": [4004, "42704"],
        "SELECT CAST('x' AS INTEGER)": [1105, "22000"],
        "SELECT * FROM nowhere": [1102, "42P01"],
    }


def test_a_query_is_cancelled_and_ends_at_its_timeout(seen: dict[str, Any]) -> None:
    assert seen["cancel"] == {"outcome": "canceled", "still_there": 0, "next": [{"_col0": 1}]}
    assert seen["query_timeout"] == "the query took longer than its timeout"
