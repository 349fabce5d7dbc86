"""Commands survive being written down, and no text at all breaks the parser."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from catalog.core.errors import StatementError
from catalog.core.messages import (
    AlterZone,
    Command,
    CreateZone,
    DropZone,
    Keyword,
    OptionClause,
    OptionValue,
    OtherLiteral,
    ProfileName,
    ZoneName,
    ZoneOption,
)
from parser.options import NUMBER_MAX
from parser.render import render
from parser.to_command import parse_ddl

# Half of a surrogate pair and NUL are refused in any text; quotes, blanks and keywords are what matters.
TEXT = st.text(
    st.one_of(st.sampled_from("aZ_9 '\"`;,-/*[](){}#$\n\t\\"), st.characters(exclude_categories=["Cs"]))
)
STORABLE = TEXT.map(lambda text: text.replace("\x00", "?"))
NAMES = st.one_of(
    st.sampled_from(["Z", "DEFAULT", "ALL", "default", "ß", "ZONE"]), STORABLE.filter(lambda text: text != "")
).map(ZoneName)
PLAIN = STORABLE.filter(lambda text: text != "" and text == text.strip())
COUNTS = st.one_of(st.integers(0, 10), st.integers(0, NUMBER_MAX))
NUMBERED = [ZoneOption.PARTITIONS, ZoneOption.REPLICAS, ZoneOption.QUORUM_SIZE, ZoneOption.AUTO_SCALE_UP]
NAMED = [ZoneOption.NODES_FILTER, ZoneOption.CONSISTENCY_MODE, ZoneOption.DISTRIBUTION_ALGORITHM]


def profiles(names: st.SearchStrategy[str]) -> st.SearchStrategy[OptionClause]:
    return st.lists(names, min_size=1, max_size=3, unique=True).map(
        lambda texts: OptionClause(ZoneOption.STORAGE_PROFILES, tuple(ProfileName(text) for text in texts))
    )


def clauses(
    options: list[ZoneOption], values: st.SearchStrategy[OptionValue]
) -> st.SearchStrategy[OptionClause]:
    return st.builds(OptionClause, st.sampled_from(options), values)


NEW_CLAUSE = st.one_of(
    clauses(NUMBERED, COUNTS),
    st.just(OptionClause(ZoneOption.REPLICAS, Keyword.ALL)),
    clauses(NAMED, PLAIN),
)
OLD_CLAUSE = clauses(
    [*NUMBERED, *NAMED],
    st.one_of(
        st.integers(-NUMBER_MAX, NUMBER_MAX),
        STORABLE,
        st.just(Keyword.ALL),
        st.sampled_from([OtherLiteral("2.5"), OtherLiteral("TRUE"), OtherLiteral("INTERVAL '5' SECOND")]),
    ),
)
OLD_PROFILES = profiles(STORABLE.map(lambda text: text.replace(",", "").strip()))


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


COMMANDS: st.SearchStrategy[Command] = st.one_of(creates(), alters(), st.builds(DropZone, NAMES, st.booleans()))

_WORDS = """CREATE ALTER DROP ZONE IF NOT EXISTS SET WITH STORAGE PROFILES PARTITIONS REPLICAS QUORUM SIZE AUTO
SCALE UP OFF ALL NODES FILTER RENAME TO DEFAULT SELECT z "z" 'z' 3 2.5 0x1 -1 1e9 ( ) [ ] , ; = . ? -- // /* */
/*+ ' " N'x' $$ {# #} {% %} \\ `"""
WORDS = st.sampled_from([*_WORDS.split(), "\n", "\u00a0", "\x00"])


@given(st.lists(COMMANDS, min_size=1, max_size=3))
def test_rendering_reads_back_as_the_same_command(commands: list[Command]) -> None:
    """IEP-030, IEP-031: the canonical text of a command means that command."""
    text = ";\n".join(render(command) for command in commands)
    assert parse_ddl(text) == tuple(commands)


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
