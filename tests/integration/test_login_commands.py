"""``zonectl login``, ``logout``, ``whoami`` and ``token`` against a server on which users log in."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from app.cli.main import main
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.access_world import bearer
from tests.fixtures.console_browser import csrf_in
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.secure_server import READER, SecureServer, password_of, serving_securely

Zonectl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    directory: Path = tmp_path_factory.mktemp("logins")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving_securely(directory, etcd_server, Keyspace("test-logins/"), url) as opened:
        yield opened


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a user that has not logged in, whose current directory has no data directory."""
    path = tmp_path / "home" / "contexts.json"
    monkeypatch.setenv("ZONEKEEPER_CONTEXTS", str(path))
    monkeypatch.chdir(tmp_path)
    return path


@pytest.fixture
def zonectl(contexts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Zonectl:
    """Runs a command line with a standard input: exit code, output, errors."""

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(list(arguments))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def log_in(zonectl: Zonectl, server: SecureServer, user: str = READER) -> None:
    code, shown, errors = zonectl(
        *("login", server.url, "--user", user, "--password-stdin", "--ca-file", str(server.ca_file)),
        stdin=f"{password_of(user)}\n",
    )
    assert (code, errors) == (0, "")
    assert shown.startswith(f"logged in to {server.url} as {user} until ")


def test_a_login_is_used_by_the_commands_after_it(zonectl: Zonectl, server: SecureServer) -> None:
    log_in(zonectl, server)
    code, shown, _ = zonectl("whoami", "--format", "json")
    body = json.loads(shown)
    assert (code, body["name"], body["proof"], body["url"]) == (0, READER, "TOKEN", server.url)
    code, shown, _ = zonectl("token", "list", "--format", "jsonl")
    assert (code, json.loads(shown.splitlines()[0])["owner"]) == (0, READER)


def test_a_link_of_the_command_line_opens_the_console_once(zonectl: Zonectl, server: SecureServer) -> None:
    log_in(zonectl, server)
    code, shown, _ = zonectl("console-link")
    page, _, secret = shown.strip().partition("#")
    assert (code, page) == (0, f"{server.url}/console/login")
    with server.client() as browser:
        for status in (200, 401):
            csrf = csrf_in(browser.get(page).text)
            assert browser.post(page, json={"link": secret, "csrf": csrf}).status_code == status
    assert secret not in server.log_text


def test_the_contexts_file_is_its_owners_alone_and_has_no_password(
    zonectl: Zonectl, server: SecureServer, contexts: Path
) -> None:
    log_in(zonectl, server)
    assert stat.S_IMODE(contexts.stat().st_mode) == 0o600
    assert password_of(READER) not in contexts.read_text()
    contexts.chmod(0o640)
    code, _, errors = zonectl("whoami")
    assert code == 1
    assert f"chmod 600 {contexts}" in errors


def test_logging_out_revokes_the_token(zonectl: Zonectl, server: SecureServer, contexts: Path) -> None:
    log_in(zonectl, server)
    (context,) = json.loads(contexts.read_text())["contexts"].values()
    assert zonectl("logout")[0] == 0
    assert context["token"] not in contexts.read_text()
    with server.client() as client:
        assert client.get("/api/v1/whoami", headers=bearer(context["token"])).status_code == 401
    code, _, errors = zonectl("whoami")
    assert (code, "no server to connect to" in errors) == (3, True)
    assert zonectl("logout")[0] == 1


def test_a_wrong_password_stores_nothing(zonectl: Zonectl, server: SecureServer, contexts: Path) -> None:
    code, _, errors = zonectl(
        *("login", server.url, "--user", READER, "--password-stdin", "--ca-file", str(server.ca_file)),
        stdin="wrong\n",
    )
    assert (code, contexts.exists()) == (1, False)
    assert "UNAUTHENTICATED" in errors


@pytest.mark.parametrize("arguments", [("--password-stdin",), ()])
def test_a_password_is_sent_to_no_server_that_is_not_checked(
    zonectl: Zonectl, server: SecureServer, arguments: tuple[str, ...]
) -> None:
    """Another authority than the server's, and plain HTTP. Without a terminal no password is asked for."""
    code, _, errors = zonectl("login", server.url, "--user", READER, *arguments, stdin="secret\n")
    assert code == (3 if arguments else 64)
    assert ("certificate" in errors.lower()) is bool(arguments)
    code, _, errors = zonectl("login", server.plain_url, "--password-stdin", stdin="secret\n")
    assert (code, "HTTPS only" in errors) == (64, True)


def test_a_token_is_made_for_a_program_and_revoked(zonectl: Zonectl, server: SecureServer) -> None:
    log_in(zonectl, server)
    code, shown, _ = zonectl(
        "token", "create", "--days", "1", "--scope", "READ ON ALL ZONES", "--format", "json"
    )
    made = json.loads(shown)
    assert (code, made["scope"], made["valid"]) == (0, "READ ON ALL ZONES", True)
    with server.client() as client:
        headers = bearer(made["secret"])
        assert client.get("/api/v1/whoami", headers=headers).json()["token_id"] == made["token_id"]
        code, shown, _ = zonectl("token", "revoke", made["token_id"])
        assert (code, shown.strip()) == (0, f"token {made['token_id']} of {READER} is revoked")
        assert client.get("/api/v1/whoami", headers=headers).status_code == 401


def test_a_token_goes_to_its_origin_alone(
    zonectl: Zonectl, server: SecureServer, contexts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Send a token to its origin alone: not to another port of the same host, not without TLS, and not to the
    target of a redirect."""
    log_in(zonectl, server)
    heard: list[str | None] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers.get("Authorization"))
            self.send_response(307)
            self.send_header("Location", f"{server.url}/api/v1/whoami")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
    try:
        monkeypatch.setenv("ZONEKEEPER_TOKEN", "zkt_environment")
        code, _, errors = zonectl("whoami", "--url", f"http://127.0.0.1:{listener.server_port}")
    finally:
        listener.shutdown()
        listener.server_close()
    assert (code, heard) == (3, [None])
    assert "HTTP 307" in errors
    monkeypatch.delenv("ZONEKEEPER_TOKEN")
    # The same server by another name is another origin.
    monkeypatch.setenv("ZONEKEEPER_CA_FILE", str(server.ca_file))
    code, _, errors = zonectl("whoami", "--url", f"https://localhost:{server.https_port}")
    assert (code, "UNAUTHENTICATED" in errors) == (1, True)


def test_a_token_comes_from_a_file_that_the_environment_names(
    zonectl: Zonectl, server: SecureServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with httpx.Client(base_url=server.url, verify=server.context, auth=(READER, password_of(READER))) as client:
        secret = client.post("/api/v1/tokens", json={}).json()["secret"]
    path = tmp_path / "token"
    path.write_text(f"{secret}\n")
    monkeypatch.setenv("ZONEKEEPER_TOKEN_FILE", str(path))
    monkeypatch.setenv("ZONEKEEPER_CA_FILE", str(server.ca_file))
    code, shown, _ = zonectl("whoami", "--url", server.url)
    assert (code, shown.splitlines()[0]) == (0, f"{READER} (local) at {server.url}: no roles")


def test_a_run_file_that_others_may_write_is_not_believed(zonectl: Zonectl, tmp_path: Path) -> None:
    directory = tmp_path / "zonekeeper-data"
    directory.mkdir()
    path = directory / "run.json"
    path.write_text(json.dumps({"url": "http://127.0.0.1:1"}))
    assert "no Zonekeeper answers at http://127.0.0.1:1" in zonectl("whoami")[2]
    for place, mode in ((path, 0o666), (directory, 0o777)):
        place.chmod(mode)
        code, _, errors = zonectl("whoami")
        assert (code, f"{place.relative_to(tmp_path)} is not yours alone" in errors) == (3, True)
        place.chmod(0o700)
