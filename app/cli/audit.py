"""``zonectl audit``: who changed what, when, why and from where."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.exits import ExitCode
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, FormatOption, OutputFormat, UrlOption

DETAILS_SHOWN = 60


def audit(
    subject: Annotated[
        str,
        typer.Option(
            "--of",
            envvar="ZONEKEEPER_OF",
            metavar="NAME",
            help="Only changes of this zone, table, node or operation.",
        ),
    ] = "",
    action: Annotated[
        str,
        typer.Option("--action", envvar="ZONEKEEPER_ACTION", metavar="WORDS", help="Only this, as ALTER ZONE."),
    ] = "",
    by: Annotated[
        str, typer.Option("--by", envvar="ZONEKEEPER_BY", metavar="NAME", help="Only by this name.")
    ] = "",
    count: Annotated[
        int,
        typer.Option("--count", envvar="ZONEKEEPER_COUNT", min=1, max=1000, help="So many, the newest."),
    ] = 20,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """List who changed what, when, why and from where, the newest first.

    Every change over SQL, REST and this command line is there: of zones and
    tables, drains, limits, pauses, cancels, reverses, recoveries, adoptions. A
    name that no proxy has checked is marked as unverified.

    \b
    Examples:
      zonectl audit
      zonectl audit --of orders --count 5
      zonectl audit --action "drain node" --format json | jq -r '.[].by'
    """
    from app.cli.connection import connected
    from app.cli.output import print_objects, print_rows

    query: dict[str, str | int] = {"page_size": count}
    query |= {name: value for name, value in (("subject", subject), ("action", action), ("by", by)) if value}
    with connected(url, data_dir, form) as client:
        records = client.audit(query)["records"]
    if form is not OutputFormat.TABLE:
        print_objects(records, form)
        return ExitCode.OK
    rows = []
    for each in records:
        before, after = each["catalog_version_before"], each["catalog_version_after"]
        name = each["by"] or "?"
        rows.append(
            (
                each["at"],
                name if each["verified"] else f"{name} (unverified)",
                f"{each['channel']} {each['address']}".strip(),
                each["action"],
                each["subject"],
                str(after) if before == after else f"{before} -> {after}",
                each["reason"] or " ".join(each["details"].split())[:DETAILS_SHOWN],
            )
        )
    print_rows(("at", "by", "from", "did", "of", "version", "why, or what"), rows)
    return ExitCode.OK
