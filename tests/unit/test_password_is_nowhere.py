"""A password in a statement: sent by every path, and then looked for in all that is kept and answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from httpx import Response

from tests.unit.operations_world import OperationsWorld, operations_world

MARK = "marked-Password-7"
CREATE = f"CREATE USER anna PASSWORD '{MARK}'"
ALTER = f"ALTER USER anna WITH PASSWORD '{MARK}'"
NOT_A_STATEMENT = (
    f"CREATE USER ben PASSWORD {MARK}",
    f"CREATE USER ben '{MARK}'",
    f"CREATE USER ben PASSWORD '{MARK}' '{MARK}'",
    f"CREATE USER ben PASSWORD '{MARK}",
    f"CREATE USER ben PASSWORD 'it's {MARK}'",
    f"CREATE USER ben PASSWORD 'it' {MARK}",
    f"ALTER USER anna SET PASSWORD TO {MARK}",
    f"CREATE USER anna PASSWORD '{MARK}'",
    f"ALTER USER nobody PASSWORD '{MARK}'",
    f"ALTER ROLE viewer PASSWORD '{MARK}'",
    f"SET PASSWORD FOR anna = '{MARK}'",
    f"EXPLAIN {ALTER}",
    f"DESCRIBE {ALTER}",
    f"SHOW USERS; ALTER USER anna PASSWORD '{MARK}'; SHOW NOTHING",
    f"CREATE ZONE z1; ALTER USER anna PASSWORD '{MARK}'; DROP ZONE nowhere",
)
DESCRIBES = ("DESCRIBE INPUT", "DESCRIBE OUTPUT", "EXECUTE")
DRIVER = {"X-Trino-User": "tester"}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as world:
        yield world


async def all_pages(api: OperationsWorld, first: Response) -> list[str]:
    """The answer to a driver's POST, and every page behind it."""
    bodies = [first.text]
    page: dict[str, Any] = first.json()
    while "nextUri" in page:
        answer = await api.http.get(page["nextUri"])
        bodies.append(answer.text)
        page = answer.json()
    return bodies


async def send_by_rest(api: OperationsWorld, sql: str) -> list[str]:
    """Send a script by REST in each way (at once, logged, logged with a key, guarded, planned); return what
    came back."""
    bodies = [
        {"sql": sql},
        {"sql": sql, "wait_timeout": 30},
        {"sql": sql, "wait_timeout": 0},
        {"sql": sql, "validate_only": True},
        {"sql": sql, "plan_id": "1-0-0-000000000000"},
    ]
    answers = [await api.http.post("/statements", json=body) for body in bodies]
    headers = ({"Idempotency-Key": "a key"}, {"If-Match": "1"})
    answers += [await api.http.post("/statements", json={"sql": sql}, headers=one) for one in headers]
    texts = [answer.text + str(answer.headers) for answer in answers]
    ids = [answer.json()["statement_id"] for answer in answers if "statement_id" in answer.json()]
    return texts + [(await api.http.get(f"/statements/{statement_id}")).text for statement_id in ids]


async def send_by_driver(api: OperationsWorld, sql: str) -> list[str]:
    """Send it in each way of drivers (as it is, prepared, prepared with the password as a parameter); return
    the pages."""
    texts: list[str] = []
    quoted = sql.replace("'", "''")
    ways: list[tuple[str, dict[str, str]]] = [(sql, {}), (f"EXECUTE IMMEDIATE '{quoted}'", {})]
    if f"'{MARK}'" in sql:
        prepared = sql.replace(f"'{MARK}'", "?", 1).replace(" ", "+")
        ways.append((f"EXECUTE p USING '{MARK}'", {"X-Trino-Prepared-Statement": f"p={prepared}"}))
    prepared = quote_plus(sql)
    ways += [(f"{what} p", {"X-Trino-Prepared-Statement": f"p={prepared}"}) for what in DESCRIBES]
    for text, headers in ways:
        answer = await api.http.post(
            "http://api/v1/statement", content=text.encode(), headers={**DRIVER, **headers}
        )
        texts += await all_pages(api, answer)
    return texts


async def kept_bytes(api: OperationsWorld, directory: Path) -> dict[str, bytes]:
    """Every file of the catalog, and every key of the metastore."""
    files = {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert any(name.startswith("catalog.sqlite") for name in files)
    items = (await api.world.metastore.range("")).items
    return {**files, **{item.key: item.key.encode() + item.value for item in items}}


async def test_a_password_is_kept_and_answered_nowhere(
    api: OperationsWorld, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    shown = [*await send_by_rest(api, CREATE), *await send_by_rest(api, ALTER)]
    shown += await send_by_driver(api, ALTER)
    for sql in NOT_A_STATEMENT:
        shown += await send_by_rest(api, sql)
        shown += await send_by_driver(api, sql)
    for view in ("EVENTS", "AUDIT", "USERS", "SQL_QUERIES"):
        answer = await api.http.post("/statements", json={"sql": f"SELECT * FROM system.{view.lower()}"})
        assert answer.status_code == 200
        shown.append(answer.text)
    assert "ALTER USER anna WITH PASSWORD '********'" in "".join(shown)
    user = (await api.world.catalog.snapshot()).grants.user("anna")
    assert user is not None
    assert user.password_hash == f"$length${len(MARK)}"
    # Compressed in the log: looked at through the log itself.
    rows = await api.world.catalog.on_log(lambda log: [log.read(name) for name in logged_ids(shown)])
    assert len(rows) > 10
    everything = {f"answer {n}": text.encode() for n, text in enumerate(shown)}
    everything |= {"rows of the log": repr(rows).encode(), "standard streams": str(capfd.readouterr()).encode()}
    everything |= {"log": caplog.text.encode(), **await kept_bytes(api, tmp_path)}
    for where, content in everything.items():
        for mark in (MARK.encode(), MARK.upper().encode(), MARK.lower().encode(), b"marked"):
            assert mark not in content, where


def logged_ids(texts: list[str]) -> list[str]:
    marks = (text.split('"statement_id":"')[1][:32] for text in texts if '"statement_id":"' in text)
    return list(dict.fromkeys(marks))


async def test_two_passwords_by_one_connection_are_two_statements(api: OperationsWorld) -> None:
    """A driver sends one key with all it sends: what differs only in the password is no repetition."""
    await api.http.post("/statements", json={"sql": CREATE})
    for password in ("a long password", "another long password"):
        sql = f"ALTER USER anna PASSWORD '{password}'"
        answer = await api.http.post(
            "http://api/v1/statement",
            content=sql.encode(),
            headers={**DRIVER, "Idempotency-Key": "of the connection"},
        )
        await all_pages(api, answer)
        user = (await api.world.catalog.snapshot()).grants.user("anna")
        assert user is not None
        assert user.password_hash == f"$length${len(password)}"
