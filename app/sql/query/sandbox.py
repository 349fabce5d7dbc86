"""The process in which queries run: DuckDB over the Arrow tables that it is sent, and nothing else.

It says when it is ready; then it reads requests from its standard input and writes answers to its standard
output, one after the other::

    frame    = length of the header (4 bytes, big-endian), header (JSON), blobs
    request  = {"sql", "rows_max", "time_zone", "user", "columns", "blobs": [[table name, bytes], ...]}, Arrow
               streams
    ready    = {"ready": true}
    answer   = {"columns": [[name, type], ...]}, JSON texts of at most ROWS_IN_BLOB rows each;
               or {"error", "message", "near"}, with "detail" where only DuckDB's own words say what is wrong

It is a process because DuckDB's own memory limit does not count every string that a function builds, and such a
function cannot be interrupted. Here the kernel limits memory, and the server ends a query by ending the
process. A query can reach next to nothing: an empty environment, no file that can be written, DuckDB without
external access and with its configuration locked.
"""

from __future__ import annotations

import json
import os
import re
import resource
import struct
import sys
from typing import IO, Any

from app.sql.query.query_errors import general_words, own_words
from app.sql.query.sandbox_values import as_written, query_text, rows_and_types, wire_type

LENGTH = struct.Struct(">I")
MEMORY_MB = 256
"""Memory that DuckDB itself may use, for each query."""
ADDRESS_SPACE_MB = 768
"""Address space on top of what the process has once it is warm: DuckDB's, the tables that it was sent and the
answer."""

RESULT_BYTES_MAX = 32 * 2**20
"""Bytes of an answer's rows as JSON, at most: what the server holds in memory for one query."""
ROWS_IN_BLOB = 1000
NICE = 5
UTC = "UTC"
USER_NAMES = ("user", "current_user", "session_user")
OTHER_NAMES = ("current_role", "current_catalog", "current_schema")
"""Names of DuckDB's own role, catalog and schema, which no query is after. Unquoted, the last two are the
session's."""

SETTINGS = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": f"{MEMORY_MB}MB",
    "threads": "1",
    "temp_directory": "",
    "max_temp_directory_size": "0KB",
    "integer_division": "true",
    "preserve_identifier_case": "true",
}

_NEAR = re.compile(r'column (?:named )?"([^"]+)"|(?:with name) (\S+)')
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d))?")
_QUOTED = re.compile(r'"([^"]+)"')


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, bytes]] | None:
    """None at the end of the stream. Raises EOFError inside a frame."""
    raw = stream.read(LENGTH.size)
    if not raw:
        return None
    header = json.loads(_exactly(stream, LENGTH.unpack(raw)[0]))
    return header, {name: _exactly(stream, size) for name, size in header.get("blobs", ())}


def write_frame(stream: IO[bytes], header: dict[str, Any], blobs: dict[str, bytes] | None = None) -> None:
    blobs = blobs or {}
    named = {**header, "blobs": [[name, len(blob)] for name, blob in blobs.items()]}
    raw = json.dumps(named, ensure_ascii=False).encode("utf-8", "surrogatepass")
    stream.write(LENGTH.pack(len(raw)) + raw)
    for blob in blobs.values():
        stream.write(blob)
    stream.flush()


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("the stream ended inside a frame")
    return data


_Answer = tuple[dict[str, Any], dict[str, bytes]]


def run_query(database: Any, header: dict[str, Any], tables: dict[str, bytes]) -> _Answer:
    """The answer to one request and its blobs; its connection lives no longer than it."""
    import duckdb
    import pyarrow as pa

    connection = database.cursor()
    try:
        for name, blob in tables.items():
            connection.register(name, pa.ipc.open_stream(blob).read_all())
        _name_user(connection, header.get("user", ""))
        statements = connection.extract_statements(header["sql"])
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            return _error("QUERY_NOT_ALLOWED", "only SELECT, WITH and VALUES can be queried")
        relation = connection.query(header["sql"])
        known = [*header.get("columns", ()), *[("", "")] * len(relation.types)]
        types = [
            as_written(wire_type(kind), name, zone)
            for kind, (name, zone) in zip(relation.types, known, strict=False)
        ]
        connection.execute(query_text(header["sql"], types))
        values = connection.fetchmany(header["rows_max"] + 1)
        if len(values) > header["rows_max"]:
            return _error("RESULT_TOO_LARGE", f"a result has at most {header['rows_max']} rows")
        try:
            rows, names = rows_and_types(values, types)
        except OverflowError as error:
            return _error("QUERY_FAILED", str(error))
        return {"columns": [list(column) for column in zip(relation.columns, names, strict=True)]}, _blobs(rows)
    except MemoryError:
        return _error("QUERY_MEMORY_LIMIT", "the query needs more memory than a query may use")
    except _TooLargeError:
        return _error("RESULT_TOO_LARGE", f"a result has at most {RESULT_BYTES_MAX // 2**20} MiB")
    except OverflowError as error:
        return _error("QUERY_FAILED", general_words("QUERY_FAILED"), detail=str(error))
    except duckdb.Error as error:
        return _duckdb_error(error)
    finally:
        connection.close()


def _name_user(connection: Any, user: str) -> None:
    """Words that DuckDB answers where no column has their name."""
    for name in USER_NAMES:
        connection.execute(f'CREATE OR REPLACE TEMP MACRO "{name}"() AS {_literal(user)}')
    for name in OTHER_NAMES:
        message = _literal(f"there is no column {name}")
        connection.execute(f'CREATE OR REPLACE TEMP MACRO "{name}"() AS error({message})')


class _TooLargeError(Exception):
    """The rows are more than an answer holds."""


def _blobs(rows: list[list[Any]]) -> dict[str, bytes]:
    blobs: dict[str, bytes] = {}
    left = RESULT_BYTES_MAX
    for start in range(0, len(rows), ROWS_IN_BLOB):
        text = json.dumps(rows[start : start + ROWS_IN_BLOB], ensure_ascii=False)
        blobs[str(start)] = text.encode("utf-8", "surrogatepass")
        left -= len(blobs[str(start)])
        if left < 0:
            raise _TooLargeError
    return blobs


def _duckdb_error(error: Exception) -> _Answer:
    """Answer for an error of DuckDB, by the first line of its message; the others are hints."""
    import duckdb

    message = str(error).split("\n", 1)[0]
    detail = message.partition("Error: ")[2] or message
    kinds: tuple[tuple[type[Exception], str], ...] = (
        (duckdb.OutOfMemoryException, "QUERY_MEMORY_LIMIT"),
        (duckdb.PermissionException, "QUERY_NOT_ALLOWED"),
        (duckdb.CatalogException, "QUERY_INVALID"),
        (duckdb.BinderException, "QUERY_INVALID"),
        (duckdb.ParserException, "QUERY_INVALID"),
        (duckdb.SyntaxException, "QUERY_INVALID"),
    )
    name = next((name for kind, name in kinds if isinstance(error, kind)), "QUERY_FAILED")
    if name == "QUERY_MEMORY_LIMIT":
        return _error(name, "the query needs more memory than a query may use")
    if name == "QUERY_INVALID" and re.search(
        r"column .*(not found|does not exist)|does not have a column", detail
    ):
        name = "COLUMN_NOT_FOUND"
    match = _NEAR.search(detail) or _QUOTED.search(detail)
    near = next(filter(None, match.groups())).strip("!.") if match else None
    words = own_words(detail)
    return _error(name, words, near) if words else _error(name, general_words(name), near, detail)


def _error(name: str, message: str, near: str | None = None, detail: str | None = None) -> _Answer:
    return {"error": name, "message": message, "near": near, "detail": detail}, {}


def _open(time_zone: str) -> Any:
    """A database with nothing in it, warm and locked. Raises duckdb.Error for an unknown zone."""
    import duckdb
    import pyarrow as pa

    database = duckdb.connect(":memory:", config=SETTINGS)
    database.execute(f"SET GLOBAL TimeZone = {_literal(time_zone)}")
    database.execute("SET lock_configuration = true")
    warm = database.cursor()
    warm.register("w", pa.table([pa.nulls(1, pa.int64())], names=["a"]))
    warm.execute("SELECT count(a) FROM w").fetchall()
    warm.close()
    return database


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def zone_name(text: str) -> str:
    """DuckDB's name of a zone that a client named: offsets are ``GMT+01:00`` there (of ``UTC+05:30`` it
    drops the minutes)."""
    if text in ("Z", "UT"):
        return UTC
    offset = _OFFSET.fullmatch(text)
    return f"GMT{offset[1]}{offset[2].zfill(2)}:{offset[3] or '00'}" if offset else text


def _confine() -> None:
    """Limits that the kernel keeps. Address space: what there is now, and as much as one query may need."""
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    space = pages * resource.getpagesize() + ADDRESS_SPACE_MB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Answer queries until the server goes away."""
    os.environ.clear()
    # Both libraries would import it if they could: half a second for something that is never used here.
    sys.modules["pandas"] = None  # type: ignore[assignment]
    databases = _Databases()
    databases.of(UTC)
    _confine()
    # The server answers everybody else meanwhile.
    os.nice(NICE)
    write_frame(sys.stdout.buffer, {"ready": True})
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        write_frame(sys.stdout.buffer, *databases.answer(*frame))


class _Databases:
    """The database of the session's zone: its settings are locked, so that another zone needs another one."""

    def __init__(self) -> None:
        self._zone = ""
        self._database: Any = None

    def of(self, time_zone: str) -> Any:
        if time_zone != self._zone:
            self._database = _open(time_zone)
            self._zone = time_zone
        return self._database

    def answer(self, header: dict[str, Any], tables: dict[str, bytes]) -> _Answer:
        import duckdb

        try:
            database = self.of(zone_name(header["time_zone"]))
        except duckdb.Error:
            return _error("INVALID_REQUEST", f"there is no time zone {header['time_zone'][:60]}")
        return run_query(database, header, tables)


if __name__ == "__main__":
    main()
