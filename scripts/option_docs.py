#!/usr/bin/env python3
"""Write docs/limits.md and docs/zone-options.md from the tables of options; with --check, say whether they are
as the tables have them (exit code 1: they are not)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from catalog.core.engine_options import ENGINE_OPTIONS
from catalog.core.zone_options import ZONE_OPTIONS
from rebalance.core.limit_options import LIMIT_OPTIONS

DOCS = Path(__file__).parents[1] / "docs"
MADE = "<!-- Made by scripts/option_docs.py from {}; change that table, not this file. -->"


def table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """In Markdown."""
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def limits() -> str:
    rows = (
        (
            f"`{option.name}`",
            f"`{option.flag}`",
            option.kind.value,
            option.accepted,
            option.otherwise,
            option.text,
        )
        for option in LIMIT_OPTIONS
    )
    return f"""# Limits of moves
{MADE.format("rebalance/core/limit_options.py")}

Set them with `zonectl rebalance limits`, with `PATCH /api/v1/rebalance/limits`, or on the console's page
Rebalance. The API takes whole numbers, and null for the default; the command line takes numbers, times as
`90s`, `10m`, `1h30m` or `2d`, sizes as `500kB` or `20MiB`, and `none` for the default.

{table(("Limit", "Flag", "Value", "Accepted", "Default", "Meaning"), rows)}
"""


def zone_options() -> str:
    rows = (
        (
            f"`{row.option.value}`",
            f"`{row.key}`",
            row.accepted,
            row.default,
            "yes" if row.alterable else "no",
            row.text,
        )
        for row in ZONE_OPTIONS
    )
    engines = (
        (f"`{row.text}`", f"`{row.only}` only" if row.only else f"all but `{row.never}`")
        for row in ENGINE_OPTIONS
    )
    return f"""# Options of zones
{MADE.format("catalog/core/zone_options.py")}

Give them in `CREATE ZONE name (OPTION value, ...)` and `ALTER ZONE name SET (OPTION value, ...)`, or in the
old form `CREATE ZONE name WITH KEY=value, ...` with the keys of the second column. `DESCRIBE ZONE` and `SHOW
CREATE ZONE` show them.

{table(("Option", "Key of the old form", "Accepted", "Default", "ALTER", "Meaning"), rows)}

Not every engine has all of them (`catalog/core/engine_options.py`). What the engine of a zone's profiles does
not have is refused with ENGINE_UNSUPPORTED as soon as a living node tells which engine that is. A zone that was
there before waits with NO_DATA_NODES, as nodes whose engine lacks an option are not used.

{table(("Option", "Engines"), engines)}
"""


def main(arguments: list[str]) -> int:
    stale = []
    for path, text in ((DOCS / "limits.md", limits()), (DOCS / "zone-options.md", zone_options())):
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(text)
    if stale and "--check" in arguments:
        print(f"docs/{', docs/'.join(stale)}: not as the tables have it; run scripts/option_docs.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
