"""Trino's client for Node with a token, over TLS: it sees what was granted, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.npm_client import answers, npm_client
from tests.fixtures.secure_server import STRANGER, SecureServer, password_of, serving_securely

ADMIN = "the-administrator"
SETUP = f"""
CREATE ZONE open_zone (PARTITIONS 2);
CREATE ZONE hidden_zone (PARTITIONS 2);
GRANT SEE ON ZONE open_zone TO "{STRANGER}"
"""
GRANTED_WITHIN_S = 60.0
ZONES = "SELECT zone_name FROM zones ORDER BY zone_name"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm_client(tmp_path_factory)


@pytest.fixture(scope="module")
def server(
    modules: Path, etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureServer]:
    """Server that starts after ``modules``: where they are not to be had nothing is started."""
    directory: Path = tmp_path_factory.mktemp("npm-server")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving_securely(directory, etcd_server, Keyspace("test-npm/"), url) as opened:
        with opened.client(ADMIN) as client:
            client.post("/api/v1/statements", json={"sql": SETUP}).raise_for_status()
        with opened.client(STRANGER) as client:
            deadline = time.monotonic() + GRANTED_WITHIN_S
            while client.get("/api/v1/zones/OPEN_ZONE").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield opened


def token_of(server: SecureServer, user: str) -> str:
    with server.client(user) as client:
        secret: str = client.post("/api/v1/tokens", json={}).raise_for_status().json()["secret"]
    return secret


def case(host: SecureServer, user: str, query: str = ZONES, **more: Any) -> dict[str, Any]:
    return {"server": host.url, "ca": host.ca_file.read_text(), "user": user, "query": query, **more}


@pytest.mark.thorough("test_trino_client and jdbc/test_jdbc have other drivers")
def test_rows_are_those_that_the_owner_of_the_token_may_see(server: SecureServer, modules: Path) -> None:
    token, admin = token_of(server, STRANGER), token_of(server, ADMIN)
    count = "SELECT count(*) AS zones FROM zones"
    shown = answers(
        modules,
        [
            case(server, ADMIN, token=admin),
            case(server, STRANGER, token=token),
            case(server, STRANGER, count, token=token),
            case(server, STRANGER, password=password_of(STRANGER)),
        ],
    )
    assert [answer.get("rows", answer) for answer in shown] == [
        [["HIDDEN_ZONE"], ["OPEN_ZONE"]],
        [["OPEN_ZONE"]],
        [[1]],
        [["OPEN_ZONE"]],
    ]


def test_what_proves_nothing_is_refused(server: SecureServer, modules: Path) -> None:
    token = token_of(server, STRANGER)
    cases = [
        (case(server, STRANGER), "401"),
        (case(server, STRANGER, token="zkt_wrong"), "401"),
        (case(server, ADMIN, token=token), "IMPERSONATE"),
        (case(server, STRANGER, "DROP ZONE hidden_zone", token=token), "ZONE_NOT_FOUND"),
        (case(server, STRANGER, "DROP ZONE open_zone", token=token), "PRIVILEGE_MISSING"),
        (case(server, STRANGER, "DROP ZOEN open_zone", token=token), "SYNTAX_ERROR"),
        (case(server, STRANGER, "EXECUTE nowhere", token=token), "PREPARED_STATEMENT_UNKNOWN"),
        (case(server, STRANGER, token=token, ca=None), "certificate"),
        (case(server, STRANGER, token=token, server=server.plain_url), "403"),
    ]
    shown = answers(modules, [request for request, _ in cases])
    for (request, expected), answer in zip(cases, shown, strict=True):
        assert expected in answer.get("error", ""), (request["user"], request["query"], answer)
