"""``zonectl up``: its owner alone is logged in, without doing anything for it; with ``--no-auth`` all are."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import ssl
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.security.local_authority import LocalAuthority
from tests.e2e.installation import without_spark
from tests.fixtures.console_browser import csrf_in
from tests.fixtures.local_access import LocalAccess
from tests.fixtures.other_user import missing, tried
from tests.fixtures.up_process import (
    ENDED_WITHIN_S,
    ROOT,
    SERVED_WITHIN_S,
    ZONECTL,
    Up,
    starting,
    until,
)
from zonekeeper_client import BlockingZoneClient

pytestmark = pytest.mark.timeout(600)
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment without Spark and without any login."""
    folder = tmp_path_factory.mktemp("quiet")
    return {**without_spark(folder), "ZONEKEEPER_CONTEXTS": str(folder / "contexts.json")}


@pytest.fixture(scope="module")
def start(quiet: Mapping[str, str]) -> Iterator[Callable[..., Up]]:
    """One node; all in one directory."""
    with starting() as run:
        yield lambda *options: run("--nodes", "1", *options, environment=quiet)


@pytest.fixture(scope="module")
def up(start: Callable[..., Up]) -> Up:
    """Installation on the data of a release that had no login. Tests stop it and start the next one; each of
    them gets the first."""
    before = start("--no-auth").served()
    until(lambda: before.living() == 1, SERVED_WITHIN_S, before.printed)
    created = before.ctl("sql", "-e", "CREATE ZONE kept (PARTITIONS 1)", "--wait", "--timeout", "90")
    assert created.returncode == 0, created.stderr
    assert before.ctl("whoami").returncode == 1
    before.stop()
    state = before.directory / "state.json"
    state.write_text(json.dumps({name: value for name, value in state_of(before).items() if name != "login"}))
    after = start().served()
    until(lambda: after.living() == 1, SERVED_WITHIN_S, after.printed)
    return after


def state_of(up: Up) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((up.directory / "state.json").read_text())
    return body


def plain_url(up: Up) -> str:
    return f"http://127.0.0.1:{state_of(up)['api']}"


def test_the_owner_of_earlier_data_is_logged_in(up: Up) -> None:
    url = up.run_file()["url"]
    assert re.fullmatch(r"https://127\.0\.0\.1:\d+", url)
    assert f"API at {url} after" in up.printed()
    assert "users have to log in from now on; you do not" in up.printed()
    shown = up.ctl("whoami")
    assert shown.stdout.splitlines()[0] == f"admin (local) at {url}: administrator", shown.stderr
    assert up.ctl("whoami", "--url", url).stdout == shown.stdout
    put = up.ctl("kv", "put", "kept", "key", "value")
    assert put.returncode == 0, put.stderr
    assert "NOT PROTECTED" not in up.ctl("status").stdout
    with BlockingZoneClient(data_dir=up.directory) as client:
        value = client.get("kept", "key")
        assert value is not None
        assert value.value == "value"


def test_the_token_is_in_one_file_of_the_owner_and_nowhere_else(up: Up) -> None:
    file = up.directory / "admin.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secret = file.read_text().strip()
    for path in up.directory.rglob("*"):
        if path.is_file() and path != file:
            with suppress(OSError):
                assert secret.encode() not in path.read_bytes(), path
    assert secret not in up.printed()
    for process in up.tree():
        assert secret not in " ".join(process.cmdline())
        assert secret not in process.environ().values()


def test_without_the_token_there_is_nothing(up: Up) -> None:
    access = LocalAccess.of(up.directory)
    for url, verify in ((access.url, access.verify), (plain_url(up), access.verify)):
        with httpx.Client(base_url=url, verify=verify, trust_env=False, timeout=60) as client:
            assert client.get("/livez").json() == {"status": "ok"}
            assert set(client.get("/readyz").json()) == {"ready", "state"}
            answer = client.get("/api/v1/zones")
            assert (answer.status_code, f"zonectl login {access.url}" in answer.text) == (401, True)
    with httpx.Client(base_url=plain_url(up), trust_env=False, timeout=60) as client:
        assert client.get("/api/v1/zones", headers=dict(access.headers)).status_code == 403
    for command in (("status",), ("sql", "-e", "SELECT 1"), ("demo",)):
        refused = up.ctl(*command, "--url", plain_url(up))
        assert (refused.returncode, f"`zonectl login {access.url}`" in refused.stderr) == (1, True), refused
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(access.url, verify=ssl.create_default_context(), trust_env=False)


@pytest.mark.thorough("test_nothing_of_an_installation_is_open_to_others")
@pytest.mark.skipif(bool(missing()), reason=missing() or "as another user")
def test_another_user_of_the_machine_is_not_logged_in(up: Up, tmp_path: Path) -> None:
    stranger = LocalAuthority.of_machines(tmp_path).renewed(datetime.now(UTC))
    ports = [int(url.rpartition(":")[2]) for url in (up.run_file()["url"], plain_url(up))]
    files = [str(path) for path in (up.directory, *up.directory.rglob("*"))]
    assert str(up.directory / "tls" / "api" / "authority-key.pem") in files
    answers, is_open = tried(ports, [], files, [], stranger)
    assert is_open == []
    answered = {answer.text.partition("\r\n")[0] for answer in answers if answer.text.startswith("HTTP/1.1")}
    assert "HTTP/1.1 401 Unauthorized" in answered
    assert [status for status in answered if " 200 " in status or " 201 " in status] == []


def test_a_link_opens_the_console_once(up: Up) -> None:
    access = LocalAccess.of(up.directory)
    link = up.ctl("console-link").stdout.strip()
    address, _, secret = link.partition("#")
    assert address == f"{access.url}/console/login"
    assert "console/login#" not in up.printed()
    for status in (200, 401):
        with httpx.Client(base_url=access.url, verify=access.verify, trust_env=False, timeout=60) as browser:
            assert browser.get("/console/", follow_redirects=False).status_code in (303, 401)
            sent = {"link": secret, "csrf": csrf_in(browser.get("/console/login").text)}
            answer = browser.post("/console/login", json=sent, headers={"Origin": access.url})
            assert answer.status_code == status, answer.text
    for path in (up.directory / "logs").glob("*.log*"):
        assert secret not in path.read_text(), path


@pytest.mark.thorough("test_the_owner_of_earlier_data_is_logged_in starts on data that is there")
def test_after_a_restart_login_stays_required_and_all_is_told(
    up: Up, start: Callable[..., Up], quiet: Mapping[str, str]
) -> None:
    """The token stays valid, what is printed can be pasted, and an administrator who was recovered meanwhile is
    shown."""
    token, url = (up.directory / "admin.token").read_text(), up.run_file()["url"]
    up.stop()
    refused = start("--no-auth")
    assert refused.process.wait(ENDED_WITHIN_S) == 1
    assert "--no-auth is for data directories that are new or were made with it" in refused.printed()
    recover_alice(up, quiet)
    again = start().served()
    assert again.run_file()["url"] == url
    assert "from now on" not in again.printed()
    assert (up.directory / "admin.token").read_text() == token
    until(lambda: again.ctl("whoami").returncode == 0, SERVED_WITHIN_S, again.printed)
    check_pasted(again)
    check_alice(again)
    again.stop()


def check_pasted(again: Up) -> None:
    until(lambda: "Ctrl-C" in again.printed(), SERVED_WITHIN_S, again.printed)
    command = re.search(r"`zonectl (console-link [^`]+)` opens it logged in", again.printed())
    assert command is not None, again.printed()
    link = subprocess.run(
        [*ZONECTL, *shlex.split(command[1])], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert link.stdout.startswith(f"{again.run_file()['url']}/console/login#"), link.stderr
    (health,) = re.findall(r"health checks without login at (\S+)", again.printed())
    assert httpx.get(health, trust_env=False, timeout=60).json() == {"status": "ok"}
    checked = [*ZONECTL, "health", "server", "--address", urlsplit(health).netloc]
    until(lambda: subprocess.run(checked, cwd=ROOT, check=False).returncode == 0, SERVED_WITHIN_S)


def recover_alice(up: Up, quiet: Mapping[str, str]) -> None:
    recover = [*ZONECTL, "admin", "recover", "--user", "alice", "--password-stdin"]
    recovered = subprocess.run(
        [*recover, "--data-dir", str(up.directory)],
        input=f"{PASSWORD}\n",
        cwd=ROOT,
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        check=False,
    )
    assert recovered.stdout == "alice is an administrator with a new password, and a new user\n", (
        recovered.stderr
    )


def check_alice(again: Up) -> None:
    line = "RECOVERED: alice was made an administrator by `zonectl admin recover`"
    until(lambda: line in again.ctl("status").stdout, SERVED_WITHIN_S, again.printed)
    access = LocalAccess.of(again.directory)
    answer = httpx.get(
        f"{access.url}/api/v1/whoami",
        verify=access.verify,
        auth=("alice", PASSWORD),
        trust_env=False,
        timeout=60,
    )
    assert answer.json()["roles"] == ["administrator"]


@pytest.mark.thorough("what --no-auth leaves open is asked of one server in test_protections_shown")
@pytest.mark.slow("four installations, one after the other")
def test_nobody_logs_in_where_that_was_said_until_login_is_required(quiet: Mapping[str, str]) -> None:
    with starting() as run:
        for options in (("--no-auth",), ()):
            open_to_all = run("--nodes", "1", *options, environment=quiet).served()
            assert "warning: nobody has to log in (--no-auth)" in open_to_all.printed()
            assert open_to_all.run_file()["url"] == plain_url(open_to_all)
            zones = f"{plain_url(open_to_all)}/api/v1/zones"
            assert httpx.get(zones, trust_env=False, timeout=60).status_code == 200
            forwarded = {"X-Forwarded-For": "192.0.2.7"}
            assert httpx.get(zones, headers=forwarded, trust_env=False, timeout=60).status_code == 403
            open_to_all.stop()
        run("--nodes", "1", "--auth", environment=quiet).served().stop()
        closed = run("--nodes", "1", environment=quiet).served()
        assert closed.run_file()["url"].startswith("https://")
        assert httpx.get(f"{plain_url(closed)}/api/v1/zones", trust_env=False, timeout=60).status_code == 401


def test_a_terminal_is_shown_a_link(up: Up, quiet: Mapping[str, str]) -> None:
    up.stop()
    ours, theirs = pty.openpty()
    shown = io.StringIO()

    def read() -> None:
        with suppress(OSError):
            while piece := os.read(ours, 4_096):
                shown.write(piece.decode())

    process = subprocess.Popen(
        [*ZONECTL, "up", "--nodes", "1", "--data-dir", str(up.directory)],
        cwd=ROOT,
        env={**os.environ, **quiet},
        stdout=theirs,
        stderr=theirs,
    )
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        link = re.compile(
            r"open the console, within 5 minutes and once: https://127\.0\.0\.1:\d+/console/login#zkl_"
        )
        until(lambda: link.search(shown.getvalue()) is not None, SERVED_WITHIN_S, shown.getvalue)
    finally:
        process.terminate()
        process.wait(ENDED_WITHIN_S)
        os.close(theirs)
        reader.join(10)
        os.close(ours)
