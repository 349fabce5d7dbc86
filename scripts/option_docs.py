#!/usr/bin/env python3
"""Write docs/limits.md, docs/zone-options.md, docs/settings.md, docs/causes.md and docs/views.md from their
tables, and docs/rows.schema.json from the rows of REST."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import typer
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from app.cli.main import app
from app.configuration.settings import Settings
from app.contract.audit import AuditBody
from app.contract.health import AlertBody
from app.contract.nodes import NodeBody
from app.contract.operations import OperationBody
from app.contract.zones import PartitionBody, ZoneBody
from app.sql.statements.results import AnswerColumn
from app.sql.views.system_views import SYSTEM_VIEWS
from catalog.core.zone_options import ENGINE_OPTIONS, ZONE_OPTIONS
from rebalance.core.admission.limit_options import LIMIT_OPTIONS
from rebalance.core.causes.cause import CauseRow, Normality
from rebalance.core.causes.cause_table import CAUSE_GROUPS, RESET_AFTER_S

DOCS = Path(__file__).parents[1] / "docs"
MADE = "<!-- Made by scripts/option_docs.py from {}; change that table, not this file. -->"


def table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
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
{MADE.format("rebalance/core/admission/limit_options.py")}

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

Not every engine has all of them (`catalog/core/zone_options.py`). What the engine of a zone's profiles does
not have is refused with ENGINE_UNSUPPORTED as soon as a living node tells which engine that is. A zone that was
there before waits with NO_DATA_NODES, as nodes whose engine lacks an option are not used.

{table(("Option", "Engines"), engines)}
"""


def parameters(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Options that have an environment variable, each with its command."""
    for parameter in command.params:
        if getattr(parameter, "envvar", None):
            yield name, parameter
    subcommands = getattr(command, "commands", {})
    for word in list(subcommands):
        yield from parameters(subcommands[word], f"{name} {word}".strip())


def accepted(field: FieldInfo) -> str:
    """Kind of a field's values, with their bounds as pydantic has them."""
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(str(choice.value) for choice in kind)
    words: dict[Any, str] = {int: "whole number", float: "number", bool: "true, false", str: "text"}
    parts = [words.get(kind, "path" if "Path" in str(kind) else "text")]
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    bounds = [
        f"{sign} {bound:,}"
        for rule in field.metadata
        for name, sign in signs.items()
        if (bound := getattr(rule, name, None)) is not None
    ]
    return " ".join([*parts, *bounds])


def otherwise(field: FieldInfo) -> str:
    value = field.default.value if isinstance(field.default, Enum) else field.default
    if value is None or value == "":
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def given_by(flags: Mapping[str, Sequence[str]]) -> str:
    """Flags with the commands that have them."""
    return "; ".join(
        f"`{flag}` of {', '.join(commands) if len(commands) < 8 else 'most commands'}"
        for flag, commands in flags.items()
    )


def settings() -> str:
    flags: dict[str, dict[str, list[str]]] = {}
    texts: dict[str, str] = {}
    for command, parameter in parameters(typer.main.get_command(app)):
        flag = next(flag for flag in parameter.opts if flag.startswith("--"))
        flags.setdefault(parameter.envvar, {}).setdefault(flag, []).append(command)
        texts.setdefault(parameter.envvar, parameter.help)
    rows, known = [], set()
    for name, field in Settings.model_fields.items():
        variable = f"ZONEKEEPER_{name.upper()}"
        known.add(variable)
        given = given_by(flags.get(variable, {}))
        rows.append((f"`{variable}`", given, accepted(field), otherwise(field), field.description or ""))
    others = [
        (f"`{variable}`", given_by(own), texts[variable])
        for variable, own in sorted(flags.items())
        if variable not in known
    ]
    return f"""# Settings
{MADE.format("app/configuration/settings.py")}

Of processes: environment variables; what a flag says, where a command has one, comes before its variable.
`zonectl up` sets for its children what it decides itself, and hands on the rest.

{table(("Variable", "Flag", "Value", "Default", "Meaning"), rows)}

Of commands alone:

{table(("Variable", "Flag", "Meaning"), others)}
"""


def normally(row: CauseRow) -> str:
    if row.normality is Normality.ASKED:
        return "as long as it is asked for"
    if row.normality is Normality.NEVER:
        return "never"
    return f"{row.normal_s} s" if row.normal_s < 120 else f"{row.normal_s // 60} min"


def causes() -> str:
    """Each cause is a heading, so that its name is an anchor."""
    parts = [
        f"""# Causes
{MADE.format("rebalance/core/causes/cause.py")}

What zones, partitions, replicas and the installation wait for, as `zonectl status`, the console, the SYSTEM
views and alerts tell it. A cause begins with its name; what follows the colon names nodes, numbers or times. A
stage of a move (CATCHING_UP, JOINT, STABLE) may stand before what it waits for. What is normal for some time
and lasts longer deserves a look, but how long a copy takes depends on its size.
"""
    ]
    for title, group in CAUSE_GROUPS.items():
        parts.append(f"## {title}\n")
        for cause in group:
            row = cause.value
            lines = (
                f"### {cause.name}",
                row.meaning,
                "",
                *([f"- In words: {row.words}"] if row.words else []),
                f"- Normal for: {normally(row)}",
                f"- What to do: {row.action}",
                *(
                    [f"- Last resort, after {RESET_AFTER_S:.0f} s without the nodes: {row.last_resort}"]
                    if row.last_resort
                    else []
                ),
                "",
            )
            parts.append("\n".join(lines))
    return "\n".join(parts)


ROWS = (ZoneBody, NodeBody, OperationBody, PartitionBody, AlertBody, AuditBody)
"""Bodies whose JSON Schema is written out."""


def views() -> str:
    parts = [
        f"""# SYSTEM views
{MADE.format("app/sql/views/system_views.py and app/contract")}

Ask them with SELECT, from `zonectl sql` or a SQL driver; `DESCRIBE SYSTEM.ZONES` says the same of one. Names of
views and columns stay. A column that sums over zones is NULL for who does not see all of them; rows of zones
that you may not see are left out. REST has the same in `/api/v1/zones`, `nodes`, `operations`, `alerts` and
`audit`; `docs/rows.schema.json` is their JSON Schema.
"""
    ]
    for view in SYSTEM_VIEWS:
        rows = ((f"`{column.name}`", column.type.value, meaning(column)) for column in view.columns)
        parts.append(f"## {view.name}\n\n{table(('Column', 'Type', 'Meaning'), rows)}\n")
    return "\n".join(parts)


def meaning(column: AnswerColumn) -> str:
    return "; ".join(filter(None, (column.comment, "sums over zones" if column.sums else "")))


def pages() -> dict[Path, str]:
    """The documents by their path."""
    _, schema = TypeAdapter.json_schemas([(row, "validation", TypeAdapter(row)) for row in ROWS])
    texts = {
        "limits.md": limits(),
        "zone-options.md": zone_options(),
        "settings.md": settings(),
        "causes.md": causes(),
        "views.md": views(),
        "rows.schema.json": json.dumps(schema, indent=1) + "\n",
    }
    return {DOCS / name: text for name, text in texts.items()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
