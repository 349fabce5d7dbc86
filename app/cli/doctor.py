"""``zonectl doctor``: a check of an installation, with actions against what is wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from app.cli.exits import CliError
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, ObjectFormat, make_settings, option

if TYPE_CHECKING:
    from app.cli.client import ApiClient
    from app.diagnosis.examination import Target

SELECT_S = 10.0
VALUE_CHARACTERS = 60
ServerOption = Annotated[
    str | None,
    option(
        "--url", "URL of the API.", "URL", default="the `zonectl up` of the data directory, else the last login"
    ),
]


def doctor(
    url: ServerOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    form: Annotated[ObjectFormat, option("--format -o", "Output format.")] = ObjectFormat.TABLE,
) -> int:
    """Check an installation, and say how to fix what is wrong.

    Checks the server, etcd, the catalog, nodes and their leases, clocks, disks,
    certificates, ports, limits and versions. For an installation on this machine it needs the data directory;
    for others the URL, and ZONEKEEPER_METASTORE and ZONEKEEPER_CATALOG_URL for checks that the URL alone does
    not allow. It changes nothing, and ends within 15 s, also when the server or etcd hang.

    Exit code 0 when all is well, 1 with warnings, 2 when a check fails.

    \b
    Examples:
      zonectl doctor
      zonectl doctor --url https://zones.example:7443
      zonectl doctor -o json | jq '.checks[] | select(.verdict != "ok")'
    """
    from app.cli.output import print_table, say, say_json
    from app.diagnosis.checks import CheckVerdict, report, worst
    from app.diagnosis.examination import examine

    begun = time.monotonic()
    with ExitStack() as stack:
        found = examine(find_target(url, data_dir, stack))
    verdict = worst(found)
    if form is not ObjectFormat.TABLE:
        body = report(found) | {"seconds": round(time.monotonic() - begun, 1)}
        say_json(body, indent=2 if form is ObjectFormat.JSON else None)
        return verdict
    print_table(
        found,
        {
            "verdict": lambda check: check.verdict.name.lower(),
            "check": lambda check: check.name,
            "value": lambda check: _shortened(check.value),
            "threshold": lambda check: check.threshold,
        },
    )
    for check in (check for check in found if check.action):
        say()
        say(f"{check.verdict.name}: {check.name}: {check.value}")
        say(f"  {check.action}")
    say()
    counts = {each: sum(check.verdict is each for check in found) for each in CheckVerdict}
    say(", ".join(f"{count} {each.name.lower()}" for each, count in counts.items()))
    return verdict


def _shortened(value: str) -> str:
    """Shorten a value for its column; the action for a check is printed with the whole value."""
    return value if len(value) <= VALUE_CHARACTERS else f"{value[: VALUE_CHARACTERS - 1]}…"


def find_target(url: str | None, data_dir: Path, stack: ExitStack) -> Target:
    """Find as much of the installation as can be reached; ``stack`` closes it. Raises UsageError."""
    from app.cli.address import find_address
    from app.cli.client import ApiClient
    from app.configuration.local_server import local_server
    from app.diagnosis.examination import Target
    from app.diagnosis.examined_installation import read_installation

    settings = make_settings(data_dir=data_dir)
    near = ""
    with suppress(OSError, ValueError):
        near = local_server(data_dir).url
    try:
        address = find_address(url, data_dir)
    except CliError as error:
        return Target(read_installation(data_dir, settings), why_no_server=str(error), etcd=settings.etcd)
    installation = read_installation(data_dir, settings, is_elsewhere=bool(url) and address.url != near)
    client = stack.enter_context(ApiClient(address))
    return Target(installation, address.url, client.get_raw, partial(_selected, client), etcd=settings.etcd)


def _selected(client: ApiClient, sql: str) -> Mapping[str, Any]:
    """The outcome of a SELECT. Raises RuntimeError when it is refused, and OSError where a retry may help."""
    from app.cli.problems import RequestError, may_pass

    try:
        (outcome,) = client.execute(sql, timeout_s=SELECT_S)
    except RequestError as error:
        raise (OSError if may_pass(error) else RuntimeError)(str(error)) from error
    return outcome
