"""``zonectl audit``: changes, with their authors, times, reasons and origins."""

from __future__ import annotations

from typing import Annotated

from app.cli.connection import RowsApi
from app.cli.options import option
from app.cli.problems import JsonObject

DETAILS_SHOWN = 60


def audit(
    api: RowsApi,
    subject: Annotated[
        str, option("--of", "Only changes of this zone, table, node or operation.", "NAME")
    ] = "",
    action: Annotated[str, option("--action", "Only this action, for example 'ALTER ZONE'.", "ACTION")] = "",
    by: Annotated[str, option("--by", "Only changes made under this name.", "NAME")] = "",
    count: Annotated[int, option("--count", "Maximum number of entries, newest first.", min=1, max=1000)] = 20,
) -> None:
    """List changes, newest first: who made them, when, from where, and why.

    Changes made with SQL, REST and zonectl are recorded: of zones and tables,
    drains, limits, pauses, cancels, reverses, recoveries and adoptions. A name
    that no authenticating proxy vouches for is marked "(unverified)".

    \b
    Examples:
      zonectl audit
      zonectl audit --of orders --count 5
      zonectl audit --action "drain node" --format json | jq -r '.[].by'
    """
    filters = {"subject": subject, "action": action, "by": by}
    with api.client() as client:
        stated = {name: text for name, text in filters.items() if text}
        records = client.ask("GET", "audit", query={"page_size": count, **stated})
    api.show(
        records["records"],
        {
            "at": "at",
            "by": lambda entry: (entry["by"] or "?") + ("" if entry["verified"] else " (unverified)"),
            "from": lambda entry: f"{entry['channel']} {entry['address']}".strip(),
            "action": "action",
            "target": "subject",
            "version": _version,
            "reason or details": lambda entry: entry["reason"] or _shortened(entry["details"]),
        },
    )


def _version(entry: JsonObject) -> str:
    before, after = entry["catalog_version_before"], entry["catalog_version_after"]
    return str(after) if before == after else f"{before} -> {after}"


def _shortened(details: str) -> str:
    return " ".join(details.split())[:DETAILS_SHOWN]
