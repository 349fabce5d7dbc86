"""Commands that are forked from a process which has imported them are those that a shell starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests.fixtures.warm_zonectl import warm_zonectl

AS_A_TERMINAL = {"COLUMNS": "160"}


@pytest.mark.parametrize("arguments", [("nonsense",), ("kv", "get", "--help"), ("check", "-e", "CREATE ZON z")])
def test_a_command_answers_as_from_a_shell(arguments: tuple[str, ...]) -> None:
    environment = {**os.environ, **AS_A_TERMINAL}
    cold = subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    warm = warm_zonectl().run(arguments, environment, 120.0)
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_a_command_that_takes_too_long_is_ended_and_the_next_one_runs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(subprocess.TimeoutExpired):
            warm_zonectl().run(("kv", "get", "z", "k", "--url", url), os.environ, 0.5)
    assert warm_zonectl().run(("nonsense",), os.environ, 120.0).returncode == 64
