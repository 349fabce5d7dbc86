"""The role walk: every route as each role, over HTTPS, compared with the list of privileges of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.console_browser import csrf_in
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.privilege_model import HELD, Verdict, expected, rows_of
from tests.fixtures.secure_server import (
    READER,
    ROLE_USERS,
    STRANGER,
    SecureServer,
    password_of,
    serving_securely,
)

ZONE = "walk"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def server(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    directory: Path = tmp_path_factory.mktemp("walk")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving_securely(directory, etcd_server, Keyspace("test-walk/"), url) as opened:
        yield opened


@pytest.fixture(scope="module")
def zone_id(server: SecureServer) -> int:
    with server.client("the-administrator") as client:
        client.post("/api/v1/statements", json={"sql": "CREATE ZONE walk (PARTITIONS 2)"}).raise_for_status()
        zones: list[dict[str, int]] = client.get("/api/v1/zones").json()["zones"]
    return zones[0]["zone_id"]


def routes() -> list[tuple[str, str, str]]:
    return [(method, path, needs) for method, path, needs in rows_of("route_privileges.tsv")]


def verdict(answer: httpx.Response, *, hidden: set[str]) -> Verdict:
    body = answer.json() if "json" in answer.headers.get("content-type", "") else None
    name = body.get("name") if isinstance(body, dict) else None
    if name == "PRIVILEGE_MISSING":
        return Verdict.MISSING
    return Verdict.HIDDEN if answer.status_code == 404 and answer.text in hidden else Verdict.ALLOWED


def address(path: str, zone_id: int) -> str:
    parts = {
        "{zone:segment}": "walk",
        "{zone_id}": str(zone_id),
        "{operation:segment}": f"{zone_id}-1",
        "{partition}": "0",
        # Refused after the authorisation, so that nobody waits for a group that does not run.
        "{key:key}": "k?read=unknown&if_revision=0",
        "{node:segment}": "nowhere",
        "{module:segment}": "app.edge",
        "{silence_id:segment}": "5a3c0c62d6f1b8e4",
        "{statement_id:segment}": "unknown",
        "{token_id:segment}": "unknown",
        "{token}": "0",
        "{n}": "1",
    }
    for part, text in parts.items():
        path = path.replace(part, text)
    return path


@pytest.mark.slow("some four hundred requests over TLS")
def test_every_route_as_each_role(server: SecureServer, zone_id: int) -> None:
    assert set(HELD) == {*ROLE_USERS, READER, STRANGER}
    wrong, pairs = [], 0
    with server.client("the-administrator") as administrator:
        gone = {
            administrator.get(f"/api/v1/operations/{zone_id}-1").text,
            administrator.get("/api/v1/zones/walk").text,
        }
    hidden_texts = {text for text in gone if "does not exist" in text or "there is no operation" in text}
    for user in HELD:
        with server.client(user) as client:
            for method, path, needs in routes():
                pairs += 1
                body = None if method in ("GET", "HEAD", "DELETE") else {"unknown": 1}
                headers = {"X-Trino-User": user} if path.startswith("/v1/") else {}
                answer = client.request(method, address(path, zone_id), json=body, headers=headers)
                # No member runs: a map that nobody has reported is not available.
                assert answer.status_code in range(200, 500) or answer.status_code == 503, answer.text
                hidden = _hidden_answers(answer, zone_id) | (hidden_texts if user == STRANGER else set())
                model = expected(HELD[user], needs, "" if "QUERIED" in needs else ZONE, [ZONE])
                if (seen := verdict(answer, hidden=hidden)) is not model:
                    wrong.append((user, method, path, seen, model, answer.text[:200]))
    assert wrong == []
    assert pairs == len(HELD) * len(routes())
    print(f"{pairs} pairs of a route and a user")


def _hidden_answers(answer: httpx.Response, zone_id: int) -> set[str]:
    """Answers that say that the zone of this test, which is there, is not."""
    signs = ('zone \\"walk\\" does not exist', f"there was never a zone with id {zone_id}")
    return {answer.text} if any(sign in answer.text for sign in signs) else set()


def test_without_a_login_everything_but_the_open_routes_is_401(server: SecureServer, zone_id: int) -> None:
    with server.client() as client:
        for method, path, needs in [*routes(), ("GET", "/openapi.json", ""), ("GET", "/docs/files/x", "")]:
            headers = {"X-Trino-User": "somebody"}
            answer = client.request(method, address(path, zone_id), headers=headers)
            assert (answer.status_code == 401) is (needs != "OPEN"), (method, path)
        for path in ("/", "/zones", "/_nicegui/x.js", "/_nicegui_ws/socket.io/"):
            assert client.get(f"/console{path}").status_code == 401, path


@pytest.mark.parametrize(("user", "status"), [("the-viewer", 200), (STRANGER, 403), (READER, 403)])
def test_documents_need_see_on_the_system(server: SecureServer, user: str, status: int) -> None:
    with server.client(user) as client:
        for path in ("/openapi.json", "/docs", "/docs/files/swagger-ui.css", "/d%6Fcs"):
            assert client.get(f"{server.url}{path}").status_code == status, path
        assert client.get(f"{server.url}//docs/files/swagger-ui.css").status_code == 404
        # Sessions alone open it.
        assert client.get("/console/").status_code == 401


@pytest.mark.thorough("unit/console/test_role_pages has each page and role")
@pytest.mark.parametrize("user", sorted(HELD))
def test_every_page_of_the_console_as_each_role(server: SecureServer, zone_id: int, user: str) -> None:
    wrong = []
    with server.client() as client:
        log_in(client, user)
        for path, needs in rows_of("page_privileges.tsv"):
            page = address(path.replace("{number}", "0"), zone_id)
            answer = client.get(
                f"/console{page}", params={"zone": "walk", "after": 0} if "begun" in page else {}
            )
            assert answer.status_code == 200, answer.text
            assert answer.headers["cache-control"] == "no-store"
            is_missing = "A privilege is missing" in answer.text
            if is_missing != (expected(HELD[user], needs, ZONE, [ZONE]) is not Verdict.ALLOWED):
                wrong.append((path, needs))
    assert wrong == []


def log_in(client: httpx.Client, user: str) -> None:
    page = client.get("/console/login").text
    proof = {"user": user, "password": password_of(user), "csrf": csrf_in(page)}
    assert client.post("/console/login", json=proof).status_code == 200


def test_one_zone_has_many_spellings_and_one_decision(server: SecureServer, zone_id: int) -> None:
    with server.client(STRANGER) as stranger, server.client("the-viewer") as viewer:
        for spelling in ("walk", "WALK", "w%61lk", "%77%61%6C%6B", "%57ALK"):
            path = f"{server.url}/api/v1/zones/{spelling}"
            assert (stranger.get(path).status_code, viewer.get(path).status_code) == (404, 200)
        for path in (
            "//api/v1/zones/walk",
            "/api//v1/zones/walk",
            "/api/v1/zones//walk",
            "/api/v1/zones/%2Fwalk",
        ):
            assert stranger.get(f"{server.url}{path}").status_code == 404
            assert viewer.get(f"{server.url}{path}").status_code == 404
