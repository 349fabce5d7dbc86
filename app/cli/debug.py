"""``zonectl debug``: a bundle of what others need to see of an installation to help with it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from app.cli.doctor import ServerOption, find_target
from app.cli.exits import CliError, ExitCode
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, argument, group, option
from app.cli.output import say

app = group("Create a support bundle.")


@app.command("zip")
def zip_command(
    file: Annotated[Path, argument("FILE", "File to write, readable by you alone.")],
    url: ServerOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    force: Annotated[bool, option("--force", "Overwrite FILE.")] = False,
) -> None:
    """Create a support bundle: a zip file that describes an installation.

    Holds what `zonectl doctor` finds, logs, metrics, the views of SYSTEM, settings,
    versions, and the keys of etcd with their sizes. Passwords, tokens and keys are
    replaced, and so are the strings of statements; stored values are not in it. It
    has names of zones, nodes and users: read it before you send it.

    Takes at most 60 s and 100 MB. Parts that do not answer are left out and named in manifest.json.

    \b
    Examples:
      zonectl debug zip zonekeeper.zip
      zonectl debug zip zonekeeper.zip --url https://zones.example:7443 --force
    """
    from app.diagnosis.bundle import collect, write

    begun = time.monotonic()
    if not force and file.exists():
        raise CliError(ExitCode.FAILED, f"{file} exists: choose another file, or add --force")
    if not file.absolute().parent.is_dir():
        raise CliError(ExitCode.FAILED, f"{file.absolute().parent} is not a directory")
    with ExitStack() as stack:
        content = collect(find_target(url, data_dir, stack))
    try:
        write(file, content, overwrites=force)
    except FileExistsError:
        raise CliError(ExitCode.FAILED, f"{file} exists: choose another file, or add --force") from None
    except OSError as error:
        raise CliError(ExitCode.FAILED, f"{file}: {error.strerror or error}") from error
    say(f"{file}: {len(content):,} bytes after {time.monotonic() - begun:.1f} s; read it before you send it")
