"""The server of an ``up``, as programs of its owner find it: what they believe, and whom they send a token."""

from __future__ import annotations

import json
import os
import re
import ssl
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
import trustme

from app.cli.address import Context, Contexts, find_address, save_contexts
from app.cli.exits import CliError
from app.cli.main import main
from app.configuration.local_server import LocalServer, NotOwnFileError, local_server
from tests.unit.test_client.servers import Network
from zonekeeper_client import BlockingZoneClient, ZoneClient
from zonekeeper_client import local_server as of_programs
from zonekeeper_client.servers import Servers

URL = "https://127.0.0.1:7443"
TOKEN = "zkt_of-the-administrator"
ANSWER = httpx.Response(200, json={"partition": 5, "value": "paid", "revision": 9})


@pytest.fixture(autouse=True)
def nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without logins and settings."""
    monkeypatch.setenv("ZONEKEEPER_CONTEXTS", str(tmp_path / "contexts.json"))
    for name in ("ZONEKEEPER_TOKEN", "ZONEKEEPER_TOKEN_FILE", "ZONEKEEPER_CA_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    authority, token = directory / "authority.pem", directory / "admin.token"
    for path, text in (
        (authority, "-----BEGIN CERTIFICATE-----\n"),
        (token, f"{TOKEN}\n"),
        (
            directory / "run.json",
            json.dumps({"url": URL, "authority": str(authority), "token_file": str(token)}),
        ),
    ):
        path.write_text(text)
        path.chmod(0o600)
    return directory


READERS = ((local_server, NotOwnFileError), (of_programs.local_server, of_programs.NotOwnFileError))
"""That of commands, and that of users' programs; and what they raise."""


def alike(data_dir: Path) -> LocalServer:
    """Local server of a data directory, which both readers must read alike."""
    found, other = (read(data_dir) for read, _ in READERS)
    assert (found.url, found.token, found.authority) == (other.url, other.token, other.authority)
    return LocalServer(found.url, found.token, found.authority)


def test_the_owner_is_logged_in(data_dir: Path) -> None:
    assert alike(data_dir) == LocalServer(URL, TOKEN, "-----BEGIN CERTIFICATE-----\n")
    for url in (None, URL, f"{URL}/"):
        address = find_address(url, data_dir)
        assert (address.token, address.authority) == (TOKEN, "-----BEGIN CERTIFICATE-----\n")
    assert all(TOKEN not in repr(read(data_dir)) for read, _ in READERS)


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:7444", "https://localhost:7443", "http://127.0.0.1:7443", "https://zones.example"],
)
def test_another_origin_gets_no_token(data_dir: Path, url: str) -> None:
    assert find_address(url, data_dir).token == ""


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("run.json", 0o666),
        ("run.json", 0o620),
        (".", 0o777),
        ("admin.token", 0o640),
        ("admin.token", 0o604),
        ("authority.pem", 0o622),
    ],
)
def test_what_others_may_write_or_read_is_not_believed(data_dir: Path, name: str, mode: int) -> None:
    (data_dir / name).chmod(mode)
    for read, error in READERS:
        with pytest.raises(error, match="is not yours alone"):
            read(data_dir)
    with pytest.raises(CliError, match="is not yours alone"):
        find_address(None, data_dir)
    assert find_address(URL, data_dir).token == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["run.json", ".", "admin.token", "authority.pem"])
def test_what_belongs_to_another_user_is_not_believed(data_dir: Path, name: str) -> None:
    os.chown(data_dir / name, 65_534, 65_534)
    for read, error in READERS:
        with pytest.raises(error):
            read(data_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_directory_of_another_user_says_so(data_dir: Path) -> None:
    os.seteuid(65_534)
    try:
        with pytest.raises(
            CliError, match=r"run\.json belongs to another user; log in with `zonectl login URL`"
        ):
            find_address(None, data_dir)
    finally:
        os.seteuid(0)


def test_a_run_file_without_tls_carries_no_token(data_dir: Path) -> None:
    body = json.loads((data_dir / "run.json").read_text())
    (data_dir / "run.json").write_text(json.dumps({**body, "url": "http://127.0.0.1:7400"}))
    assert alike(data_dir) == LocalServer("http://127.0.0.1:7400")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url": 7}', '{"url": "https://x", "token_file": 1}'])
def test_what_is_no_run_file_names_the_file(data_dir: Path, text: str) -> None:
    (data_dir / "run.json").write_text(text)
    with pytest.raises(CliError, match=r"run\.json"):
        find_address(None, data_dir)


def test_a_login_goes_before_the_administrator(data_dir: Path) -> None:
    save_contexts(Contexts().with_one(Context(URL, "anna", "zkt_of-anna", "id", "2027-01-01", "PEM of anna")))
    for url in (None, URL):
        address = find_address(url, data_dir)
        assert (address.token, address.authority) == ("zkt_of-anna", "PEM of anna")


def test_the_environment_gives_its_token_to_the_url_that_it_names_alone(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZONEKEEPER_TOKEN", "zkt_of-production")
    assert find_address(None, data_dir).token == TOKEN
    assert find_address(URL, data_dir).token == "zkt_of-production"


def test_without_a_token_the_server_is_checked_all_the_same(data_dir: Path) -> None:
    (data_dir / "admin.token").unlink()
    assert alike(data_dir) == LocalServer(URL, "", "-----BEGIN CERTIFICATE-----\n")


def test_who_has_taken_the_port_gets_no_token(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The `up` was killed, and its run.json is left. Another user listens there, with a certificate of his."""
    heard: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(f"{self.headers}")
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        trustme.CA().cert_pem.write_to_path(data_dir / "authority.pem")
        body = json.loads((data_dir / "run.json").read_text())
        body["url"] = f"https://127.0.0.1:{server.server_port}"
        (data_dir / "run.json").write_text(json.dumps(body))
        assert main(["whoami", "--data-dir", str(data_dir)]) == 3
        assert "is not trusted: unable to get local issuer" in capsys.readouterr().err
        assert heard == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_the_client_sends_a_token_over_https_only() -> None:
    with pytest.raises(ValueError, match="over HTTPS only"):
        Servers([URL, "http://127.0.0.1:7400"], token=TOKEN)
    authority = trustme.CA().cert_pem.bytes().decode()
    await Servers([URL], token=TOKEN, authority=authority).close()


@pytest.fixture
def signed(data_dir: Path) -> Path:
    """The directory, after a valid certificate was put in place of its authority's."""
    trustme.CA().cert_pem.write_to_path(data_dir / "authority.pem")
    return data_dir


@pytest.mark.parametrize("urls", [[], [URL], [f"{URL}/"]])
async def test_the_client_is_logged_in_as_the_owner(signed: Path, urls: list[str]) -> None:
    network = Network(ANSWER)
    async with ZoneClient(urls, data_dir=signed, transport=network) as client:
        await client.get("ORDERS", "o-17")
    (request,) = network.requests
    assert f"{request.url}".startswith(f"{URL}/api/v1/")
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("urls", "more"),
    [
        (["https://127.0.0.1:7444"], {}),
        (["http://127.0.0.1:7443"], {}),
        ([URL, "https://zones.example"], {}),
        # Whom another authority has signed is another server.
        ([URL], {"authority": trustme.CA().cert_pem.bytes().decode()}),
        ([URL], {"token": "zkt_of-anna"}),
    ],
)
async def test_the_client_sends_the_owners_token_to_no_other(
    signed: Path, urls: list[str], more: dict[str, str]
) -> None:
    network = Network(ANSWER)
    async with ZoneClient(urls, data_dir=signed, transport=network, **more) as client:
        await client.get("ORDERS", "o-17")
    assert TOKEN not in f"{network.requests[0].headers.raw}"


def test_the_client_says_where_it_looked_for_a_server(tmp_path: Path) -> None:
    place = re.escape(str(tmp_path / "data" / "run.json"))
    with pytest.raises(FileNotFoundError, match=rf"no `zonectl up` runs there: start one.*{place}"):
        ZoneClient(data_dir=tmp_path / "data")
    with pytest.raises(FileNotFoundError), BlockingZoneClient(data_dir=tmp_path / "data"):
        pass
