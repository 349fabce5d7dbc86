"""Protections of an installation, and those that are missing: on pages, in readiness and by `zonectl
status`."""

from __future__ import annotations

import html
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.console_browser import csrf_in
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.secure_server import STRANGER, SecureServer, password_of, serving_securely

ZONECTL = (sys.executable, "-m", "app.cli")
NO_LOGIN = "no login: every user and program of this machine may do everything (--no-auth)"

pytestmark = pytest.mark.timeout(600)


def page_of(client: httpx.Client, path: str) -> str:
    answer = client.get(f"/console/{path}", headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text[:500]
    return html.unescape(html.unescape(answer.text))


class InsecureServer(ApiServer):
    def start(self) -> None:
        options = ["--no-auth", "--insecure", "--host", "0.0.0.0", "--migrate"]
        self._serve(options, lambda client: _answers(client))


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_a_server_without_login_says_so_everywhere(etcd_server: Etcd, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    with serving(tmp_path, etcd_server, Keyspace("test-open/"), url) as (server,):
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            assert client.get("/readyz").json()["unprotected"] == [NO_LOGIN]
            for path in ("", "zones", "nodes", "sql", "users", "recovery"):
                assert NO_LOGIN in page_of(client, path), path
        command = [*ZONECTL, "status", "--url", server.url]
        shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert f"NOT PROTECTED: {NO_LOGIN}" in shown.stdout


@pytest.mark.thorough("test_a_server_without_login_says_so_everywhere")
def test_what_insecure_accepts_is_named_on_pages(etcd_server: Etcd, tmp_path: Path) -> None:
    server = InsecureServer(
        tmp_path, etcd_server, Keyspace("test-insecure/"), f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    )
    try:
        server.start()
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            for path in ("", "zones"):
                text = page_of(client, path)
                assert "no login: any client has full access" in text
                assert "no TLS: what is sent can be read and changed on its way" in text
    finally:
        server.stop()


def log_in(client: httpx.Client, user: str) -> None:
    page = client.get("/console/login").text
    proof = {"user": user, "password": password_of(user), "csrf": csrf_in(page)}
    assert client.post("/console/login", json=proof).status_code == 200


def recover(server: SecureServer, catalog_url: str) -> None:
    command = [*ZONECTL, "admin", "recover", "--user", "alice", "--password-stdin"]
    environment = {**os.environ, "ZONEKEEPER_CATALOG_URL": catalog_url}
    environment["ZONEKEEPER_DATA_DIR"] = str(server.directory)
    done = subprocess.run(
        command, input="a long password\n", text=True, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough("test_a_server_without_login_says_so_everywhere")
def test_a_recovered_administrator_is_named_on_pages(etcd_server: Etcd, tmp_path: Path) -> None:
    """Name a recovered administrator to each user who may see the system; a server with login and TLS misses
    nothing."""
    catalog_url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    with serving_securely(tmp_path, etcd_server, Keyspace("test-recovered/"), catalog_url) as server:
        # SQLite takes one process that writes.
        server.stop()
        recover(server, catalog_url)
        server.start()
        line = "alice was made an administrator by `zonectl admin recover`"
        with server.client("the-viewer") as client:
            report = client.get("/readyz").json()
            assert report["unprotected"] == []
            assert [recovered for recovered in report["recovered_administrators"] if line in recovered]
        with server.client() as client:
            log_in(client, "the-viewer")
            for path in ("", "zones", "account"):
                text = page_of(client, path)
                assert line in text
                assert "Not protected" not in text
        with server.client() as client:
            log_in(client, STRANGER)
            assert line not in page_of(client, "account")
