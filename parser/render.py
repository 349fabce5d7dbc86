"""Commands to text: the canonical form, which reads back as the same command.

The new form is canonical. A command whose values only the old form can write (a negative number, a literal of
the wrong type: commands that the catalog will refuse) is written in the old form.

Commands on users, roles and grants to text, and names as every command writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from catalog.core.messages import (
    AddColumns,
    AlterUser,
    AlterZone,
    ChangeGrants,
    ChangeMembers,
    ColumnClause,
    ColumnType,
    Command,
    CreateRole,
    CreateTable,
    CreateUser,
    CreateZone,
    DropColumns,
    DropRole,
    DropTable,
    DropUser,
    DropZone,
    GrantTarget,
    Keyword,
    Name,
    OptionClause,
    OptionValue,
    OtherLiteral,
    PrincipalCommand,
    ProfileName,
    RenameZone,
    UnknownOption,
    UserCommand,
    ZoneOption,
)
from catalog.core.table import Column, Table, type_text
from catalog.core.zone import Zone
from catalog.core.zone_options import ROWS, ZONE_OPTIONS, OptionKind, value_of
from parser.hidden_secrets import HIDDEN
from parser.rules import RESERVED
from parser.text import quoted

_PLAIN_NAME = re.compile("[A-Z_][A-Z0-9_]*")
_PLAIN_PRINCIPAL = re.compile("[a-z_][a-z0-9_]*")


def render_name(name: Name) -> str:
    """Unquoted where that means the same, and where a name needs quotes but was written without."""
    if name.malformed or (_PLAIN_NAME.fullmatch(name.text) and name.text not in RESERVED):
        return name.text
    return _in_quotes(name.text)


def render_principal_command(command: PrincipalCommand) -> str:
    """One statement; ``'********'`` stands for a password."""
    if isinstance(command, ChangeGrants):
        privileges = ", ".join(map(_privilege, command.privileges))
        return _change(f"{privileges} ON {_target(command.target)}", command.grantees, command.is_granted)
    if isinstance(command, ChangeMembers):
        return _change(_listed(command.roles), command.users, command.is_granted)
    return " ".join((*_verb(command), render_principal(command.name), *_options(command)))


def render_principal(name: Name) -> str:
    """The name of a user or role, which has no case."""
    is_plain = _PLAIN_PRINCIPAL.fullmatch(name.text) and name.text.upper() not in RESERVED
    return name.text if is_plain else _in_quotes(name.text)


def _verb(command: UserCommand) -> Iterator[str]:
    words = {
        CreateUser: "CREATE USER",
        AlterUser: "ALTER USER",
        DropUser: "DROP USER",
        CreateRole: "CREATE ROLE",
        DropRole: "DROP ROLE",
    }
    yield words[type(command)]
    if isinstance(command, CreateUser | CreateRole):
        if command.if_not_exists:
            yield "IF NOT EXISTS"
    elif command.if_exists:
        yield "IF EXISTS"


def _options(command: UserCommand) -> Iterator[str]:
    if not isinstance(command, CreateUser | AlterUser):
        return
    if command.password is not None:
        yield f"PASSWORD {HIDDEN}"
    if isinstance(command, AlterUser) and command.drops_password:
        yield "PASSWORD NULL"
    if command.is_active is False:
        yield "NOLOGIN"
    if command.is_active and isinstance(command, AlterUser):
        yield "LOGIN"


def _change(what: str, names: tuple[Name, ...], is_granted: bool) -> str:
    return f"GRANT {what} TO {_listed(names)}" if is_granted else f"REVOKE {what} FROM {_listed(names)}"


def _privilege(name: Name) -> str:
    """Render a privilege, also one that does not exist; the words of those that do stand alone, reserved or
    not."""
    return name.text if _PLAIN_NAME.fullmatch(name.text) else _in_quotes(name.text)


def _target(target: GrantTarget) -> str:
    if target.is_system:
        return "SYSTEM"
    return "ALL ZONES" if target.zone is None else f"ZONE {render_name(target.zone)}"


def _listed(names: Iterable[Name]) -> str:
    return ", ".join(map(render_principal, names))


def _in_quotes(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def render(command: Command) -> str:
    """One statement, no semicolon. Invariant: ``parse_ddl(render(c)) == (c,)`` for every parsed ``c``. A
    password is not written out."""
    if isinstance(command, PrincipalCommand):
        return render_principal_command(command)
    name = render_name(command.name)
    if isinstance(command, CreateZone | CreateTable):
        name = f"IF NOT EXISTS {name}" if command.if_not_exists else name
    elif command.if_exists:
        name = f"IF EXISTS {name}"
    if isinstance(command, CreateZone):
        return f"CREATE ZONE {name}{_create_options(command.options)}"
    if isinstance(command, AlterZone):
        return f"ALTER ZONE {name} SET {_alter_options(command.options)}"
    if isinstance(command, RenameZone):
        return f"ALTER ZONE {name} RENAME TO {render_name(command.new_name)}"
    if isinstance(command, DropZone):
        return f"DROP ZONE {name}"
    if isinstance(command, CreateTable):
        return f"CREATE TABLE {name} {_table(command)}"
    if isinstance(command, AddColumns):
        return f"ALTER TABLE {name} ADD COLUMN ({', '.join(map(_column, command.columns))})"
    if isinstance(command, DropColumns):
        return f"ALTER TABLE {name} DROP COLUMN ({', '.join(map(render_name, command.columns))})"
    if isinstance(command, DropTable):
        return f"DROP TABLE {name}"
    return f"ALTER ZONE {name} SET DEFAULT"


def render_zone(zone: Zone) -> str:
    """SHOW CREATE ZONE: the statement that makes a zone like this one, with every option spelt out.

    A derived quorum is left out: it would become an explicit one; so is the controllers' strategy.
    """
    values = {row.option: value_of(zone, row) for row in ZONE_OPTIONS}
    clauses = tuple(OptionClause(option, value) for option, value in values.items() if value is not None)
    return render(CreateZone(Name(zone.name), clauses))


def render_table(table: Table, zone_name: str) -> str:
    """The statement that makes a table like this one, its zone named."""
    key, colocation = (tuple(map(Name, names)) for names in (table.primary_key, table.colocation))
    profile, columns = ProfileName(table.storage_profile), clauses_of(table.columns)
    return render(CreateTable(Name(table.name), columns, (key,), colocation, Name(zone_name), profile))


def clauses_of(columns: Iterable[Column]) -> tuple[ColumnClause, ...]:
    """Clauses that declare columns like these; the name of a type is its whole text."""
    return tuple(
        ColumnClause(Name(column.name), ColumnType(column.type), column.nullable, column.default)
        for column in columns
    )


def _table(command: CreateTable) -> str:
    parts = [_column(column) for column in command.columns]
    parts += [f"PRIMARY KEY {_name_list(key)}" for key in command.primary_keys]
    text = f"({', '.join(parts)})"
    if command.colocation is not None:
        text += f" COLOCATE BY {_name_list(command.colocation)}"
    if command.zone is not None:
        text += f" ZONE {render_name(command.zone)}"
    if command.profile is not None:
        text += f" STORAGE PROFILE {quoted(command.profile.text)}"
    return text


def _column(column: ColumnClause) -> str:
    text = f"{render_name(column.name)} {type_text(column.type.name, column.type.arguments)}"
    text += "" if column.nullable else " NOT NULL"
    return text if column.default is None else f"{text} DEFAULT {column.default}"


def _name_list(names: tuple[Name, ...] | list[Name]) -> str:
    return f"({', '.join(map(render_name, names))})"


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
    if isinstance(clause.option, UnknownOption):
        return False
    if clause.option is ZoneOption.STORAGE_PROFILES:
        return isinstance(value, tuple) and all(_is_trimmed(name.text) for name in value)
    row = ROWS[clause.option]
    if row.kind is OptionKind.NUMBER:
        is_word = bool(row.word) and value == row.word_value
        return is_word or (isinstance(value, int) and value >= 0)
    return isinstance(value, str) and _is_trimmed(value)


def _is_trimmed(text: str) -> bool:
    return text != "" and text == text.strip()


def _new_form(clause: OptionClause) -> str:
    value = clause.value
    if isinstance(value, tuple):
        return f"{clause.option.value} [{', '.join(quoted(name.text) for name in value)}]"
    row = None if isinstance(clause.option, UnknownOption) else ROWS[clause.option]
    if row is not None and row.word and value == row.word_value:
        return f"{clause.option.value} {row.word}"
    return f"{clause.option.value} {_literal(value)}"


def _old_form(options: tuple[OptionClause, ...]) -> str:
    return ", ".join(f"{_key(clause.option)}={_literal(clause.value)}" for clause in options)


def _key(option: ZoneOption | UnknownOption) -> str:
    if isinstance(option, UnknownOption):
        # Quoted, because nothing is known of an unknown key; keys are upper-cased with quotes too.
        return _in_quotes(option.value)
    return ROWS[option].key


def _literal(value: OptionValue) -> str:
    if isinstance(value, Keyword):
        return value.value
    if isinstance(value, OtherLiteral):
        return value.text
    if isinstance(value, tuple):
        return quoted(",".join(name.text for name in value))
    return quoted(value) if isinstance(value, str) else str(value)
