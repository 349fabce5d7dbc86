"""The commands that a person can give about zones: plain values, imperative, as understood from the text.

A command is *not* checked: it holds what the text said, with the place of each part, so that the checks of
``catalog.core.snapshot`` can point at what they refuse. Places and source text do not count for equality: two
commands are equal when they ask for the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the text that was sent; line and column count characters from 1."""

    line: int
    column: int


class ZoneOption(Enum):
    """The options of a zone; the value is how the new form of the grammar writes it."""

    PARTITIONS = "PARTITIONS"
    REPLICAS = "REPLICAS"
    QUORUM_SIZE = "QUORUM SIZE"
    AUTO_SCALE_UP = "AUTO SCALE UP"
    AUTO_SCALE_DOWN = "AUTO SCALE DOWN"
    NODES_FILTER = "NODES FILTER"
    DISTRIBUTION_ALGORITHM = "DISTRIBUTION ALGORITHM"
    CONSISTENCY_MODE = "CONSISTENCY MODE"
    STORAGE_PROFILES = "STORAGE PROFILES"


class Keyword(Enum):
    """A word in a value's place."""

    ALL = "ALL"


@dataclass(frozen=True, slots=True)
class OtherLiteral:
    """A literal of a type that no option takes (TRUE, 2.5): kept to be named when refused."""

    text: str


@dataclass(frozen=True, slots=True)
class ProfileName:
    """One storage profile as written, without the blanks around it."""

    text: str
    position: Position | None = field(default=None, compare=False)


OptionValue = int | str | Keyword | OtherLiteral | tuple[ProfileName, ...]


@dataclass(frozen=True, slots=True)
class OptionClause:
    """One option as written. The value may have the wrong type or be out of range: checked later, in order."""

    option: ZoneOption
    value: OptionValue
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ZoneName:
    """A zone's name as it counts: upper-cased unless it was quoted."""

    text: str
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CreateZone:
    name: ZoneName
    options: tuple[OptionClause, ...] = ()
    if_not_exists: bool = False
    source: str = field(default="", compare=False)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AlterZone:
    """``options`` has at least one clause. PARTITIONS may be among them: the event exists and is refused."""

    name: ZoneName
    options: tuple[OptionClause, ...]
    if_exists: bool = False
    source: str = field(default="", compare=False)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class DropZone:
    name: ZoneName
    if_exists: bool = False
    source: str = field(default="", compare=False)
    position: Position | None = field(default=None, compare=False)


Command = CreateZone | AlterZone | DropZone
