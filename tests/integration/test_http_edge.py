"""A real ``zonectl serve``: what it refuses before a route sees it, how long it waits, and what goes on."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from app.process.build import own_version
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import PLAIN, ApiServer, serving
from tests.fixtures.databases import new_database
from tests.fixtures.etcd_server import Etcd

PROXY = "127.0.0.2"
WAIT_S = 60
LIMIT_S = 4
"""Time limit of a header and of a body. Other requests keep to it, too, on a busy machine."""
BODY_MAX = 1 << 20
SOCKET = "/console/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
POLLING = "/console/_nicegui_ws/socket.io/?EIO=4&transport=polling"
USER = {"X-Trino-User": "tester"}
JSON = {"Content-Type": "application/json"}
ONE_REQUEST_EACH = httpx.Limits(max_keepalive_connections=0)
"""Requests of a connection: the server closes one that was idle for a second, perhaps as the next is sent."""
ALWAYS = ("frame-ancestors 'none'", "object-src 'none'", "base-uri 'none'")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    directory: Path = tmp_path_factory.mktemp("edge")
    settings = {
        "ZONEKEEPER_ALLOWED_HOSTS": "zones.example",
        "ZONEKEEPER_TRUSTED_PROXIES": PROXY,
        "ZONEKEEPER_IDENTITY_HEADER": "Remote-Name",
        "ZONEKEEPER_HTTP_BODY_BYTES_MAX": str(BODY_MAX),
        "ZONEKEEPER_HTTP_HEADER_TIMEOUT_S": str(LIMIT_S),
        "ZONEKEEPER_HTTP_BODY_TIMEOUT_S": str(LIMIT_S),
        "ZONEKEEPER_HTTP_IDLE_TIMEOUT_S": "1",
        # All requests of this file come from two addresses.
        "ZONEKEEPER_HTTP_CONNECTIONS_MAX": "1000",
    }
    url = new_database(request, "sqlite", directory)
    with serving(directory, etcd_server, Keyspace("test-edge/"), url, environment=settings) as servers:
        yield servers[0]


@pytest.fixture
def client(server: ApiServer) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(verify=PLAIN, limits=ONE_REQUEST_EACH)
    with httpx.Client(base_url=server.url, transport=transport, timeout=WAIT_S) as opened:
        yield opened


@pytest.fixture
def proxy(server: ApiServer) -> Iterator[httpx.Client]:
    """Asks from the address of the listed proxy."""
    transport = httpx.HTTPTransport(verify=PLAIN, limits=ONE_REQUEST_EACH, local_address=PROXY)
    with httpx.Client(base_url=server.url, transport=transport, timeout=WAIT_S) as opened:
        yield opened


def test_what_was_shown_is_adopted_and_nothing_else(client: httpx.Client) -> None:
    """The request that once needed no body; and one that names what is not so any more."""
    path, state = "/api/v1/metastore/adopt", client.get("/api/v1/metastore").json()
    shown = {name: state[name] for name in ("epoch", "kind", "reason")}
    assert client.post(path, headers=JSON).status_code == 400
    for incomplete in ({}, {"epoch": 1}, {**shown, "kind": "WHATEVER"}, {**shown, "force": True}):
        assert client.post(path, json=incomplete).json()["name"] == "INVALID_REQUEST"
    for stale in ({"epoch": state["epoch"] + 1}, {"kind": "METASTORE_WENT_BACK", "reason": "seen before"}):
        answer = client.post(path, json={**shown, **stale})
        assert (answer.status_code, answer.json()["name"]) == (409, "SHOWN_STATE_CHANGED")
    assert client.post(path, json=shown).json()["adopted"] is False
    assert client.get("/api/v1/metastore").json()["epoch"] == state["epoch"]


def test_a_reset_names_what_a_dry_run_showed(client: httpx.Client) -> None:
    client.post("/api/v1/statements", json={"sql": "CREATE ZONE IF NOT EXISTS kept"}).raise_for_status()
    path = "/api/v1/zones/KEPT/recovery/reset"
    for unseen in ({}, {"empty": True}, {"partitions": [0]}):
        answer = client.post(path, json=unseen)
        assert (answer.status_code, answer.json()["name"]) == (400, "INVALID_REQUEST")
        assert "dry run" in answer.json()["detail"]


def opened(server: ApiServer, *lines: str, body: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S)
    connection.sendall("\r\n".join(lines).encode() + body)
    return connection


def answer_of(connection: socket.socket) -> bytes:
    """All until the server closes, or resets what it has not read whole. Raises TimeoutError when it does
    neither."""
    answer = b""
    with suppress(ConnectionResetError):
        while chunk := connection.recv(1 << 16):
            answer += chunk
    return answer


def routes(client: httpx.Client) -> list[tuple[str, str]]:
    """Methods and paths of the OpenAPI document, and further ones that it does not list."""
    paths = client.get("/openapi.json").raise_for_status().json()["paths"]
    known = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert len(known) > 30
    more = [
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("GET", "/docs/files/swagger-ui.css"),
        ("GET", "/console/"),
        ("GET", POLLING),
        ("POST", POLLING),
        ("POST", "/v1/statement"),
        ("HEAD", "/v1/statement"),
        ("GET", "/v1/statement/executing/1/1"),
        ("DELETE", "/v1/statement/executing/1/1"),
        ("DELETE", "/v1/query/1"),
        ("GET", "/v1/info"),
        ("GET", "/nowhere"),
        ("OPTIONS", "/api/v1/statements"),
    ]
    return known + more


def state(client: httpx.Client) -> object:
    """All that a refused request could have changed."""
    return [
        client.get(path).json()
        for path in ("/api/v1/zones", "/api/v1/rebalance/limits", "/api/v1/audit", "/api/v1/operations")
    ]


def test_every_route_refuses_other_origins_and_names(client: httpx.Client) -> None:
    before = state(client)
    for method, path in routes(client):
        for headers, name in (
            ({"Origin": "http://evil.test"}, "ORIGIN_REFUSED"),
            ({"Origin": "null"}, "ORIGIN_REFUSED"),
            ({"Host": "evil.test"}, "HOST_REFUSED"),
        ):
            answer = client.request(method, path, headers={**JSON, **USER, **headers}, content="{}")
            assert answer.status_code == 403, (method, path, headers)
            assert "access-control-allow-origin" not in answer.headers
            if method != "HEAD":
                assert answer.json()["name"] == name
    assert state(client) == before


def test_what_changes_something_takes_no_form(client: httpx.Client) -> None:
    """Refuse changes with the three media types of forms and with none, also without a body; nothing is
    changed."""
    before = state(client)
    forms = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None)
    changing = [
        (method, path)
        for method, path in routes(client)
        if method in ("POST", "PUT", "PATCH") and "/api/" in path
    ]
    assert len(changing) > 10
    for method, path in changing:
        for kind in forms:
            headers = {} if kind is None else {"Content-Type": kind}
            for content in ('{"sql": "DROP ZONE x"}', ""):
                if method == "POST" or content:
                    answer = client.request(method, path, headers=headers, content=content)
                    assert (answer.status_code, answer.json()["name"]) == (415, "MEDIA_TYPE_REFUSED"), path
    refused = client.post("/v1/statement", content="CREATE ZONE x", headers={"Content-Type": "text/plain"})
    assert (refused.status_code, refused.json()["name"]) == (400, "USER_REQUIRED")
    assert state(client) == before


def test_the_consoles_socket_has_one_origin(server: ApiServer) -> None:
    address = server.url.replace("http", "ws") + SOCKET
    rebound = f"ws://evil.test:{server.port}{SOCKET}"
    for target, origin in (
        (address, "http://evil.test"),
        (address, "null"),
        (rebound, None),
        (rebound, f"http://evil.test:{server.port}"),
    ):
        with (
            opened(server) as connection,
            pytest.raises(InvalidStatus) as refused,
            connect(target, sock=connection, origin=Origin(origin) if origin else None),
        ):
            pass
        assert refused.value.response.status_code == 403
        assert b"REFUSED" in (refused.value.response.body or b"")
    with connect(address, origin=Origin(server.url)) as console:
        assert str(console.recv(WAIT_S)).startswith("0{")


def test_polling_is_answered_to_the_page_alone(client: httpx.Client, server: ApiServer) -> None:
    answer = client.get(POLLING, headers={"Origin": server.url})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_headers_of_all_answers(client: httpx.Client) -> None:
    answers = [client.get(path) for path in ("/healthz", "/nowhere", "/docs", "/console/", "/openapi.json")]
    answers += [
        client.get("/healthz", headers={"Host": "evil.test"}),
        client.post("/api/v1/statements", json={}),
        client.post("/api/v1/statements", content=b"[" * 100_000, headers=JSON),
        client.post("/v1/statement", content="SELECT 1", headers=USER),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff", answer.url
        assert answer.headers["referrer-policy"] == "no-referrer"
        policies = answer.headers.get_list("content-security-policy")
        assert len(policies) == 1
        assert all(directive in policies[0] for directive in ALWAYS)
        is_page = answer.status_code == 200 and answer.url.path in ("/docs", "/console/")
        assert ("unsafe" in policies[0]) == is_page, answer.url
        version = None if answer.url.path in ("/docs", "/console/") else own_version()
        assert answer.headers.get("zonekeeper-version") == version, answer.url


def test_the_documentation_is_whole_without_a_network(client: httpx.Client) -> None:
    page = client.get("/docs").text
    assert "//cdn" not in page
    for path in ("/docs/files/swagger-ui.css", "/docs/files/swagger-ui-bundle.js"):
        assert path in page
        assert client.get(path).status_code == 200


def test_a_listed_proxy_speaks_for_clients(proxy: httpx.Client, client: httpx.Client) -> None:
    """Addresses of pages are as the client sees them, its own address and name are in the audit."""
    forwarded = {
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "zones.example",
        "X-Forwarded-For": "203.0.113.9",
        "Remote-Name": "carol",
    }
    headers = {**forwarded, **USER, "Origin": "https://zones.example"}
    first = proxy.post("/v1/statement", content="CREATE ZONE by_proxy", headers=headers).json()
    assert first["nextUri"].startswith("https://zones.example/v1/statement/")
    page = first
    while "nextUri" in page:
        path = page["nextUri"].removeprefix("https://zones.example")
        page = proxy.get(path, headers=forwarded).json()
    assert "error" not in page
    newest = client.get("/api/v1/audit").json()["records"][0]
    assert (newest["by"], newest["verified"], newest["address"]) == ("carol", True, "203.0.113.9")

    # The same from anybody else.
    plain = client.post("/v1/statement", content="CREATE ZONE by_nobody", headers={**forwarded, **USER}).json()
    assert plain["nextUri"].startswith(f"{client.base_url}/v1/statement/".replace("//v1", "/v1"))
    while "nextUri" in plain:
        plain = client.get(plain["nextUri"]).json()
    newest = client.get("/api/v1/audit").json()["records"][0]
    assert (newest["by"], newest["verified"], newest["address"]) == ("tester", False, "127.0.0.1")


POST = ("POST /api/v1/statements HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json")


def test_a_large_body_is_refused_before_it_comes(server: ApiServer) -> None:
    with opened(server, *POST, f"Content-Length: {100 << 20}", "", "") as connection:
        assert answer_of(connection).startswith(b"HTTP/1.1 413 ")
    expecting = ("Expect: 100-continue", f"Content-Length: {BODY_MAX + 1}", "", "")
    with opened(server, *POST, *expecting) as connection:
        assert answer_of(connection).startswith(b"HTTP/1.1 413 ")


def test_a_large_body_of_unknown_length_is_not_read_whole(server: ApiServer) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    sent = 0
    with opened(server, *POST, "Transfer-Encoding: chunked", "", "") as connection:
        try:
            while sent < 200 << 20:
                connection.sendall(chunk)
                sent += 0x10000
        except (BrokenPipeError, ConnectionResetError):
            pass
    # What the server takes, and what the system's buffers hold.
    assert sent < 50 << 20
    with opened(server, *POST, "Transfer-Encoding: chunked", "", "") as connection:
        for _ in range(BODY_MAX // 0x10000 + 1):
            connection.sendall(chunk)
        assert answer_of(connection).startswith(b"HTTP/1.1 413 ")


def test_the_largest_body_is_taken(client: httpx.Client) -> None:
    padding = " " * (BODY_MAX - len('{"sql": "SELECT 1"}'))
    answer = client.post("/api/v1/statements", content='{"sql": "SELECT 1"}' + padding, headers=JSON)
    assert answer.status_code == 200
    answer = client.post("/api/v1/statements", content='{"sql": "SELECT 1"}' + padding + " ", headers=JSON)
    assert (answer.status_code, answer.json()["name"]) == (413, "REQUEST_TOO_LARGE")


def test_two_hundred_half_sent_requests_end(server: ApiServer, client: httpx.Client) -> None:
    """Half of them have no whole header, half no whole body; the server answers others meanwhile."""
    with ExitStack() as stack:
        halves = [
            stack.enter_context(half)
            for _ in range(100)
            for half in (
                opened(server, "GET /healthz HTTP/1.1", "Host: 127.0.0.1", "X-Slow: "),
                opened(server, *POST, "Content-Length: 100", "", "", body=b'{"sql": '),
            )
        ]
        assert client.get("/healthz").status_code == 200
        for half in halves:
            answer = answer_of(half)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b'"REQUEST_TOO_SLOW"' in answer


def test_a_trickle_does_not_help(server: ApiServer) -> None:
    """The whole header and the whole body have a time, and not each byte."""
    begun = time.monotonic()
    with (
        opened(server, "GET /healthz HTTP/1.1", "Host: 127.0.0.1", "X-Slow: ") as header,
        opened(server, *POST, "Content-Length: 100000", "", "") as body,
    ):
        left = {header, body}
        while left:
            assert time.monotonic() - begun < WAIT_S
            for connection in tuple(left):
                try:
                    connection.sendall(b"x")
                except (BrokenPipeError, ConnectionResetError):
                    left.discard(connection)
            time.sleep(0.05)


def test_idle_connections_end(server: ApiServer) -> None:
    """One that has said nothing, one that was answered, and one that begins again and stops."""
    whole = ("GET /healthz HTTP/1.1", "Host: 127.0.0.1", "", "")
    with opened(server) as silent, opened(server, *whole) as answered:
        assert answer_of(silent) == b""
        answer = answer_of(answered)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b'{"status":"ok"}')
    for _ in range(20):
        with opened(server, *whole) as again:
            first = b""
            while not first.endswith(b'{"status":"ok"}'):
                byte = again.recv(1)
                assert byte, first
                first += byte
            try:
                again.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow")
                second = answer_of(again)
            except ConnectionError:
                second = b""
        # On a machine that is very busy it was closed as idle before it began again.
        if second:
            break
    assert second.startswith(b"HTTP/1.1 408 Request Timeout")


@pytest.mark.parametrize("size", [70_000, 1 << 20])
def test_headers_have_a_size(server: ApiServer, size: int) -> None:
    lines = ("GET /healthz HTTP/1.1", "Host: 127.0.0.1", f"Cookie: {'a' * size}", "", "")
    try:
        with opened(server, *lines) as connection:
            answer = answer_of(connection)
    except (BrokenPipeError, ConnectionResetError):
        answer = b""
    # Of the larger ones it takes a part, and its answer may be lost with the rest.
    assert answer.startswith(b"HTTP/1.1 431 ") or (answer == b"" and size == 1 << 20)


def test_what_is_no_http_is_told(server: ApiServer) -> None:
    with opened(server, "\x16\x03\x01 hello", "", "") as connection:
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"REQUEST_MALFORMED"' in answer
    assert b"nosniff" in answer


def answer_pings(console: ClientConnection) -> None:
    """Answer the pings that have come: after some seconds without an answer the console itself gives the socket
    up."""
    with suppress(TimeoutError):
        while True:
            assert console.recv(0) == "2"
            console.send("3")


def test_sockets_and_long_answers_are_not_cut(server: ApiServer, client: httpx.Client) -> None:
    """Leave a socket and a long answer open for longer than a header, a body and an idle connection may
    take."""
    begun = time.monotonic()
    headers = {**USER, "X-Trino-Session": "wait=true"}
    with connect(server.url.replace("http", "ws") + SOCKET, origin=Origin(server.url)) as console:
        assert str(console.recv(WAIT_S)).startswith("0{")
        page = client.post("/v1/statement", content="CREATE ZONE waiting", headers=headers).json()
        while time.monotonic() - begun < 2 * LIMIT_S:
            # No node is there to carry it out.
            page = client.get(page["nextUri"]).raise_for_status().json()
            assert "error" not in page
            answer_pings(console)
        # The socket's connection of the layer above is asked for now: any answer shows that it is open.
        console.send("40")
        while (answer := str(console.recv(WAIT_S))) == "2":
            console.send("3")
        assert answer.startswith("4")
        assert client.delete(page["nextUri"]).status_code == 204
    logged = {"sql": "SELECT count(*) FROM zones", "wait_timeout": 50}
    assert client.post("/api/v1/statements", json=logged).status_code == 200
