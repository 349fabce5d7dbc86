"""Large scripts and a real server: refused before they are read whole, and other clients do not wait for
them."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from parser.text import STATEMENTS_MAX, TOKENS_MAX
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import PLAIN, ApiServer, serving
from tests.fixtures.etcd_server import Etcd

TICKS = os.sysconf("SC_CLK_TCK")
LONG = "SELECT " + "," * (TOKENS_MAX - 1)
GONE = 12


@pytest.fixture(scope="module")
def server(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    directory = tmp_path_factory.mktemp("scripts")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    settings = {"ZONEKEEPER_CONSOLE": "false"}
    with serving(directory, etcd_server, Keyspace("test-scripts/"), url, environment=settings) as servers:
        yield servers[0]


def post(server: ApiServer, sql: str) -> httpx.Response:
    url = f"{server.url}/api/v1/statements"
    return httpx.post(url, json={"sql": sql}, trust_env=False, timeout=300, verify=PLAIN)


def cpu_s(server: ApiServer) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@pytest.mark.thorough("unit/parser/test_script_limits")
def test_the_largest_script_and_one_statement_more(server: ApiServer) -> None:
    answer = post(server, "SHOW ZONES;" * STATEMENTS_MAX)
    assert len(answer.raise_for_status().json()["results"]) == STATEMENTS_MAX
    refused = post(server, "SHOW ZONES;" * (STATEMENTS_MAX + 1))
    assert (refused.status_code, refused.json()["name"]) == (413, "TEXT_TOO_LARGE")
    assert "at most 1000 statements" in refused.json()["detail"]


@pytest.mark.parametrize("path", ["/api/v1/statements", "/api/v1/plan", "/v1/statement"])
@pytest.mark.parametrize("header", ["content-length: 104857600", "transfer-encoding: chunked"])
def test_a_body_is_refused_before_it_is_read_whole(server: ApiServer, path: str, header: str) -> None:
    """Refuse a body that never ends: only a server that does not wait for the end answers."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-trino-user: u\r\ncontent-type: application/json\r\n"
        )
        client.sendall(f"{head}{header}\r\n\r\n".encode())
        if "chunked" in header:
            chunk = b"x" * 65_536
            try:
                for _ in range(100):
                    client.sendall(b"10000\r\n" + chunk + b"\r\n")
            except OSError:
                pass
        answer = ""
        while part := client.recv(65_536).decode():
            answer += part
            if answer.endswith("}"):
                break
    assert answer.startswith("HTTP/1.1 413 ")
    assert "REQUEST_TOO_LARGE" in answer


def test_others_are_answered_while_a_long_text_is_read(server: ApiServer) -> None:
    answered: list[int] = []
    over = threading.Event()

    def poll() -> None:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=120) as client:
            while not over.is_set():
                answered.append(client.get("/healthz").status_code)

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        before = len(answered)
        assert post(server, LONG).json()["name"] == "QUERY_INVALID"
        assert len(answered) - before >= 5
    finally:
        over.set()
        polling.join()
    assert set(answered) == {200}


def test_reading_ends_when_the_client_is_gone(server: ApiServer) -> None:
    post(server, LONG)
    begun = cpu_s(server)
    post(server, LONG)
    one = cpu_s(server) - begun
    begun = cpu_s(server)
    body = json.dumps({"sql": LONG}).encode()
    head = "POST /api/v1/statements HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    for _ in range(GONE):
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
            client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    assert post(server, "SHOW ZONES").status_code == 200
    assert post(server, LONG).status_code == 400
    assert cpu_s(server) - begun < one * GONE * 0.7
