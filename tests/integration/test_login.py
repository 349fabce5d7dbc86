"""A real ``zonectl serve``: HTTPS beside HTTP, logins, tokens, and a certificate that is renewed."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.access_world import basic, bearer
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.secure_server import READER, STRANGER, SecureServer, password_of, serving_securely

ADMIN = "the-administrator"
VIEWER = "the-viewer"
RENEWED_S = 60.0

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def server(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    directory: Path = tmp_path_factory.mktemp("login")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving_securely(directory, etcd_server, Keyspace("test-login/"), url) as opened:
        yield opened


def test_a_user_logs_in_over_tls(server: SecureServer) -> None:
    with server.client(ADMIN) as client:
        body = client.get("/api/v1/whoami").raise_for_status().json()
    assert body == {
        "source": "local",
        "name": ADMIN,
        "roles": ["administrator"],
        "proof": "PASSWORD",
        "token_id": None,
        "scope": "",
        "expires_at": None,
    }


def test_who_was_just_made_logs_in_at_once(server: SecureServer) -> None:
    """Let a new user log in at once on the server that made it, and refuse one without LOGIN as soon."""
    with server.client(ADMIN) as admin:
        for number in range(5):
            name, password = f"new{number}", "a password of its own"
            sql = f"CREATE USER {name} WITH PASSWORD '{password}'"
            admin.post("/api/v1/statements", json={"sql": sql}).raise_for_status()
            with server.client() as client:
                client.headers.update(basic(name, password))
                assert client.get("/api/v1/whoami").json()["name"] == name
                sql = f"ALTER USER {name} NOLOGIN"
                admin.post("/api/v1/statements", json={"sql": sql}).raise_for_status()
                assert client.get("/api/v1/whoami").status_code == 401


def test_http_says_where_https_is_and_takes_no_credential(server: SecureServer) -> None:
    with httpx.Client(base_url=server.plain_url, trust_env=False) as client:
        answer = client.get("/api/v1/zones")
        assert answer.status_code == 401
        assert server.url in answer.json()["detail"]
        for headers in (basic(ADMIN, password_of(ADMIN)), bearer("zkt_x")):
            answer = client.get("/api/v1/zones", headers=headers)
            assert (answer.status_code, answer.json()["name"]) == (403, "CREDENTIAL_NOT_ENCRYPTED")
            assert server.url in answer.json()["detail"]


def test_addresses_are_not_those_of_a_proxy_that_is_not_listed(server: SecureServer) -> None:
    forwarded = {"X-Trino-User": ADMIN, "X-Forwarded-Proto": "http", "X-Forwarded-Host": "zones.example:8443"}
    with server.client(ADMIN) as client:
        page = client.post("/v1/statement", content="SELECT 1", headers=forwarded).raise_for_status().json()
        assert page["nextUri"].startswith(f"{server.url}/v1/statement/")


def test_nobody_in_particular_learns_only_whether_it_is_ready(server: SecureServer) -> None:
    with httpx.Client(base_url=server.plain_url, trust_env=False) as client:
        assert client.get("/readyz").json() == {"ready": True, "state": "ready"}
    with server.client(STRANGER) as client:
        assert client.get("/readyz").json() == {"ready": True, "state": "ready"}
    with server.client(VIEWER) as client:
        assert client.get("/readyz").json()["metastore"] == "ok"


def test_a_token_is_made_used_listed_and_revoked(server: SecureServer) -> None:
    with server.client(READER) as client:
        made = client.post("/api/v1/tokens", json={"lifetime_s": 3600, "scope": "READ ON ALL ZONES"})
        assert made.status_code == 201
        assert made.headers["cache-control"] == "no-store"
        token = made.json()
        lifetime = datetime.fromisoformat(token["expires_at"]) - datetime.fromisoformat(token["created_at"])
        assert lifetime.total_seconds() == 3600
        with server.client() as other:
            other.headers.update(bearer(token["secret"]))
            who = other.get("/api/v1/whoami").raise_for_status().json()
            assert (who["name"], who["proof"], who["token_id"]) == (READER, "TOKEN", token["token_id"])
            assert who["scope"] == "READ ON ALL ZONES"
            assert who["expires_at"] == token["expires_at"]
            broader = other.post("/api/v1/tokens", json={"scope": "WRITE ON ALL ZONES"})
            assert broader.json()["name"] == "TOKEN_TOO_BROAD"
            whole = client.post("/api/v1/tokens", json={}).raise_for_status().json()["token_id"]
            reached = other.get("/api/v1/tokens").json()["tokens"]
            assert [entry["token_id"] for entry in reached] == [token["token_id"]]
            assert other.delete(f"/api/v1/tokens/{whole}").json()["name"] == "TOKEN_NOT_FOUND"
            client.delete(f"/api/v1/tokens/{whole}").raise_for_status()
            longer = other.post("/api/v1/tokens", json={"lifetime_s": 7200})
            assert longer.json()["name"] == "TOKEN_TOO_BROAD"
            listed = client.get("/api/v1/tokens").json()["tokens"]
            assert {entry["token_id"] for entry in listed} == {token["token_id"], whole}
            assert token["secret"] not in str(listed)
            revoked = client.delete(f"/api/v1/tokens/{token['token_id']}").raise_for_status().json()
            assert revoked["valid"] is False
            assert other.get("/api/v1/whoami").status_code == 401


def test_a_link_to_the_console_is_no_way_to_more(server: SecureServer) -> None:
    """A session has no scope, and lasts for 8 hours: so a token that has one, or ends earlier, begins none."""
    links = "/api/v1/console-links"
    with server.client("the-viewer") as client, server.client() as other:
        made = client.post(links, json={})
        assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
        assert made.json()["path"].startswith("/console/login#zkl_")
        for request in ({"scope": "SEE ON SYSTEM"}, {"lifetime_s": 8 * 3600 - 60}):
            token = client.post("/api/v1/tokens", json=request).json()["secret"]
            refused = other.post(links, json={}, headers=bearer(token))
            assert (refused.status_code, refused.json()["name"]) == (403, "TOKEN_TOO_BROAD")
        token = client.post("/api/v1/tokens", json={}).json()["secret"]
        assert other.post(links, json={}, headers=bearer(token)).status_code == 201
        assert other.post(links, json={}).status_code == 401


def test_tokens_of_others_do_not_exist(server: SecureServer) -> None:
    with server.client(VIEWER) as client, server.client(READER) as other, server.client(ADMIN) as administrator:
        token_id = client.post("/api/v1/tokens", json={}).json()["token_id"]
        assert other.delete(f"/api/v1/tokens/{token_id}").json()["name"] == "TOKEN_NOT_FOUND"
        assert other.get("/api/v1/tokens", params={"all": True}).json()["name"] == "PRIVILEGE_MISSING"
        listed = administrator.get("/api/v1/tokens", params={"all": True}).json()["tokens"]
        assert token_id in {entry["token_id"] for entry in listed}
        assert administrator.delete(f"/api/v1/tokens/{token_id}").json()["valid"] is False


def test_the_audit_names_who_has_logged_in(server: SecureServer) -> None:
    with server.client(VIEWER) as client:
        made = client.post("/api/v1/tokens", json={}, headers={"Zonekeeper-By": "somebody else"})
    with server.client(ADMIN) as client:
        record = client.get("/api/v1/audit", params={"action": "CREATE TOKEN"}).json()["records"][0]
    assert (record["by"], record["verified"], record["subject"]) == (VIEWER, True, made.json()["token_id"])
    assert made.json()["secret"] not in str(record)


def test_a_zone_that_is_not_to_be_seen_answers_as_one_that_is_not_there(server: SecureServer) -> None:
    with server.client(ADMIN) as client:
        client.post("/api/v1/statements", json={"sql": "CREATE ZONE hidden (PARTITIONS 2)"}).raise_for_status()
        assert [zone["name"] for zone in client.get("/api/v1/zones").json()["zones"]] == ["HIDDEN"]
    paths = (
        "/api/v1/zones/{}",
        "/api/v1/zones/{}/partitions",
        "/api/v1/zones/{}/kv/k",
        "/api/v1/operations?zone={}",
    )
    with server.client(STRANGER) as client:
        assert client.get("/api/v1/zones").json()["zones"] == []
        for path in paths:
            answers = [client.get(path.format(name)) for name in ("hidden", "h%69dden", "nowhere")]
            assert {answer.status_code for answer in answers} == {404}
            texts = {answer.text.replace("hidden", "ZONE").replace("nowhere", "ZONE") for answer in answers}
            assert len(texts) == 1
    with server.client(VIEWER) as client:
        assert client.get("/api/v1/zones/hidden").status_code == 200
        answer = client.put("/api/v1/zones/hidden/kv/k", json={"value": "v"})
        assert (answer.status_code, answer.json()["name"]) == (403, "PRIVILEGE_MISSING")


def test_statements_are_authorised_for_who_has_logged_in(server: SecureServer) -> None:
    """Authorise statements for the user that has logged in; a role that is granted holds soon."""

    def run(client: httpx.Client, sql: str) -> httpx.Response:
        return client.post("/api/v1/statements", json={"sql": sql})

    def may_create(client: httpx.Client) -> bool:
        answer = run(client, "CREATE ZONE IF NOT EXISTS shared (PARTITIONS 1)")
        return answer.status_code == 200 and not answer.json().get("error")

    with server.client(ADMIN) as administrator, server.client(STRANGER) as stranger:
        assert may_create(administrator)
        refused = run(stranger, "CREATE ZONE mine (PARTITIONS 1)")
        assert "PRIVILEGE_MISSING" in refused.text
        assert "SHARED" not in run(stranger, "SELECT zone_name FROM SYSTEM.ZONES").text
        made = run(administrator, "CREATE USER carla WITH PASSWORD 'carla has a long password'")
        assert made.status_code == 200, made.text
        with server.client("carla", "carla has a long password") as carla:
            deadline = time.monotonic() + RENEWED_S
            while carla.get("/api/v1/whoami").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(1)
            assert not may_create(carla)
            assert run(administrator, "GRANT operator TO carla").status_code == 200
            while not may_create(carla):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert run(administrator, "DROP USER carla").status_code == 200
            while carla.get("/api/v1/whoami").status_code != 401:
                assert time.monotonic() < deadline
                time.sleep(0.2)


def test_secrets_are_in_no_log(server: SecureServer) -> None:
    with server.client(READER, "a wrong password") as client:
        assert client.get("/api/v1/whoami").status_code == 401
    with server.client(READER) as client:
        secret = client.post("/api/v1/tokens", json={}).json()["secret"]
        client.headers.update(bearer(secret))
        client.get("/api/v1/zones/nowhere")
    for text in (secret, "a wrong password", password_of(READER)):
        assert text not in server.log_text


def test_a_renewed_certificate_is_shown_without_a_restart(server: SecureServer) -> None:
    before = _certificate(server)
    with server.client(VIEWER) as client:
        client.get("/api/v1/whoami").raise_for_status()
        server.renew_certificate()
        deadline = time.monotonic() + RENEWED_S
        while _certificate(server) == before:
            assert time.monotonic() < deadline, server.log_text[-2000:]
            time.sleep(0.25)
        # A connection that was open goes on.
        client.get("/api/v1/whoami").raise_for_status()


def _certificate(server: SecureServer) -> bytes | None:
    address = ("127.0.0.1", server.https_port)
    with (
        socket.create_connection(address, 30) as connection,
        server.context.wrap_socket(connection, server_hostname="127.0.0.1") as secure,
    ):
        return secure.getpeercert(binary_form=True)
