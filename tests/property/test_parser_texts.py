"""Commands survive being written down, and no text at all breaks the parser."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.core.errors import StatementError
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
    ProfileName,
    RenameZone,
    Secret,
    SetDefaultZone,
    UnknownOption,
    ZoneOption,
)
from parser.render import render
from parser.rules import NUMBER_MAX
from parser.to_command import parse_ddl, parse_each

# Half of a surrogate pair and NUL are refused in any text; quotes, blanks and keywords are what matters.
TEXT = st.text(
    st.one_of(st.sampled_from("aZ_9 '\"`;,-/*[](){}#$\n\t\\"), st.characters(exclude_categories=["Cs"]))
)
STORABLE = TEXT.map(lambda text: text.replace("\x00", "?"))
NAMES = st.one_of(
    st.sampled_from(["Z", "DEFAULT", "ALL", "default", "ß", "ZONE"]).map(Name),
    STORABLE.filter(lambda text: text != "").map(Name),
    st.just(Name("Z$1", malformed=True)),
)
PLAIN = STORABLE.filter(lambda text: text != "" and text == text.strip())
COUNTS = st.one_of(st.integers(0, 10), st.integers(0, NUMBER_MAX))
NUMBERED = [ZoneOption.PARTITIONS, ZoneOption.REPLICAS, ZoneOption.QUORUM_SIZE, ZoneOption.AUTO_SCALE_UP]
NAMED = [
    ZoneOption.NODES_FILTER,
    ZoneOption.CONSISTENCY_MODE,
    ZoneOption.DISTRIBUTION_ALGORITHM,
    ZoneOption.REBALANCE_STRATEGY,
    ZoneOption.PARTITION_LOSS_POLICY,
]


def profiles(names: st.SearchStrategy[str]) -> st.SearchStrategy[OptionClause]:
    return st.lists(names, min_size=1, max_size=3, unique=True).map(
        lambda texts: OptionClause(ZoneOption.STORAGE_PROFILES, tuple(ProfileName(text) for text in texts))
    )


def clauses(
    options: Sequence[ZoneOption | UnknownOption], values: st.SearchStrategy[OptionValue]
) -> st.SearchStrategy[OptionClause]:
    return st.builds(OptionClause, st.sampled_from(options), values)


NEW_CLAUSE = st.one_of(
    clauses(NUMBERED, COUNTS),
    st.just(OptionClause(ZoneOption.REPLICAS, Keyword.ALL)),
    clauses(NAMED, PLAIN),
)
OLD_CLAUSE = clauses(
    [*NUMBERED, *NAMED, UnknownOption("BACKUPS"), UnknownOption('A "b'.upper())],
    st.one_of(
        st.integers(-NUMBER_MAX, NUMBER_MAX),
        STORABLE,
        st.just(Keyword.ALL),
        st.sampled_from([OtherLiteral("2.5"), OtherLiteral("TRUE"), OtherLiteral("INTERVAL '5' SECOND")]),
    ),
)
# In this form nothing between commas is no profile.
OLD_PROFILES = profiles(STORABLE.map(lambda text: text.replace(",", "").strip()).filter(bool))


@st.composite
def creates(draw: st.DrawFn) -> CreateZone:
    old = draw(st.booleans())
    options = draw(st.lists(OLD_CLAUSE if old else NEW_CLAUSE, max_size=4))
    options += draw(st.lists(OLD_PROFILES if old else profiles(PLAIN), max_size=1))
    return CreateZone(draw(NAMES), tuple(options), draw(st.booleans()))


@st.composite
def alters(draw: st.DrawFn) -> AlterZone:
    old = draw(st.booleans())
    options = draw(st.lists(OLD_CLAUSE if old else NEW_CLAUSE, min_size=1, max_size=4))
    options += draw(st.lists(OLD_PROFILES, max_size=1)) if old else []
    return AlterZone(draw(NAMES), tuple(options), draw(st.booleans()))


TYPES = st.one_of(
    st.sampled_from(["INTEGER", "UUID", "TIMESTAMP WITH LOCAL TIME ZONE", "NO_SUCH_TYPE"]).map(ColumnType),
    st.builds(
        ColumnType,
        st.sampled_from(["DECIMAL", "VARCHAR", "TIME", "TIMESTAMP WITH LOCAL TIME ZONE"]),
        st.lists(COUNTS, min_size=1, max_size=3).map(tuple),
    ),
)
DEFAULTS = st.one_of(
    st.none(),
    st.sampled_from(["0", "-2.5e3", "NULL", "TRUE", "CURRENT_TIMESTAMP", "DATE '2026-01-01'"]),
    STORABLE.map(lambda text: "'" + text.replace("'", "''") + "'"),
)
COLUMNS = st.lists(st.builds(ColumnClause, NAMES, TYPES, st.booleans(), DEFAULTS), min_size=1, max_size=3)
NAME_LISTS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
CREATE_TABLES = st.builds(
    CreateTable,
    NAMES,
    COLUMNS.map(tuple),
    st.lists(NAME_LISTS, max_size=2).map(tuple),
    st.none() | NAME_LISTS,
    st.none() | NAMES,
    st.none() | STORABLE.map(lambda text: ProfileName(text.strip())),
    st.booleans(),
)

PRINCIPALS = st.sampled_from(["anna", "all", "anna.b@example.org", "user", "see", "_1", "ß 'a\" b"]).map(Name)
PRINCIPAL_LISTS = st.lists(PRINCIPALS, min_size=1, max_size=3).map(tuple)
SECRETS = st.none() | st.just(Secret("p"))
ACTIVE = st.none() | st.booleans()
PRIVILEGES = st.lists(
    st.sampled_from(["SEE", "ALTER", "CREATE", "ADMIN", "NO_SUCH", "TWO WORDS"]).map(Name),
    min_size=1,
    max_size=3,
).map(tuple)
TARGETS = st.one_of(
    st.just(GrantTarget(is_system=True)), st.just(GrantTarget()), NAMES.map(lambda zone: GrantTarget(zone=zone))
)

COMMANDS: st.SearchStrategy[Command] = st.one_of(
    creates(),
    alters(),
    st.builds(RenameZone, NAMES, NAMES, st.booleans()),
    st.builds(SetDefaultZone, NAMES, st.booleans()),
    st.builds(DropZone, NAMES, st.booleans()),
    CREATE_TABLES,
    st.builds(AddColumns, NAMES, COLUMNS.map(tuple), st.booleans()),
    st.builds(DropColumns, NAMES, NAME_LISTS, st.booleans()),
    st.builds(DropTable, NAMES, st.booleans()),
    st.builds(CreateUser, PRINCIPALS, SECRETS, st.booleans(), st.booleans()),
    st.builds(AlterUser, PRINCIPALS, st.just(Secret("p")), st.just(False), ACTIVE, st.booleans()),
    st.builds(AlterUser, PRINCIPALS, st.none(), st.just(True), ACTIVE, st.booleans()),
    st.builds(AlterUser, PRINCIPALS, st.none(), st.just(False), st.booleans(), st.booleans()),
    st.builds(DropUser, PRINCIPALS, st.booleans()),
    st.builds(CreateRole, PRINCIPALS, st.booleans()),
    st.builds(DropRole, PRINCIPALS, st.booleans()),
    st.builds(ChangeGrants, PRIVILEGES, TARGETS, PRINCIPAL_LISTS, st.booleans()),
    st.builds(ChangeMembers, PRINCIPAL_LISTS, PRINCIPAL_LISTS, st.booleans()),
)

_WORDS = """CREATE ALTER DROP ZONE IF NOT EXISTS SET WITH STORAGE PROFILES PARTITIONS REPLICAS QUORUM SIZE AUTO
SCALE UP OFF ALL NODES FILTER RENAME TO DEFAULT SELECT z "z" 'z' 3 2.5 0x1 -1 1e9 ( ) [ ] , ; = . ? -- // /* */
/*+ ' " N'x' $$ {# #} {% %} \\ ` TABLE PRIMARY KEY COLOCATE BY COLUMN ADD INT NULL ‘ ’ “ ” ‘z’ z$1"""
WORDS = st.sampled_from([*_WORDS.split(), "\n", "\u00a0", "\x00"])


@pytest.mark.row("IEP-030", "IEP-031")
@given(st.lists(COMMANDS, min_size=1, max_size=3))
def test_rendering_reads_back_as_the_same_command(commands: list[Command]) -> None:
    """IEP-030, IEP-031: the canonical text of a command means that command."""
    text = ";\n".join(render(command) for command in commands)
    assert parse_ddl(text) == tuple(commands)
    assert [command for command, _ in parse_each(text)] == commands


@given(st.one_of(st.text(), TEXT, st.lists(WORDS).map(" ".join), st.lists(WORDS).map("".join)))
@example("/*/")
@example("'" * 3)
@example("CREATE ZONE a WITH REPLICAS=1e-99999999999999999999")
def test_any_text_is_a_command_or_a_coded_error(text: str) -> None:
    check_text(text)


@given(COMMANDS, st.integers(0, 200), st.integers(0, 3), st.one_of(TEXT, WORDS))
def test_any_change_of_a_good_text_is_a_command_or_a_coded_error(
    command: Command, at: int, removed: int, inserted: str
) -> None:
    text = render(command)
    check_text(text[:at] + inserted + text[at + removed :])


def check_text(text: str) -> None:
    """Understood, then it reads back; or refused, then with a code and a place within the text."""
    refused: StatementError | None = None
    try:
        commands = parse_ddl(text)
    except StatementError as error:
        refused = error
    if refused:
        assert refused.message
        assert refused.line is not None
        assert refused.column is not None
        lines = text.split("\n")
        assert 1 <= refused.line <= len(lines)
        assert 1 <= refused.column <= len(lines[refused.line - 1]) + 1
    else:
        assert commands
        assert parse_ddl(";".join(render(command) for command in commands)) == commands
        assert all(command.source in text for command in commands)
