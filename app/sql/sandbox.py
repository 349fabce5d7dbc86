"""The process in which queries run: DuckDB over the Arrow tables that it is sent, and nothing else.

It says when it is ready; then it reads requests from its standard input and writes answers to its standard
output, one after the other::

    frame    = length of the header (4 bytes, big-endian), header (JSON), blobs
    request  = {"sql", "rows_max", "blobs": [[table name, bytes], ...]}, Arrow streams
    ready    = {"ready": true}
    answer   = {"columns": [[name, type], ...], "rows"} or {"error", "message", "near"}

Why a process: DuckDB's own memory limit does not count every string that a function builds, and such a function
cannot be interrupted. Here the kernel limits memory, and the server ends a query by ending the process. What a
query could reach is next to nothing: an empty environment, no file that can be written, DuckDB without external
access and with its configuration locked.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import struct
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import IO, Any

LENGTH = struct.Struct(">I")
MEMORY_MB = 256
"""Of DuckDB's own, for each query."""
ADDRESS_SPACE_MB = 768
"""On top of what the process has once it is warm: DuckDB's, the tables that it was sent and the answer."""
BIGINT_MAX = 2**63 - 1

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
    found = stream.read(size)
    if len(found) != size:
        raise EOFError("the stream ended inside a frame")
    return found


def column_type(name: str) -> tuple[str, Callable[[Any], Any]]:
    """Our type of a type of DuckDB's, and what makes its values fit for JSON."""
    kind = name.partition("(")[0]
    if name.endswith("]") or kind in ("STRUCT", "MAP", "JSON", "UNION"):
        return "json", _as_json
    known: dict[str, tuple[str, Callable[[Any], Any]]] = {
        **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), ("integer", _same)),
        **dict.fromkeys(("BIGINT", "UINTEGER"), ("bigint", _same)),
        **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT"), ("bigint", _as_bigint)),
        **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), ("double", _as_double)),
        "BOOLEAN": ("boolean", _same),
        "VARCHAR": ("varchar", _same),
    }
    if kind.startswith("TIMESTAMP"):
        return "timestamp(3)", _as_timestamp
    # The type of a bare NULL.
    return known.get("INTEGER" if kind == '"NULL"' else kind, ("varchar", _as_text))


def _same(value: Any) -> Any:
    return value


def _as_bigint(value: int) -> int:
    if abs(value) > BIGINT_MAX:
        raise OverflowError(f"{value} does not fit into a bigint")
    return value


def _as_double(value: float | Decimal) -> float | None:
    """JSON has no infinity and no NaN."""
    number = float(value)
    return number if math.isfinite(number) else None


def _as_timestamp(value: datetime) -> str:
    return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"


def _as_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _as_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def run_query(database: Any, header: dict[str, Any], tables: dict[str, bytes]) -> dict[str, Any]:
    """The answer to one request; its connection lives no longer than it."""
    import duckdb
    import pyarrow as pa

    connection = database.cursor()
    try:
        for name, blob in tables.items():
            connection.register(name, pa.ipc.open_stream(blob).read_all())
        statements = connection.extract_statements(header["sql"])
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            return _error("QUERY_NOT_ALLOWED", "only SELECT, WITH and VALUES can be queried")
        connection.execute(statements[0])
        types = [column_type(str(described[1])) for described in connection.description]
        columns = [
            [described[0], each[0]] for described, each in zip(connection.description, types, strict=True)
        ]
        rows = connection.fetchmany(header["rows_max"] + 1)
        if len(rows) > header["rows_max"]:
            return _error("RESULT_TOO_LARGE", f"a result has at most {header['rows_max']} rows")
        converters = [each[1] for each in types]
        return {"columns": columns, "rows": [_row(row, converters) for row in rows]}
    except MemoryError:
        return _error("QUERY_MEMORY_LIMIT", "the query needs more memory than a query may use")
    except OverflowError as error:
        return _error("QUERY_FAILED", str(error))
    except duckdb.Error as error:
        return _duckdb_error(error)
    finally:
        connection.close()


def _row(row: tuple[Any, ...], converters: list[Callable[[Any], Any]]) -> list[Any]:
    pairs = zip(row, converters, strict=True)
    return [None if value is None else convert(value) for value, convert in pairs]


def _duckdb_error(error: Exception) -> dict[str, Any]:
    """The first line of DuckDB's message, without its own hints: those name its internals."""
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
    near = _NEAR.search(detail) or _QUOTED.search(detail)
    return _error(name, detail, next(filter(None, near.groups())).strip("!.") if near else None)


def _error(name: str, message: str, near: str | None = None) -> dict[str, Any]:
    return {"error": name, "message": message, "near": near}


def _open() -> Any:
    """A database with nothing in it, warm and locked."""
    import duckdb
    import pyarrow as pa

    database = duckdb.connect(":memory:", config=SETTINGS)
    database.execute("SET TimeZone = 'UTC'") if _has_timezones(database) else None
    database.execute("SET lock_configuration = true")
    warm = database.cursor()
    warm.register("w", pa.table([pa.nulls(1, pa.int64())], names=["a"]))
    warm.execute("SELECT count(a) FROM w").fetchall()
    warm.close()
    return database


def _has_timezones(database: Any) -> bool:
    found = database.execute("SELECT 1 FROM duckdb_settings() WHERE name = 'TimeZone'").fetchall()
    return bool(found)


def _confine() -> None:
    """Limits that the kernel keeps. Address space: what there is now, and as much as one query may need."""
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    space = pages * resource.getpagesize() + ADDRESS_SPACE_MB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Until the server goes away."""
    os.environ.clear()
    # Both libraries would import it if they could: half a second for something that is never used here.
    sys.modules["pandas"] = None  # type: ignore[assignment]
    database = _open()
    _confine()
    write_frame(sys.stdout.buffer, {"ready": True})
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        answer = run_query(database, *frame)
        write_frame(sys.stdout.buffer, answer)


if __name__ == "__main__":
    main()
