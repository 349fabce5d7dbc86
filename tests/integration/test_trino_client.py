"""The real client of the SQL protocol, and its SQLAlchemy dialect, against a real server."""

from __future__ import annotations

import itertools
import tempfile
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus
from zoneinfo import ZoneInfo

import httpx
import pytest
import trino
from sqlalchemy import create_engine, inspect, text

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import ApiServer, serving, with_data
from tests.fixtures.databases import new_database
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.trino_calls import connect, read_on, read_to_the_end

_names = (f"T{number}" for number in itertools.count(1))


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def server(request: pytest.FixtureRequest, etcd_server: Etcd) -> Iterator[ApiServer]:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        url = new_database(request, request.param, directory)
        with serving(directory, etcd_server, Keyspace(f"test-trino-{request.param}/"), url) as servers:
            yield servers[0]


@pytest.fixture
def zone() -> str:
    """A name that no other test uses."""
    return next(_names)


@pytest.fixture
def connection(server: ApiServer) -> Iterator[trino.dbapi.Connection]:
    with connect(server) as opened:
        yield opened


@pytest.mark.parametrize(
    ("sql", "ends_with"),
    [
        ("SELECT 1", None),
        ("USE system", None),
        ("SET SESSION wait = true", None),
        ("SELEC 1", "SYNTAX_ERROR"),
        ("DROP ZONE nowhere", "ZONE_NOT_FOUND"),
        ("EXECUTE nowhere", "PREPARED_STATEMENT_UNKNOWN"),
        ("SET SESSION nonsense = 1", "INVALID_REQUEST"),
        ("SELECT nope FROM zones", "COLUMN_NOT_FOUND"),
    ],
)
def test_an_error_is_never_on_the_first_page(server: ApiServer, sql: str, ends_with: str | None) -> None:
    """Clients exist that pass over it. A page that was read is read again as it was."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        again, last = read_to_the_end(client, sql, {"X-Trino-User": "tester", "X-Trino-Schema": "system"})
        assert last.get("error", {}).get("errorName") == ends_with
        assert client.get(again).json() == last
        assert client.delete(again).status_code == 204


def test_use_is_on_each_page(server: ApiServer) -> None:
    """Python's driver reads the first, JDBC's the last."""
    used = {"x-trino-set-catalog": "zonekeeper", "x-trino-set-schema": "information_schema"}
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        sql = "USE zonekeeper.information_schema"
        first = client.post("/v1/statement", content=sql, headers={"X-Trino-User": "tester"})
        last = client.get(first.json()["nextUri"])
        assert [{name: page.headers.get(name) for name in used} for page in (first, last)] == [used, used]
        forged = first.json()["nextUri"].replace("information_schema", "nope")
        assert client.get(forged).status_code == 404


def test_queries_and_parameters(connection: trino.dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert cursor.execute("SELECT 1").fetchall() == [[1]]
    assert cursor.execute("SELECT ? AS a, ? AS b", (7, "it's; -- ?")).fetchall() == [[7, "it's; -- ?"]]
    assert [each[0] for each in cursor.description] == ["a", "b"]
    assert cursor.execute("SELECT 1 - ?", (-1,)).fetchall() == [[2]]
    found = cursor.execute("SELECT ?, ?, ?, ?", (True, None, 1.5, Decimal("12345.678901"))).fetchall()
    assert found == [[True, None, 1.5, Decimal("12345.678901")]]
    assert cursor.execute("SELECT version()").fetchone() == ["450-zonekeeper"]


def test_each_type_goes_there_and_comes_back(connection: trino.dbapi.Connection) -> None:
    """Send each type as a parameter, in the literals that the driver writes, and read it back; precision and
    scale are those of the value."""
    berlin = ZoneInfo("Europe/Berlin")
    half_hours = timezone(timedelta(hours=5, minutes=30))
    values: dict[str, list[Any]] = {
        "boolean": [True, False],
        "integer": [0, -(2**31)],
        "bigint": [2**63 - 1, -(2**63)],
        "decimal(19,0)": [2**63],
        "double": [1.0 / 3, float("inf"), float("-inf"), 5e-324],
        "varchar": ["it's; -- ? \u2603 \U0001f600", ""],
        "varbinary": [b"\x00e\xff", b""],
        "decimal(2,2)": [Decimal("-0.05")],
        "decimal(38,0)": [Decimal("12345678901234567890123456789012345678")],
        "decimal(38,18)": [Decimal("12345678901234567890.123456789012345678")],
        "date": [date(2024, 2, 29), date(1582, 10, 4)],
        "time(6)": [time(1, 2, 3, 456789)],
        "time(6) with time zone": [time(1, 2, 3, 5, tzinfo=half_hours)],
        "timestamp(6)": [datetime(2024, 2, 3, 4, 5, 6, 789123)],
        "timestamp(6) with time zone": [
            datetime(2024, 7, 3, 4, 5, 6, 789123, tzinfo=berlin),
            datetime(2024, 2, 3, 4, 5, 6, tzinfo=half_hours),
            datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC),
        ],
        "uuid": [uuid.UUID("12151fd2-7586-11e9-8f9e-2a86e4085a59")],
        "array(integer)": [[1, None, 3]],
        "array(date)": [[date(2024, 2, 29)]],
        "row(integer, varchar, date)": [(1, "x", date(2024, 2, 29))],
        "map(varchar, decimal(3,2))": [{"a": Decimal("1.50"), "b": Decimal("-0.01")}],
        "unknown": [None],
    }
    cursor = connection.cursor()
    for kind, each in values.items():
        cursor.execute(f"SELECT {', '.join('?' * len(each))}", each)
        assert [*cursor.fetchone()] == each, kind
        assert {column.type_code for column in cursor.description} == {kind}
    (found,) = cursor.execute("SELECT ?", (float("nan"),)).fetchone()
    assert found != found


def test_other_types(connection: trino.dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute(
        "SELECT REAL '0.1', TINYINT '-128', SMALLINT '5', JSON '[1]', "
        "INTERVAL -'2 03:04:05.678' DAY TO SECOND, TIMESTAMP '2024-02-03 04:05:06', 1.50, sum(zone_id), "
        "CAST(ROW(1, X'65') AS ROW(n BIGINT, b VARBINARY)), CAST('abcdef' AS VARCHAR(3)) FROM zones WHERE false"
    )
    assert cursor.fetchall() == [
        [
            *(0.1, -128, 5, "[1]"),
            *(-timedelta(days=2, hours=3, minutes=4, seconds=5.678), datetime(2024, 2, 3, 4, 5, 6)),
            *(Decimal("1.50"), None, (1, b"e"), "abc"),
        ]
    ]
    assert [column.type_code for column in cursor.description] == [
        *("real", "tinyint", "smallint", "json", "interval day to second"),
        *("timestamp(0)", "decimal(3,2)", "bigint", "row(n bigint, b varbinary)", "varchar(3)"),
    ]


def test_a_session_has_its_time_zone(server: ApiServer) -> None:
    with connect(server, timezone="America/New_York") as connection:
        cursor = connection.cursor()
        (found,) = cursor.execute(
            "SELECT CAST(TIMESTAMP '2024-07-03 04:05:06' AS TIMESTAMP WITH TIME ZONE)"
        ).fetchone()
        assert found == datetime(2024, 7, 3, 8, 5, 6, tzinfo=UTC)
        assert found.utcoffset() == timedelta(hours=-4)


def test_rest_has_the_same_values(server: ApiServer) -> None:
    """JSON has neither bytes nor decimals, dates or NaN: they are what the SQL protocol makes of them."""
    sql = (
        "SELECT X'65' b, DECIMAL '1.50' d, DATE '2024-02-29' day, nan() n, ARRAY[1.5] a, "
        "TIMESTAMP '2024-02-03 04:05:06.789123 +01:00' t, MAP(ARRAY['k'], ARRAY[X'00']) m"
    )
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        (result,) = client.post("/api/v1/statements", json={"sql": sql}).raise_for_status().json()["results"]
    assert result["data"] == [
        ["ZQ==", "1.50", "2024-02-29", "NaN", ["1.5"], "2024-02-03 04:05:06.789123 +01:00", {"k": "AA=="}]
    ]
    assert [column["type"] for column in result["columns"]] == [
        *("varbinary", "decimal(3,2)", "date", "double", "array(decimal(2,1))"),
        *("timestamp(6) with time zone", "map(varchar, varbinary)"),
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT TIMESTAMP '2024-02-03 04:05:06.1234567891'", "at most 9 digits of a second"),
        ("SELECT TIMESTAMP '2024-02-03 04:05:06.1234567891 UTC'", "at most 6 digits of a second"),
        (f"SELECT DECIMAL '{'9' * 39}'", "at most 38 digits"),
        (f"SELECT {'9' * 39}", "at most 38 digits"),
        ("SELECT INTERVAL '3' YEAR TO MONTH", "is not an interval YEAR TO MONTH"),
        ("SELECT sum(n) FROM (VALUES 9223372036854775807, 1) t (n)", "does not fit into a bigint"),
    ],
)
def test_what_does_not_fit_is_refused(connection: trino.dbapi.Connection, sql: str, message: str) -> None:
    with pytest.raises(trino.exceptions.TrinoUserError, match=message):
        connection.cursor().execute(sql).fetchall()


def test_wrong_number_of_parameters_is_the_users_error(connection: trino.dbapi.Connection) -> None:
    with pytest.raises(trino.exceptions.TrinoUserError, match="1 parameters, 2 were given"):
        connection.cursor().execute("SELECT ?", (1, 2)).fetchall()


def test_legacy_prepared_statements(server: ApiServer) -> None:
    with connect(server, legacy_prepared_statements=True) as connection:
        assert connection.cursor().execute("SELECT ?", ("x",)).fetchall() == [["x"]]


def test_prepared_statements_are_described(server: ApiServer) -> None:
    described = connect(server).cursor().describe("SELECT zone_id, zone_name AS n, ? = 1 AS b FROM zones")
    found = [(each.name, each.type, each.type_size) for each in described]
    assert found == [("zone_id", "integer", 4), ("n", "varchar", 0), ("b", "boolean", 1)]
    assert connect(server).cursor().describe("DROP ZONE nowhere") == []
    headers = {"X-Trino-Prepared-Statement": "s1=" + quote_plus("SELECT ?, '?', ?")}
    request = trino.client.TrinoRequest(
        "127.0.0.1", server.port, trino.client.ClientSession(user="u", headers=headers)
    )
    query = trino.client.TrinoQuery(request, "DESCRIBE INPUT s1")
    assert list(query.execute()) == [[0, "unknown"], [1, "unknown"]]


def test_fetchmany(connection: trino.dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT table_name FROM information_schema.tables ORDER BY table_name")
    first, second = cursor.fetchmany(2), cursor.fetchmany(2)
    assert len(first) == len(second) == 2
    assert first + second == sorted(first + second)


def test_ddl_and_error_classes(connection: trino.dbapi.Connection, zone: str) -> None:
    cursor = connection.cursor()
    assert cursor.execute(f"CREATE ZONE {zone} (PARTITIONS ?, REPLICAS ?)", (4, 3)).fetchall() == [[True]]
    assert cursor.update_type == "CREATE ZONE"
    with pytest.raises(trino.exceptions.TrinoUserError) as refused:
        cursor.execute(f"CREATE ZONE {zone}").fetchall()
    assert isinstance(refused.value, trino.dbapi.ProgrammingError)
    assert (refused.value.error_name, refused.value.error_code) == ("ZONE_ALREADY_EXISTS", 4003)
    with pytest.raises(trino.exceptions.TrinoUserError) as unread:
        cursor.execute("CREATE ZOEN x").fetchall()
    assert unread.value.error_name == "SYNTAX_ERROR"


def test_warnings_come_with_the_first_page(connection: trino.dbapi.Connection, zone: str) -> None:
    cursor = connection.cursor()
    cursor.execute(f"CREATE ZONE {zone} (REPLICAS 7, QUORUM SIZE 2)")
    assert [each["warningCode"]["name"] for each in cursor.warnings] == ["REPLICAS_ABOVE_DATA_NODES"]


def test_a_statement_that_waits_can_be_canceled(server: ApiServer, zone: str) -> None:
    """Cancel a wait that would never end, as no node places data here; the change stays."""
    with connect(server, session_properties={"wait": "true"}) as connection:
        request = connection._create_request()
        query = trino.client.TrinoQuery(request, f"CREATE ZONE {zone} (PARTITIONS 4)")
        status = request.process(request.post(query.query))
        while status.update_type is None:  # not judged yet
            status = request.process(request.get(status.next_uri))
        assert status.update_type == "CREATE ZONE"
        assert (status.stats["completedSplits"], status.stats["totalSplits"]) == (0, 4)
        assert request.delete(status.next_uri).status_code == 204
        with pytest.raises(trino.exceptions.TrinoUserError, match=r"catalog version .* stays"):
            read_on(request, status)


def test_a_wait_ends_at_its_timeout(server: ApiServer, zone: str) -> None:
    with connect(server) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION wait = true").fetchall()
        cursor.execute("SET SESSION timeout = '300ms'").fetchall()
        with pytest.raises(trino.exceptions.TrinoUserError, match="not converged within the timeout"):
            cursor.execute(f"CREATE ZONE {zone}").fetchall()
        cursor.execute("RESET SESSION wait").fetchall()
        cursor.execute(f"DROP ZONE {zone}").fetchall()
        with pytest.raises(trino.exceptions.TrinoUserError, match="no session property"):
            cursor.execute("SET SESSION nonsense = 1").fetchall()


def test_a_change_that_changes_nothing_waits_for_no_version(
    connection: trino.dbapi.Connection, zone: str
) -> None:
    """Wait for the zone as it is when nothing was changed: it is not at the catalog's newest version and never
    will be."""
    cursor = connection.cursor()
    cursor.execute(f"CREATE ZONE {zone} (PARTITIONS 2)").fetchall()
    cursor.execute(f"CREATE ZONE {zone}_OTHER (PARTITIONS 2)").fetchall()
    cursor.execute("SET SESSION wait = true").fetchall()
    cursor.execute("SET SESSION timeout = '1s'").fetchall()
    with pytest.raises(trino.exceptions.TrinoUserError, match="PLACEMENT_NOT_COMPUTED"):
        cursor.execute(f"ALTER ZONE {zone} SET (REPLICAS 1)").fetchall()


def test_transactions_do_not_change_zones(server: ApiServer, zone: str) -> None:
    with connect(server, isolation_level=trino.transaction.IsolationLevel.SERIALIZABLE) as connection:
        cursor = connection.cursor()
        assert cursor.execute("SELECT 1").fetchall() == [[1]]
        with pytest.raises(trino.exceptions.TrinoUserError) as refused:
            cursor.execute(f"CREATE ZONE {zone}").fetchall()
        assert refused.value.error_name == "TRANSACTION_NOT_SUPPORTED"
        connection.rollback()


def test_use_and_show(connection: trino.dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert cursor.execute("SHOW CATALOGS").fetchall() == [["zonekeeper"]]
    assert cursor.execute("SHOW SCHEMAS").fetchall() == [["information_schema"], ["public"], ["system"]]
    assert ["zones"] in cursor.execute("SHOW TABLES FROM system").fetchall()
    cursor.execute("USE zonekeeper.system").fetchall()
    assert connection._client_session.schema == "system"
    columns = cursor.execute("SHOW COLUMNS FROM zones").fetchall()
    assert columns[0][:2] == ["zone_id", "integer"]


@pytest.mark.parametrize(
    ("place", "sql", "error"),
    [
        ({"catalog": "nope"}, "SELECT 1", "CATALOG_NOT_FOUND"),
        ({"catalog": "nope"}, "CREATE ZONE nowhere_at_all", "CATALOG_NOT_FOUND"),
        ({"schema": "nope"}, "SELECT zone_name FROM zones", "SCHEMA_NOT_FOUND"),
        ({"schema": "information_schema"}, "SELECT zone_name FROM zones", "VIEW_NOT_FOUND"),
        ({"schema": None}, "SELECT zone_name FROM zones", "MISSING_SCHEMA_NAME"),
        ({"schema": None}, "SHOW TABLES", "MISSING_SCHEMA_NAME"),
        ({"schema": None}, "DESCRIBE zones", "MISSING_SCHEMA_NAME"),
        ({"schema": None}, "SELECT count(*) FROM system.zones", None),
        ({"schema": None}, "SELECT count(*) FROM zonekeeper.system.zones", None),
        ({"schema": None}, "SELECT 1", None),
        ({}, "USE nope.nope", "CATALOG_NOT_FOUND"),
        ({}, "USE zonekeeper.nope", "SCHEMA_NOT_FOUND"),
        ({}, "USE nope", "SCHEMA_NOT_FOUND"),
        ({}, "SELECT * FROM nope.system.zones", "CATALOG_NOT_FOUND"),
        ({}, "SELECT * FROM nope.zones", "SCHEMA_NOT_FOUND"),
        ({}, "SHOW SCHEMAS FROM nope", "CATALOG_NOT_FOUND"),
        ({}, "SHOW TABLES FROM nope", "SCHEMA_NOT_FOUND"),
        ({}, "SHOW COLUMNS FROM nope.zones", "SCHEMA_NOT_FOUND"),
        ({}, "DESCRIBE nope.system.zones", "CATALOG_NOT_FOUND"),
    ],
)
def test_a_place_that_is_not_there(
    server: ApiServer, place: dict[str, str | None], sql: str, error: str | None
) -> None:
    """Refuse an absent place as Trino does, in the session, in USE, and in a name; other places are not
    searched."""
    with connect(server, **place) as opened:
        cursor = opened.cursor()
        if error is None:
            assert cursor.execute(sql).fetchall()
            return
        with pytest.raises(trino.exceptions.TrinoUserError) as refused:
            cursor.execute(sql).fetchall()
        assert refused.value.error_name == error


def test_tables_of_the_catalog_are_in_their_schema(server: ApiServer, zone: str) -> None:
    """List tables in their schema for readers of the metadata: a driver's tree, SHOW, DESCRIBE and an ORM's
    reflection."""
    with connect(server) as opened:
        cursor = opened.cursor()
        cursor.execute(f"CREATE ZONE {zone} (PARTITIONS 1)").fetchall()
        columns = (
            'id INT PRIMARY KEY, "Name" VARCHAR(20), amount DECIMAL(10, 2), at TIMESTAMP(3), raw VARBINARY'
        )
        cursor.execute(f"CREATE TABLE sales_{zone} ({columns}) ZONE {zone}").fetchall()
        table = f"sales_{zone}".lower()
        assert [table] in cursor.execute("SHOW TABLES FROM public").fetchall()
        described = [
            ["id", "integer"],
            ["Name", "varchar(20)"],
            ["amount", "decimal(10,2)"],
            ["at", "timestamp(3)"],
            ["raw", "varbinary"],
        ]
        assert [row[:2] for row in cursor.execute(f"DESCRIBE public.{table}").fetchall()] == described
        sizes = "SELECT column_name, data_type, column_size, decimal_digits FROM system.jdbc.columns"
        rows = cursor.execute(f"{sizes} WHERE table_schem = 'public' AND table_name = '{table}'").fetchall()
        assert ["amount", 3, 10, 2] in rows
        assert ["Name", 12, 20, 0] in rows
    engine = create_engine(f"trino://tester@127.0.0.1:{server.port}/zonekeeper/public")
    assert table in inspect(engine).get_table_names("public")
    engine.dispose()


def test_a_repeated_post_has_one_effect(server: ApiServer, zone: str) -> None:
    """Repeat a POST with one effect: with a key, and also without one when the first answer was never read."""
    keyed = {"X-Trino-User": "tester", "Idempotency-Key": f"key-{zone}"}
    bare = {"X-Trino-User": "tester"}
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        for headers, name in ((keyed, zone), (bare, f"{zone}_BARE")):
            sql = f"CREATE ZONE {name}"
            first, again = (client.post("/v1/statement", content=sql, headers=headers) for _ in range(2))
            # They may have met it at different moments of its life.
            assert first.json()["id"] == again.json()["id"]
            assert first.json()["nextUri"] == again.json()["nextUri"]
            assert "error" not in again.json()
            assert with_data(client, again.json()["nextUri"])[1]["data"] == [[True]]
        # Read, so not lost: without a key this is a new statement.
        assert read_to_the_end(client, sql, bare)[1]["error"]["errorName"] == "ZONE_ALREADY_EXISTS"


def test_tokens(server: ApiServer) -> None:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        first = client.post("/v1/statement", content="SELECT 1", headers={"X-Trino-User": "tester"}).json()
        assert first["nextUri"].startswith(f"{server.url}/v1/statement/")
        path = first["nextUri"].removeprefix(server.url)
        path, page = with_data(client, path)
        assert page["data"] == [[1]]
        assert "nextUri" not in page
        assert client.get(path).json() == page
        base = path.rsplit("/", 1)[0]
        assert client.get(f"{base}/0").status_code == client.get(f"{base}/999").status_code == 404
        assert client.get("/v1/statement/executing/none/1").status_code == 404
        assert client.delete(path).status_code == 204
        assert client.head("/v1/statement").status_code == 200
        assert client.get("/v1/info").json()["starting"] is False


def test_sqlalchemy_reflection(server: ApiServer) -> None:
    engine = create_engine(f"trino://tester@127.0.0.1:{server.port}/zonekeeper/system")
    inspector = inspect(engine)
    assert set(inspector.get_schema_names()) >= {"system", "information_schema"}
    assert set(inspector.get_table_names("system")) >= {"zones", "nodes"}
    assert "columns" in inspector.get_view_names("information_schema")
    columns = inspector.get_columns("zones", "system")
    assert {column["name"]: str(column["type"]) for column in columns}["zone_name"] == "VARCHAR"
    with engine.connect() as connection:
        assert connection.execute(text("SELECT :value"), {"value": 5}).scalar() == 5
    engine.dispose()


def test_a_statement_that_had_nothing_to_do_answers_false(
    connection: trino.dbapi.Connection, server: ApiServer, zone: str
) -> None:
    """Answer false where REST's ``applied`` is false."""

    def applied(sql: str) -> bool:
        answer = httpx.post(f"{server.url}/api/v1/statements", json={"sql": sql}, trust_env=False, timeout=60)
        return bool(answer.raise_for_status().json()["results"][0]["applied"])

    cursor = connection.cursor()
    assert cursor.execute(f"CREATE ZONE IF NOT EXISTS {zone} (REPLICAS 1)").fetchall() == [[True]]
    for sql in (
        f"CREATE ZONE IF NOT EXISTS {zone}",
        "ALTER ZONE IF EXISTS nothing SET (REPLICAS 2)",
        "ALTER ZONE IF EXISTS nothing RENAME TO more",
        "DROP ZONE IF EXISTS nothing",
        "DROP TABLE IF EXISTS nothing",
        f"ALTER ZONE {zone} SET (REPLICAS 1)",
    ):
        assert cursor.execute(sql).fetchall() == [[applied(sql)]], sql
    assert cursor.execute("DROP ZONE IF EXISTS nothing").fetchall() == [[False]]
