"""Programs that import the client by its former name, for one release."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_it_is_the_distribution_and_warns() -> None:
    """Modules that programs have named lead to the distribution as well."""
    done = run(
        "from app.client.blocking import BlockingZoneClient\n"
        "from app.client.zone_client import Mode, ZoneClient\n"
        "from app.client.errors import ZoneNotFoundError\n"
        "import app.client, zonekeeper_client\n"
        "assert app.client.ZoneClient is ZoneClient is zonekeeper_client.ZoneClient\n"
        "assert issubclass(ZoneNotFoundError, zonekeeper_client.ClientError)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "<string>:1: DeprecationWarning: app.client is zonekeeper_client now" in done.stderr
    assert done.stderr.count("Warning") == 1


def test_without_the_distribution_it_says_what_to_install() -> None:
    """-S: what is installed editable is not there; the locked packages are."""
    program = f"import sys; sys.path += {[str(ROOT), sysconfig.get_path('purelib')]}\nimport app.client"
    done = run(program, "-I", "-S")
    assert done.returncode == 1
    expected = "ModuleNotFoundError: app.client is zonekeeper_client now: pip install zonekeeper-client, or"
    assert expected in done.stderr
