"""The options of one statement, checked one by one: what needs neither the catalog nor the nodes.

Order of the checks (the documents' order, kept because the first error is the one that is reported):
``read_options`` = duplicates, what an ALTER may not touch, what is not built, types and signs;
``check_ranges`` = static ranges. Existing profiles come between the two, see ``catalog.core.snapshot``.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    ZoneOption,
)
from catalog.core.quorum import ALL_REPLICAS

PARTITIONS_MAX = 65_000
REPLICAS_MAX = ALL_REPLICAS

NOT_BUILT = frozenset(
    {
        ZoneOption.AUTO_SCALE_UP,
        ZoneOption.AUTO_SCALE_DOWN,
        ZoneOption.NODES_FILTER,
        ZoneOption.DISTRIBUTION_ALGORITHM,
        ZoneOption.CONSISTENCY_MODE,
    }
)
"""Options of the grammar that are refused by name: accepting one without acting on it would be a lie."""

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
    """What a statement says, typed; None where it says nothing. ALL replicas is ``ALL_REPLICAS``."""

    partitions: int | None = None
    replicas: int | None = None
    quorum_size: int | None = None
    storage_profiles: tuple[ProfileName, ...] | None = None


def clause_position(command: CreateZone | AlterZone, *options: ZoneOption) -> Position | None:
    """Where the first of these options is that the statement has; else where the zone is named."""
    for option in options:
        for clause in command.options:
            if clause.option is option:
                return clause.position
    return command.name.position


def read_options(command: CreateZone | AlterZone) -> ZoneParameters:
    """The statement's options as typed parameters. Raises RefusedError at the first that cannot be."""
    seen: set[ZoneOption] = set()
    for clause in command.options:
        if clause.option in seen:
            raise _refused(ErrorKind.OPTION_DUPLICATE, f"{clause.option.value} is given twice", clause)
        seen.add(clause.option)
    values: dict[ZoneOption, OptionValue] = {}
    for clause in command.options:
        if isinstance(command, AlterZone):
            _check_alterable(clause)
        if clause.option in NOT_BUILT:
            message = f"{clause.option.value} is not supported yet"
            raise _refused(ErrorKind.OPTION_NOT_SUPPORTED, message, clause)
        values[clause.option] = clause.value
    whole = {clause.option: _whole_number(clause) for clause in command.options if _takes_number(clause)}
    return ZoneParameters(
        partitions=whole.get(ZoneOption.PARTITIONS),
        replicas=whole.get(ZoneOption.REPLICAS),
        quorum_size=whole.get(ZoneOption.QUORUM_SIZE),
        storage_profiles=_profiles(command.options),
    )


def check_ranges(command: CreateZone | AlterZone, parameters: ZoneParameters) -> None:
    """PARTITIONS 1..65000, REPLICAS 1..2147483647. QUORUM SIZE has bounds of its own, see ``quorum_rules``."""
    ranges = (
        (ZoneOption.PARTITIONS, parameters.partitions, PARTITIONS_MAX),
        (ZoneOption.REPLICAS, parameters.replicas, REPLICAS_MAX),
    )
    for option, value, highest in ranges:
        if value is not None and not 1 <= value <= highest:
            message = f"{option.value} is from 1 to {highest}, not {value}"
            raise RefusedError(ErrorKind.OPTION_OUT_OF_RANGE, message, clause_position(command, option))


def _refused(kind: ErrorKind, message: str, clause: OptionClause) -> RefusedError:
    return RefusedError(kind, message, clause.position)


def _check_alterable(clause: OptionClause) -> None:
    if clause.option is ZoneOption.PARTITIONS:
        message = "the number of partitions is fixed when a zone is created; nothing was changed"
        raise _refused(ErrorKind.PARTITIONS_NOT_ALTERABLE, message, clause)
    if clause.option in NOT_ALTERABLE:
        message = f"{clause.option.value} is fixed when a zone is created; nothing was changed"
        raise _refused(ErrorKind.OPTION_NOT_ALTERABLE, message, clause)


def _takes_number(clause: OptionClause) -> bool:
    return clause.option in (ZoneOption.PARTITIONS, ZoneOption.REPLICAS, ZoneOption.QUORUM_SIZE)


def _whole_number(clause: OptionClause) -> int:
    value = clause.value
    if value is Keyword.ALL and clause.option is ZoneOption.REPLICAS:
        return ALL_REPLICAS
    if not isinstance(value, int):
        wanted = "a whole number or ALL" if clause.option is ZoneOption.REPLICAS else "a whole number"
        message = f"{clause.option.value} takes {wanted}, not {_described(value)}"
        raise _refused(ErrorKind.OPTION_TYPE, message, clause)
    if value < 0:
        message = f"{clause.option.value} is not negative: {value}"
        raise _refused(ErrorKind.OPTION_OUT_OF_RANGE, message, clause)
    return value


def _profiles(options: tuple[OptionClause, ...]) -> tuple[ProfileName, ...] | None:
    for clause in options:
        if clause.option is not ZoneOption.STORAGE_PROFILES:
            continue
        if not isinstance(clause.value, tuple):
            message = f"STORAGE PROFILES takes names, not {_described(clause.value)}"
            raise _refused(ErrorKind.OPTION_TYPE, message, clause)
        if not clause.value or not all(name.text for name in clause.value):
            message = "a storage profile has a name that is not blank"
            raise _refused(ErrorKind.STORAGE_PROFILES_EMPTY, message, clause)
        return clause.value
    return None


def _described(value: OptionValue) -> str:
    if isinstance(value, Keyword):
        return value.value
    if isinstance(value, OtherLiteral):
        return value.text
    return f"the string '{value}'" if isinstance(value, str) else str(value)
