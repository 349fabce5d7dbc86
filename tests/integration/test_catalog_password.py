"""A database whose password is changed while a server runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from catalog.store.connections import parse_url
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import ApiServer, register_nodes
from tests.fixtures.databases import postgres
from tests.fixtures.etcd_server import Etcd

PATIENCE_S = 60.0


class Database:
    """Database of one role, which logs in with a password."""

    def __init__(self, server_url: str, role: str) -> None:
        self.role = role
        self._engine = create_engine(parse_url(server_url), isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with self._engine.connect() as connection:
            connection.execute(text(f"CREATE ROLE {role} LOGIN PASSWORD 'none yet'"))
            connection.execute(text(f"CREATE DATABASE {role} OWNER {role}"))
            rules = Path(str(connection.execute(text("SHOW hba_file")).scalar()))
            others = rules.read_text()
            own = f"local all {role} scram-sha-256\nhost all {role} all scram-sha-256\n"
            rules.write_text(own + others)
            connection.execute(text("SELECT pg_reload_conf()"))
        self.url = parse_url(server_url).set(username=role, database=role)._replace(password=None)

    def change(self, password: str) -> None:
        """Connections that are open end, as when the database is restarted."""
        with self._engine.connect() as connection:
            connection.execute(text(f"ALTER ROLE {self.role} PASSWORD '{password}'"))
            ends = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :role")
            connection.execute(ends, {"role": self.role})

    def asks_for_it(self) -> bool:
        """The server has read its rules again."""
        try:
            create_engine(self.url.set(password="wrong"), poolclass=NullPool).connect().close()
        except OperationalError:
            return True
        return False


@pytest.fixture
def database() -> Iterator[Database]:
    """Database on a server of its own, whose rules no other test writes."""
    with postgres() as url:
        made = Database(url, "keeper")
        deadline = time.monotonic() + PATIENCE_S
        while not made.asks_for_it():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield made


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    return tmp_path / "password"


@pytest.fixture
def server(
    database: Database, password_file: Path, tmp_path: Path, etcd_server: Etcd, keyspace: Keyspace
) -> Iterator[ApiServer]:
    register_nodes(etcd_server, keyspace)
    database.change("first")
    password_file.write_text("first\n")
    url = database.url.render_as_string(hide_password=False)
    named = {"ZONEKEEPER_CATALOG_PASSWORD_FILE": str(password_file)}
    running = ApiServer(tmp_path, etcd_server, keyspace, url, named)
    running.start()
    yield running
    running.stop()


def test_a_changed_password_is_used_without_a_restart(
    server: ApiServer, database: Database, password_file: Path
) -> None:
    """Use a changed password without a restart; while the file has the earlier one, the answer names the
    file."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:

        def run(sql: str) -> httpx.Response:
            return client.post("/api/v1/statements", json={"sql": sql})

        run("CREATE ZONE a (PARTITIONS 1, REPLICAS 1)").raise_for_status()
        database.change("second")
        refused = run("CREATE ZONE b (PARTITIONS 1, REPLICAS 1)")
        assert refused.status_code == 503, refused.text
        assert f"the password is that of {password_file}" in refused.text
        password_file.unlink()
        missing = run("CREATE ZONE b (PARTITIONS 1, REPLICAS 1)")
        assert missing.status_code == 503, missing.text
        assert str(password_file) in missing.text
        password_file.write_text("second\n")
        run("CREATE ZONE c (PARTITIONS 1, REPLICAS 1)").raise_for_status()
        assert "Traceback" not in server.log_text
