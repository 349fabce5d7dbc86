"""Logs of a debug zip: their ends, whole lines of them, and so much of all together."""

from __future__ import annotations

import subprocess
from pathlib import Path

from app.diagnosis.bundle import LOG_BYTES_MAX, LOGS_BYTES_MAX, known_secrets, logs, settings
from app.diagnosis.examined_installation import ExaminedInstallation
from rebalance.hosting.child import SYSTEM, environment

LINES = 220_000


def test_long_logs_are_cut_at_a_line_and_all_of_them_at_a_size(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    text = "".join(f"{line:09}\n" for line in range(LINES))
    assert len(text) > LOG_BYTES_MAX
    for number in range(2 * LOGS_BYTES_MAX // LOG_BYTES_MAX):
        (folder / f"n{number}.log").write_text(text)
    found = list(logs(ExaminedInstallation(data_dir=tmp_path)))
    assert LOGS_BYTES_MAX - (1 << 10) < sum(len(each.text) for each in found) <= LOGS_BYTES_MAX
    for each in found:
        assert each.is_cut
        assert each.text.endswith(f"{LINES - 1:09}\n")
        assert {len(line) for line in each.text.splitlines()} == {9}


def test_addresses_that_may_hold_a_secret_are_named_only(tmp_path: Path) -> None:
    set_here = {
        "ZONEKEEPER_ALERT_WEBHOOK_URL": "https://hooks.example/services/T0/B0/canary",
        "ZONEKEEPER_CATALOG_URL": "postgresql://u:canary@h/db",
        "ZONEKEEPER_PORT": "7000",
    }
    (entry,) = settings(ExaminedInstallation(data_dir=tmp_path), set_here)
    assert "canary" not in entry.text
    assert all(name in entry.text for name in (*set_here, "7000"))


def test_a_secret_in_a_file_that_a_running_process_names_is_known(tmp_path: Path) -> None:
    """A relative path is read from the process's own folder."""
    (tmp_path / "password").write_text("canary-relative\n")
    (tmp_path / "secret").write_text("canary-absolute\n")
    named = {"ZONEKEEPER_CATALOG_PASSWORD_FILE": "password", "OTHER_SECRET_FILE": str(tmp_path / "secret")}
    pipe = subprocess.PIPE
    command, env = ["sh", "-c", "echo up; read line"], environment(SYSTEM, named)
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdin=pipe, stdout=pipe) as process:
        # Until it runs it shows no environment.
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        found = known_secrets(ExaminedInstallation(pids={"server": process.pid}), {})
        process.kill()
    assert found == {"canary-relative", "canary-absolute"}
