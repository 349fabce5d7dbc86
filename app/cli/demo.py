"""``zonectl demo``: the main job on a running installation, checked as it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, UrlOption

KEYS = 100
TIMEOUT_S = 300.0


def demo(
    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            envvar="ZONEKEEPER_DEMO_SCRIPT",
            metavar="FILE",
            help="One CREATE ZONE and one ALTER ZONE.",
            show_default="examples/quickstart.sql",
        ),
    ] = None,
    keys: Annotated[
        int, typer.Option("--keys", envvar="ZONEKEEPER_DEMO_KEYS", min=1, help="Keys written before the ALTER.")
    ] = KEYS,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", envvar="ZONEKEEPER_TIMEOUT", min=1, metavar="S", help="For each wait, in seconds."
        ),
    ] = TIMEOUT_S,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Create a zone, write keys, give it more replicas under a continuous writer, read everything back.

    The zone of the script is dropped first, if there is one. Exit code 0 only if
    no put failed, every key reads back as acknowledged, and every partition ended
    with the replicas asked for, all running.

    \b
    Examples:
      zonectl demo
      zonectl demo --url http://127.0.0.1:7400 --keys 1000
    """
    from app.cli.address import find_address
    from app.cli.demo_run import run_demo
    from app.cli.demo_script import read_demo_script

    return run_demo(find_address(url, data_dir), read_demo_script(script), keys=keys, timeout_s=timeout)
