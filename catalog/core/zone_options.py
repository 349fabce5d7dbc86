"""The options of a zone: one table, and the checks of one statement's options, one by one, as far as they need
neither the catalog nor the nodes.

Made from the rows: both forms of the grammar, the canonical text of a statement, the checks here, the
differences that a plan shows, EXPLAIN, DESCRIBE ZONE and ``docs/zone-options.md``. To add an option, add its
row here, its field in ``Zone`` and in the catalog's tables, and what it means where it decides something.

Order of the checks (the documents' order, kept because the first error is the one that is reported):
``read_options`` = unknown, duplicates, what an ALTER may not touch, types, signs and modes;
``check_ranges`` = static ranges. Profiles and filter come between the two, see ``catalog.core.zone_changes``.

Not every storage engine has every option, and a profile's engine is known only where nodes have it. So a
statement is checked against the nodes that live, and a node whose engine lacks an option of the zone is none of
its data nodes: a zone that was created before its first node came waits, and names the cause.

The language of NODES FILTER (JSONPath) is behind ``NodeFilters``, which the composition hands in
(``catalog.filters``): this folder is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, Protocol

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import (
    AlterZone,
    CreateZone,
    Keyword,
    OptionClause,
    OptionValue,
    OtherLiteral,
    Position,
    ProfileName,
    UnknownOption,
    ZoneOption,
    shortened,
)
from catalog.core.names import check_visible
from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import (
    STORE_ENGINE,
    TIMER_OFF,
    ConsistencyMode,
    DistributionAlgorithm,
    LossPolicy,
    Node,
    Strategy,
    Zone,
    zone_engine,
)

PARTITIONS_MAX = 65_000


class OptionKind(IntEnum):
    """Kind of an option's value, in the order in which values are checked."""

    NUMBER = 0
    TEXT = 1
    NAMES = 2
    CAPITALS = 3  # one of an enum's names, exactly
    CHOICE = 4  # one of an enum's values, in any case


@dataclass(frozen=True, slots=True)
class ZoneOptionRow:
    """``field`` of ``Zone``: the option's name where none is given. ``word`` is
    what the new form takes in place of ``word_number``. ``highest`` None: the bounds follow from other options.
    ``none_word``: the choice that leaves the field None."""

    option: ZoneOption
    kind: OptionKind
    text: str
    default: str
    field: str = ""
    old_key: str = ""
    lowest: int = 0
    highest: int | None = None
    bounds: str = ""
    word: str = ""
    word_number: int = 0
    unit: str = ""
    choices: type[Enum] | None = None
    none_word: str | None = None
    alterable: bool = True

    def __post_init__(self) -> None:
        if not self.field:
            object.__setattr__(self, "field", self.name.lower())

    @property
    def key(self) -> str:
        """Return the key of ``KEY=value``, the old form."""
        return self.old_key or self.name

    @property
    def name(self) -> str:
        """Return the name as DESCRIBE and EXPLAIN write it."""
        return self.option.value.replace(" ", "_")

    @property
    def is_optional(self) -> bool:
        """``Zone`` may have none: a derived quorum, what ``none_word`` leaves to others."""
        return bool(self.none_word) or (self.kind is OptionKind.NUMBER and self.highest is None)

    @property
    def words(self) -> list[str]:
        return self.option.value.split()

    @property
    def word_value(self) -> OptionValue:
        """Return the value of a statement that says ``word``."""
        return Keyword.ALL if self.word == Keyword.ALL.value else self.word_number

    @property
    def grammar(self) -> str:
        """Return the grammar of the new form."""
        value = "n" if self.kind is OptionKind.NUMBER else "'s'"
        return f"{self.option.value} {value}" + (f"|{self.word}" if self.word else "")

    @property
    def choice_names(self) -> list[str]:
        names = [] if self.choices is None else [str(choice.value) for choice in self.choices]
        return [*names, self.none_word] if self.none_word else names

    @property
    def accepted(self) -> str:
        """Return, for documents, what a statement may say."""
        if self.choices is not None:
            return ", ".join(f"`'{name}'`" for name in self.choice_names)
        bounds = self.bounds or f"{self.lowest} to {self.highest}"
        return bounds + (f", or `{self.word}`" if self.word else "")


def _timer(option: ZoneOption, text: str, default: str) -> ZoneOptionRow:
    """Seconds, or OFF."""
    key = f"DATA_NODES_AUTO_ADJUST_SCALE_{option.value.split()[-1]}"
    row = ZoneOptionRow(option, OptionKind.NUMBER, text, default, old_key=key, highest=TIMER_OFF)
    return replace(row, word="OFF", word_number=TIMER_OFF, unit="s")


ZONE_OPTIONS = (
    ZoneOptionRow(
        ZoneOption.PARTITIONS,
        OptionKind.NUMBER,
        "number of partitions, each of which is one replication group",
        "25, or as the server is set",
        lowest=1,
        highest=PARTITIONS_MAX,
        alterable=False,
    ),
    ZoneOptionRow(
        ZoneOption.REPLICAS,
        OptionKind.NUMBER,
        "replicas of each partition; `ALL`: one on every data node",
        "1",
        lowest=1,
        highest=ALL_REPLICAS,
        word="ALL",
        word_number=ALL_REPLICAS,
    ),
    ZoneOptionRow(
        ZoneOption.QUORUM_SIZE,
        OptionKind.NUMBER,
        "replicas that form a majority: with n, 2n - 1 replicas vote and the others are learners",
        "derived from the replicas and the data nodes",
        bounds="bounds that follow from `REPLICAS`",
    ),
    _timer(ZoneOption.AUTO_SCALE_UP, "seconds from a node's join until the zone uses it; `OFF`: never", "0"),
    _timer(
        ZoneOption.AUTO_SCALE_DOWN,
        "seconds from a node's leave until the zone gives it up; `OFF`: never",
        "OFF",
    ),
    ZoneOptionRow(
        ZoneOption.NODES_FILTER,
        OptionKind.TEXT,
        "attributes of the nodes that the zone may use",
        "`'$..*'`, every node",
        old_key="DATA_NODES_FILTER",
        bounds="a JSONPath filter",
    ),
    ZoneOptionRow(
        ZoneOption.DISTRIBUTION_ALGORITHM,
        OptionKind.CHOICE,
        "algorithm that places the replicas",
        "rendezvous",
        field="algorithm",
        choices=DistributionAlgorithm,
        none_word="",
        alterable=False,
    ),
    ZoneOptionRow(
        ZoneOption.CONSISTENCY_MODE,
        OptionKind.CAPITALS,
        "what happens to a partition that has lost its majority: it waits, or is founded anew",
        "STRONG_CONSISTENCY",
        choices=ConsistencyMode,
        alterable=False,
    ),
    ZoneOptionRow(
        ZoneOption.REBALANCE_STRATEGY,
        OptionKind.CHOICE,
        "effect of a new target on a running move: wait for it, replace it, or cancel it",
        "default, as the controllers are set",
        field="strategy",
        choices=Strategy,
        none_word="default",
    ),
    ZoneOptionRow(
        ZoneOption.PARTITION_LOSS_POLICY,
        OptionKind.CHOICE,
        "requests that are allowed while partitions are lost, in zones of the engine `store`",
        "default, READ_WRITE_SAFE",
        field="loss_policy",
        choices=LossPolicy,
        none_word="default",
    ),
    ZoneOptionRow(
        ZoneOption.STORAGE_PROFILES,
        OptionKind.NAMES,
        "storage profiles that a node must have; the first is the default of tables",
        "`['default']`",
        bounds="names, as `STORAGE PROFILES ['p', ...]` behind the other options",
        alterable=False,
    ),
)
"""Options in the order of the grammar."""
ROWS = {row.option: row for row in ZONE_OPTIONS}
OLD_FORM_KEYS = {row.key: row.option for row in ZONE_OPTIONS}
"""The keys of ``KEY=value``, which is also how an unknown one is answered."""


def value_of(zone: Zone, row: ZoneOptionRow) -> OptionValue | None:
    """Return the value as a statement says it; None where it says nothing: a derived quorum, the controllers'
    strategy. Filters are trimmed, which means the same."""
    value = getattr(zone, row.field)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return tuple(map(ProfileName, value))
    if isinstance(value, str):
        return value.strip()
    return row.word_value if row.word and value == row.word_number else value


def option_text(row: ZoneOptionRow, value: OptionValue | None) -> str:
    """A value for a person to read; none: the word for it, or empty."""
    if value is None:
        return row.none_word or ""
    if isinstance(value, tuple):
        return ", ".join(name.text for name in value)
    return row.word if row.word and value == row.word_value else str(value)


Given = Mapping[str, Any]
"""Values of a statement, typed, by the fields of ``Zone``; what it does not say is left out. ``strategy`` None:
the zone is to have none of its own."""


def clause_position(command: CreateZone | AlterZone, *options: ZoneOption) -> Position | None:
    """Return the place of the first of these options that the statement has; else of the zone's name."""
    for option in options:
        for clause in command.options:
            if clause.option is option:
                return clause.position
    return command.name.position


def shown_value(command: CreateZone | AlterZone, option: ZoneOption, value: int) -> str:
    """The option's value as the statement writes it; ``value`` where the statement does not have it."""
    return next((clause.shown for clause in command.options if clause.option is option), str(value))


def read_options(command: CreateZone | AlterZone) -> Given:
    """The statement's options (IEP-030, IEP-031, IEP-032). Raises RefusedError at the first that cannot be."""
    clauses = _known_and_distinct(command.options)
    if isinstance(command, AlterZone):
        for row, clause in clauses:
            _check_alterable(row, clause)
    # Numbers as they are written, then all others in the table's order.
    clauses.sort(key=lambda pair: _check_order(pair[0]))
    values = [(row, _READERS[row.kind](row, clause)) for row, clause in clauses]
    return {row.field: value for row, value in values if value is not None or row.none_word}


def named_profiles(command: CreateZone | AlterZone) -> tuple[ProfileName, ...]:
    """The storage profiles that a statement whose options were read names, with their places."""
    values = (clause.value for clause in command.options if clause.option is ZoneOption.STORAGE_PROFILES)
    return next((value for value in values if isinstance(value, tuple)), ())


def _check_order(row: ZoneOptionRow) -> tuple[int, int]:
    return row.kind, 0 if row.kind is OptionKind.NUMBER else ZONE_OPTIONS.index(row)


def check_ranges(command: CreateZone | AlterZone, given: Given) -> None:
    """PARTITIONS 1..65000, REPLICAS 1..2147483647, timers 0..2147483647 seconds.

    QUORUM SIZE has bounds of its own, see ``check_bounds``.
    """
    for row in ZONE_OPTIONS:
        value = given.get(row.field)
        if row.highest is not None and value is not None and not row.lowest <= value <= row.highest:
            written = shown_value(command, row.option, value)
            message = f"{row.option.value} is from {row.lowest} to {row.highest}, not {written}"
            position = clause_position(command, row.option)
            raise RefusedError(ErrorKind.OPTION_OUT_OF_RANGE, message, position)


def _known_and_distinct(options: tuple[OptionClause, ...]) -> list[tuple[ZoneOptionRow, OptionClause]]:
    rows = []
    for clause in options:
        if isinstance(clause.option, UnknownOption):
            message = f"there is no option {clause.option.value}; accepted: {', '.join(OLD_FORM_KEYS)}"
            raise _refused(ErrorKind.OPTION_UNKNOWN, message, clause)
        rows.append((ROWS[clause.option], clause))
    seen: set[ZoneOption] = set()
    for row, clause in rows:
        if row.option in seen:
            raise _refused(ErrorKind.OPTION_DUPLICATE, f"{row.option.value} is given twice", clause)
        seen.add(row.option)
    return rows


def _check_alterable(row: ZoneOptionRow, clause: OptionClause) -> None:
    if row.option is ZoneOption.PARTITIONS:
        message = "the number of partitions is fixed when a zone is created; nothing was changed"
        raise _refused(ErrorKind.PARTITIONS_NOT_ALTERABLE, message, clause)
    if not row.alterable:
        message = f"{row.option.value} is fixed when a zone is created; nothing was changed"
        raise _refused(ErrorKind.OPTION_NOT_ALTERABLE, message, clause)


def _whole_number(row: ZoneOptionRow, clause: OptionClause) -> int:
    value = clause.value
    if value is Keyword.ALL and row.word_value is Keyword.ALL:
        return row.word_number
    if not isinstance(value, int):
        accepted = "a whole number or ALL" if row.word_value is Keyword.ALL else "a whole number"
        message = f"{row.option.value} takes {accepted}, not {_described(clause)}"
        raise _refused(ErrorKind.OPTION_TYPE, message, clause)
    if value < 0:
        message = f"{row.option.value} is not negative: {clause.shown}"
        raise _refused(ErrorKind.OPTION_OUT_OF_RANGE, message, clause)
    return value


def _text(row: ZoneOptionRow, clause: OptionClause) -> str:
    if not isinstance(clause.value, str):
        message = f"{row.option.value} takes a string, not {_described(clause)}"
        raise _refused(ErrorKind.OPTION_TYPE, message, clause)
    return clause.value


def _in_capitals(row: ZoneOptionRow, clause: OptionClause) -> Enum:
    text = _text(row, clause)
    if text not in row.choice_names:
        names = " or ".join(row.choice_names)
        message = f"{row.option.value} is {names}, in capitals, not '{shortened(text)}'"
        raise _refused(ErrorKind.OPTION_OUT_OF_RANGE, message, clause)
    assert row.choices is not None
    return row.choices(text)


def _choice(row: ZoneOptionRow, clause: OptionClause) -> Enum | None:
    """A blank name of an algorithm, which only the old form can write, names none."""
    text = _text(row, clause)
    name = text.strip().lower()
    if name == row.none_word:
        return None
    for choice in row.choices or ():
        if str(choice.value).lower() == name:
            return choice
    *others, last = (f"'{choice_name}'" for choice_name in row.choice_names)
    message = f"{row.option.value} is {', '.join(others)} or {last}, not '{shortened(text)}'"
    raise _refused(ErrorKind.OPTION_OUT_OF_RANGE, message, clause)


def _profiles(_row: ZoneOptionRow, clause: OptionClause) -> tuple[str, ...]:
    if not isinstance(clause.value, tuple):
        message = f"STORAGE PROFILES takes names, not {_described(clause)}"
        raise _refused(ErrorKind.OPTION_TYPE, message, clause)
    if not clause.value or not all(name.text for name in clause.value):
        message = "a storage profile has a name that is not blank"
        raise _refused(ErrorKind.STORAGE_PROFILES_EMPTY, message, clause)
    for name in clause.value:
        check_visible(name.text, "a storage profile's name", name.position)
    return tuple(name.text for name in clause.value)


_READERS = {
    OptionKind.NUMBER: _whole_number,
    OptionKind.TEXT: _text,
    OptionKind.NAMES: _profiles,
    OptionKind.CAPITALS: _in_capitals,
    OptionKind.CHOICE: _choice,
}


def _refused(kind: ErrorKind, message: str, clause: OptionClause) -> RefusedError:
    return RefusedError(kind, message, clause.position)


def _described(clause: OptionClause) -> str:
    value = clause.value
    if isinstance(value, Keyword):
        return value.value
    if isinstance(value, OtherLiteral):
        return shortened(value.text)
    return f"the string '{shortened(value)}'" if isinstance(value, str) else clause.shown


@dataclass(frozen=True, slots=True)
class EngineOption:
    """``value``: the one that is meant, None: any that is set. ``only``: the engine that has it; empty: all but
    ``never``. ``instead``: what is accepted."""

    option: ZoneOption
    value: object
    instead: str
    only: str = ""
    never: str = ""

    def is_lacking(self, zone: Zone, engine: str) -> bool:
        value = getattr(zone, ROWS[self.option].field)
        is_set = value is not None if self.value is None else value is self.value
        return is_set and (engine != self.only if self.only else engine == self.never)

    @property
    def text(self) -> str:
        value = getattr(self.value, "value", "")
        return f"{self.option.value} '{value}'" if value else self.option.value


ENGINE_OPTIONS = (
    EngineOption(
        ZoneOption.PARTITION_LOSS_POLICY,
        None,
        f"a storage profile of the engine {STORE_ENGINE}, or no such option",
        only=STORE_ENGINE,
    ),
    EngineOption(
        ZoneOption.CONSISTENCY_MODE,
        ConsistencyMode.HIGH_AVAILABILITY,
        f"'{ConsistencyMode.STRONG_CONSISTENCY.value}'",
        never=STORE_ENGINE,
    ),
)


def lacking_option(zone: Zone, engines: Iterable[str]) -> EngineOption | None:
    """The first option of the zone that one of the engines does not have."""
    known = tuple(engines)
    return next((row for row in ENGINE_OPTIONS if any(row.is_lacking(zone, name) for name in known)), None)


def option_in_the_way(zone: Zone, nodes: Iterable[Node]) -> str:
    """Return why living ``nodes`` that hold a zone's profiles keep no data of it; empty: no option is the
    reason."""
    engines = (
        node.engine(name)
        for node in nodes
        if node.holds_profiles(zone.storage_profiles)
        for name in zone.storage_profiles
    )
    lack = lacking_option(zone, engines)
    return "" if lack is None else f"{ErrorKind.ENGINE_UNSUPPORTED.name}: {lack.text}"


def check_engine_options(command: CreateZone | AlterZone, zone: Zone, topology: Iterable[Node]) -> None:
    """Raises RefusedError for an option of the statement that the engine of ``zone`` does not have, as far as
    living nodes tell which that is."""
    engine = zone_engine(zone, topology)
    lack = lacking_option(zone, (engine,)) if engine else None
    if lack is not None and any(clause.option is lack.option for clause in command.options):
        message = f"the engine {engine} of zone {zone.name} has no {lack.text}; accepted: {lack.instead}"
        position = clause_position(command, lack.option)
        raise RefusedError(ErrorKind.ENGINE_UNSUPPORTED, message, position)


class FilterError(ValueError):
    """The text is not a filter; the message says why."""


class NodeFilters(Protocol):
    """Evaluates filters. Pure: the same filter and node have the same answer for ever."""

    def matches(self, expression: str, node: Node) -> bool:
        """Check that the filter selects the node. Raises FilterError, and does so for every node or for
        none."""
        ...

    def negated_attributes(self, expression: str) -> tuple[str, ...]:
        """Attributes that the filter compares negatively, as ``@.region != 'US'``, so that nodes without the
        attribute match too, sorted. Raises FilterError."""
        ...


def may_use(zone: Zone, node: Node, filters: NodeFilters) -> bool:
    """Check that a zone may use a node: its filter, and all of its profiles, kept by an engine that has the
    zone's options (IEP-012). Raises FilterError."""
    lacks = not node.holds_profiles(zone.storage_profiles) or lacking_option(
        zone, map(node.engine, zone.storage_profiles)
    )
    return not lacks and filters.matches(zone.nodes_filter, node)
