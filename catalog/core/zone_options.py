"""The options of one statement, checked one by one: what needs neither the catalog nor the nodes.

Order of the checks (the documents' order, kept because the first error is the one that is reported):
``read_options`` = unknown, duplicates, what an ALTER may not touch, types, signs and modes;
``check_ranges`` = static ranges. Profiles and filter come between the two, see ``catalog.core.zone_changes``.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import (
    AlterZone,
    CreateZone,
    Keyword,
    OptionClause,
    OtherLiteral,
    Position,
    ProfileName,
    UnknownOption,
    ZoneOption,
    shortened,
)
from catalog.core.names import check_visible
from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import TIMER_OFF, ConsistencyMode, DistributionAlgorithm, Strategy, Zone

PARTITIONS_MAX = 65_000
REPLICAS_MAX = ALL_REPLICAS
CLUSTER_STRATEGY = "default"
"""REBALANCE STRATEGY of a zone that has none of its own: as the controllers are set."""

NUMBERS = (
    ZoneOption.PARTITIONS,
    ZoneOption.REPLICAS,
    ZoneOption.QUORUM_SIZE,
    ZoneOption.AUTO_SCALE_UP,
    ZoneOption.AUTO_SCALE_DOWN,
)

OLD_FORM_KEYS = {
    "PARTITIONS": ZoneOption.PARTITIONS,
    "REPLICAS": ZoneOption.REPLICAS,
    "QUORUM_SIZE": ZoneOption.QUORUM_SIZE,
    "DISTRIBUTION_ALGORITHM": ZoneOption.DISTRIBUTION_ALGORITHM,
    "DATA_NODES_FILTER": ZoneOption.NODES_FILTER,
    "DATA_NODES_AUTO_ADJUST_SCALE_UP": ZoneOption.AUTO_SCALE_UP,
    "DATA_NODES_AUTO_ADJUST_SCALE_DOWN": ZoneOption.AUTO_SCALE_DOWN,
    "CONSISTENCY_MODE": ZoneOption.CONSISTENCY_MODE,
    "REBALANCE_STRATEGY": ZoneOption.REBALANCE_STRATEGY,
    "STORAGE_PROFILES": ZoneOption.STORAGE_PROFILES,
}
"""The keys of ``KEY=value``, which is also how an unknown one is answered."""

NOT_ALTERABLE = frozenset(
    {
        ZoneOption.PARTITIONS,
        ZoneOption.STORAGE_PROFILES,
        ZoneOption.CONSISTENCY_MODE,
        ZoneOption.DISTRIBUTION_ALGORITHM,
    }
)


@dataclass(frozen=True, slots=True)
class ZoneParameters:
    """What a statement says, typed; None where it says nothing. ALL replicas is ``ALL_REPLICAS``.

    ``names_strategy``: the statement sets the zone's strategy, to none of its own where
    ``strategy`` is None.
    """

    partitions: int | None = None
    replicas: int | None = None
    quorum_size: int | None = None
    auto_scale_up: int | None = None
    auto_scale_down: int | None = None
    nodes_filter: str | None = None
    consistency_mode: ConsistencyMode | None = None
    algorithm: DistributionAlgorithm | None = None
    strategy: Strategy | None = None
    names_strategy: bool = False
    storage_profiles: tuple[ProfileName, ...] | None = None


def clause_position(command: CreateZone | AlterZone, *options: ZoneOption) -> Position | None:
    """Where the first of these options is that the statement has; else where the zone is named."""
    for option in options:
        for clause in command.options:
            if clause.option is option:
                return clause.position
    return command.name.position


def shown_value(command: CreateZone | AlterZone, option: ZoneOption, value: int) -> str:
    """The option's value as the statement writes it; ``value`` where the statement does not have it."""
    return next((clause.shown for clause in command.options if clause.option is option), str(value))


def read_options(command: CreateZone | AlterZone) -> ZoneParameters:
    """The statement's options as typed parameters (IEP-030, IEP-031, IEP-032). Raises RefusedError at the
    first that cannot be."""
    _check_known_and_distinct(command.options)
    if isinstance(command, AlterZone):
        for clause in command.options:
            _check_alterable(clause)
    whole = {clause.option: _whole_number(clause) for clause in command.options if clause.option in NUMBERS}
    texts = {clause.option: _text(clause) for clause in command.options if clause.option in _TEXTS}
    profiles = _profiles(command.options)
    return ZoneParameters(
        partitions=whole.get(ZoneOption.PARTITIONS),
        replicas=whole.get(ZoneOption.REPLICAS),
        quorum_size=whole.get(ZoneOption.QUORUM_SIZE),
        auto_scale_up=whole.get(ZoneOption.AUTO_SCALE_UP),
        auto_scale_down=whole.get(ZoneOption.AUTO_SCALE_DOWN),
        nodes_filter=texts.get(ZoneOption.NODES_FILTER),
        consistency_mode=_mode(command.options),
        algorithm=_algorithm(command.options),
        strategy=_strategy(command.options),
        names_strategy=any(clause.option is ZoneOption.REBALANCE_STRATEGY for clause in command.options),
        storage_profiles=profiles,
    )


def check_ranges(command: CreateZone | AlterZone, parameters: ZoneParameters) -> None:
    """PARTITIONS 1..65000, REPLICAS 1..2147483647, timers 0..2147483647 seconds.

    QUORUM SIZE has bounds of its own, see ``quorum_rules``.
    """
    ranges = (
        (ZoneOption.PARTITIONS, parameters.partitions, 1, PARTITIONS_MAX),
        (ZoneOption.REPLICAS, parameters.replicas, 1, REPLICAS_MAX),
        (ZoneOption.AUTO_SCALE_UP, parameters.auto_scale_up, 0, TIMER_OFF),
        (ZoneOption.AUTO_SCALE_DOWN, parameters.auto_scale_down, 0, TIMER_OFF),
    )
    for option, value, lowest, highest in ranges:
        if value is not None and not lowest <= value <= highest:
            written = shown_value(command, option, value)
            message = f"{option.value} is from {lowest} to {highest}, not {written}"
            raise RefusedError(ErrorKind.OPTION_OUT_OF_RANGE, message, clause_position(command, option))


def strategy_text(zone: Zone) -> str:
    """The zone's REBALANCE STRATEGY as a statement says it."""
    return CLUSTER_STRATEGY if zone.strategy is None else zone.strategy.value


def _check_known_and_distinct(options: tuple[OptionClause, ...]) -> None:
    for clause in options:
        if isinstance(clause.option, UnknownOption):
            message = f"there is no option {clause.option.value}; accepted: {', '.join(OLD_FORM_KEYS)}"
            raise _refused(ErrorKind.OPTION_UNKNOWN, message, clause)
    seen: set[ZoneOption | UnknownOption] = set()
    for clause in options:
        if clause.option in seen:
            raise _refused(ErrorKind.OPTION_DUPLICATE, f"{clause.option.value} is given twice", clause)
        seen.add(clause.option)


_TEXTS = frozenset({ZoneOption.NODES_FILTER})


def _text(clause: OptionClause) -> str:
    if not isinstance(clause.value, str):
        message = f"{clause.option.value} takes a string, not {_described(clause)}"
        raise _refused(ErrorKind.OPTION_TYPE, message, clause)
    return clause.value


def _mode(options: tuple[OptionClause, ...]) -> ConsistencyMode | None:
    for clause in options:
        if clause.option is ZoneOption.CONSISTENCY_MODE:
            text = _text(clause)
            if text in ConsistencyMode.__members__:
                return ConsistencyMode[text]
            modes = " or ".join(ConsistencyMode.__members__)
            message = f"CONSISTENCY MODE is {modes}, in capitals, not '{shortened(text)}'"
            raise _refused(ErrorKind.OPTION_OUT_OF_RANGE, message, clause)
    return None


def _strategy(options: tuple[OptionClause, ...]) -> Strategy | None:
    for clause in options:
        if clause.option is ZoneOption.REBALANCE_STRATEGY:
            text = _text(clause)
            name = text.strip().lower()
            if name == CLUSTER_STRATEGY:
                return None
            if name in (each.value for each in Strategy):
                return Strategy(name)
            names = ", ".join(f"'{each.value}'" for each in Strategy)
            message = f"REBALANCE STRATEGY is {names} or '{CLUSTER_STRATEGY}', not '{shortened(text)}'"
            raise _refused(ErrorKind.OPTION_OUT_OF_RANGE, message, clause)
    return None


def _algorithm(options: tuple[OptionClause, ...]) -> DistributionAlgorithm | None:
    """A blank name, which only the old form can write, names none."""
    for clause in options:
        if clause.option is ZoneOption.DISTRIBUTION_ALGORITHM:
            text = _text(clause)
            name = text.strip().lower()
            if not name:
                return None
            if name in (each.value for each in DistributionAlgorithm):
                return DistributionAlgorithm(name)
            names = " or ".join(f"'{each.value}'" for each in DistributionAlgorithm)
            message = f"DISTRIBUTION ALGORITHM is {names}, not '{shortened(text)}'"
            raise _refused(ErrorKind.OPTION_OUT_OF_RANGE, message, clause)
    return None


def _refused(kind: ErrorKind, message: str, clause: OptionClause) -> RefusedError:
    return RefusedError(kind, message, clause.position)


def _check_alterable(clause: OptionClause) -> None:
    if clause.option is ZoneOption.PARTITIONS:
        message = "the number of partitions is fixed when a zone is created; nothing was changed"
        raise _refused(ErrorKind.PARTITIONS_NOT_ALTERABLE, message, clause)
    if clause.option in NOT_ALTERABLE:
        message = f"{clause.option.value} is fixed when a zone is created; nothing was changed"
        raise _refused(ErrorKind.OPTION_NOT_ALTERABLE, message, clause)


def _whole_number(clause: OptionClause) -> int:
    value = clause.value
    if value is Keyword.ALL and clause.option is ZoneOption.REPLICAS:
        return ALL_REPLICAS
    if not isinstance(value, int):
        wanted = "a whole number or ALL" if clause.option is ZoneOption.REPLICAS else "a whole number"
        message = f"{clause.option.value} takes {wanted}, not {_described(clause)}"
        raise _refused(ErrorKind.OPTION_TYPE, message, clause)
    if value < 0:
        message = f"{clause.option.value} is not negative: {clause.shown}"
        raise _refused(ErrorKind.OPTION_OUT_OF_RANGE, message, clause)
    return value


def _profiles(options: tuple[OptionClause, ...]) -> tuple[ProfileName, ...] | None:
    for clause in options:
        if clause.option is not ZoneOption.STORAGE_PROFILES:
            continue
        if not isinstance(clause.value, tuple):
            message = f"STORAGE PROFILES takes names, not {_described(clause)}"
            raise _refused(ErrorKind.OPTION_TYPE, message, clause)
        if not clause.value or not all(name.text for name in clause.value):
            message = "a storage profile has a name that is not blank"
            raise _refused(ErrorKind.STORAGE_PROFILES_EMPTY, message, clause)
        for name in clause.value:
            check_visible(name.text, "a storage profile's name", name.position)
        return clause.value
    return None


def _described(clause: OptionClause) -> str:
    value = clause.value
    if isinstance(value, Keyword):
        return value.value
    if isinstance(value, OtherLiteral):
        return shortened(value.text)
    return f"the string '{shortened(value)}'" if isinstance(value, str) else clause.shown
