"""Commands to text: the canonical form, which reads back as the same command.

The new form is canonical. A command whose values only the old form can write (a negative number, a literal of
the wrong type: commands that the catalog will refuse) is written in the old form.
"""

from __future__ import annotations

import re

from catalog.core.messages import (
    AlterZone,
    Command,
    CreateZone,
    Keyword,
    OptionClause,
    OptionValue,
    OtherLiteral,
    ZoneName,
    ZoneOption,
)
from parser.options import KEYS
from parser.rules import RESERVED

_PLAIN_NAME = re.compile("[A-Z_][A-Z0-9_]*")
_OLD_KEYS = {option: key for key, option in KEYS.items()}
_NUMBERS = frozenset(
    {
        ZoneOption.PARTITIONS,
        ZoneOption.REPLICAS,
        ZoneOption.QUORUM_SIZE,
        ZoneOption.AUTO_SCALE_UP,
        ZoneOption.AUTO_SCALE_DOWN,
    }
)


def render(command: Command) -> str:
    """One statement, no semicolon. Invariant: ``parse_ddl(render(c)) == (c,)`` for every parsed ``c``."""
    name = render_name(command.name)
    if isinstance(command, CreateZone):
        exists = "IF NOT EXISTS " if command.if_not_exists else ""
        return f"CREATE ZONE {exists}{name}{_create_options(command.options)}"
    exists = "IF EXISTS " if command.if_exists else ""
    if isinstance(command, AlterZone):
        return f"ALTER ZONE {exists}{name} SET {_alter_options(command.options)}"
    return f"DROP ZONE {exists}{name}"


def render_name(name: ZoneName) -> str:
    """Unquoted where that means the same."""
    if _PLAIN_NAME.fullmatch(name.text) and name.text not in RESERVED:
        return name.text
    return '"' + name.text.replace('"', '""') + '"'


def _create_options(options: tuple[OptionClause, ...]) -> str:
    if not all(_fits_new_form(clause) for clause in options):
        return " WITH " + _old_form(options)
    inner = [clause for clause in options if clause.option is not ZoneOption.STORAGE_PROFILES]
    profiles = [clause for clause in options if clause.option is ZoneOption.STORAGE_PROFILES]
    text = f" ({', '.join(_new_form(clause) for clause in inner)})" if inner else ""
    return text + "".join(f" {_new_form(clause)}" for clause in profiles)


def _alter_options(options: tuple[OptionClause, ...]) -> str:
    fits = all(_fits_new_form(clause) and not isinstance(clause.value, tuple) for clause in options)
    return f"({', '.join(_new_form(clause) for clause in options)})" if fits else _old_form(options)


def _fits_new_form(clause: OptionClause) -> bool:
    value = clause.value
    if clause.option is ZoneOption.STORAGE_PROFILES:
        return isinstance(value, tuple) and all(_is_trimmed(name.text) for name in value)
    if clause.option in _NUMBERS:
        is_all = value is Keyword.ALL and clause.option is ZoneOption.REPLICAS
        return is_all or (isinstance(value, int) and value >= 0)
    return isinstance(value, str) and _is_trimmed(value)


def _is_trimmed(text: str) -> bool:
    return text != "" and text == text.strip()


def _new_form(clause: OptionClause) -> str:
    value = clause.value
    if isinstance(value, tuple):
        return f"{clause.option.value} [{', '.join(_quoted(name.text) for name in value)}]"
    return f"{clause.option.value} {_literal(value)}"


def _old_form(options: tuple[OptionClause, ...]) -> str:
    return ", ".join(f"{_OLD_KEYS[clause.option]}={_literal(clause.value)}" for clause in options)


def _literal(value: OptionValue) -> str:
    if isinstance(value, Keyword):
        return value.value
    if isinstance(value, OtherLiteral):
        return value.text
    if isinstance(value, tuple):
        return _quoted(",".join(name.text for name in value))
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
