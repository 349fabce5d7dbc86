"""The commands that a person can give about zones, tables and users: plain values, imperative, as read from the
text.

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


SHOWN_CHARS_MAX = 40


def shortened(text: str) -> str:
    """A piece of the text for a message: short, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN_CHARS_MAX else flat[: SHOWN_CHARS_MAX - 3] + "..."


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
    REBALANCE_STRATEGY = "REBALANCE STRATEGY"
    PARTITION_LOSS_POLICY = "PARTITION LOSS POLICY"
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
class UnknownOption:
    """A key of the old form that names no option: understood as a key, and refused when it is checked."""

    value: str


@dataclass(frozen=True, slots=True)
class OptionClause:
    """One option as written. The value may have the wrong type or be out of range: checked later, in order.

    ``written`` is the text of a number, which messages show: a huge one is read as a smaller one.
    """

    option: ZoneOption | UnknownOption
    value: OptionValue
    position: Position | None = field(default=None, compare=False)
    written: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        """The value for a message, at most ``SHOWN_CHARS_MAX`` characters."""
        return shortened(self.written or str(self.value))


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a zone, a table or a column as it counts: upper-cased unless it was quoted.

    ``malformed`` is a name that needs quotes and has none (``z$1``): read as a name, refused when checked.
    """

    text: str
    position: Position | None = field(default=None, compare=False)
    malformed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedCommand:
    """A command with the text that it was read from, and where that begins."""

    source: str = field(default="", compare=False)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CreateZone(SourcedCommand):
    name: Name
    options: tuple[OptionClause, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterZone(SourcedCommand):
    """``options`` has at least one clause. PARTITIONS may be among them: the event exists and is refused."""

    name: Name
    options: tuple[OptionClause, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameZone(SourcedCommand):
    """The zone keeps its id, its tables and its data; only what people call it changes."""

    name: Name
    new_name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetDefaultZone(SourcedCommand):
    """The zone of tables that name none, from now on. Tables that exist stay where they are."""

    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropZone(SourcedCommand):
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type as written, by its canonical name where it has one (INT is INTEGER), with its arguments.

    ``written`` are the arguments' texts: huge numbers are read as smaller ones.
    """

    name: str
    arguments: tuple[int, ...] = ()
    written: tuple[str, ...] = field(default=(), compare=False)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ColumnClause:
    """``default`` is a literal or a function, as SQL writes it; None: no default."""

    name: Name
    type: ColumnType
    nullable: bool = True
    default: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTable(SourcedCommand):
    """``primary_keys`` has each PRIMARY KEY that was written: exactly one is right, checked later.

    None means the primary key as ``colocation``, the default ``zone``, and the zone's first ``profile``.
    """

    name: Name
    columns: tuple[ColumnClause, ...]
    primary_keys: tuple[tuple[Name, ...], ...]
    colocation: tuple[Name, ...] | None = None
    zone: Name | None = None
    profile: ProfileName | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddColumns(SourcedCommand):
    """ALTER TABLE ... ADD COLUMN; at least one."""

    name: Name
    columns: tuple[ColumnClause, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumns(SourcedCommand):
    """ALTER TABLE ... DROP COLUMN; at least one."""

    name: Name
    columns: tuple[Name, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropTable(SourcedCommand):
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Secret:
    """A password as written; ``hashed`` is what is kept of it, None until somebody has made that.

    Two secrets are equal, and none is ever shown: not by ``repr``, not in a statement's text.
    """

    text: str = field(repr=False, compare=False)
    hashed: str | None = field(default=None, repr=False, compare=False)
    position: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CreateUser(SourcedCommand):
    """``password`` None: no password logs in. Names of users and roles are in lower case, however written."""

    name: Name
    password: Secret | None = None
    is_active: bool = True
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterUser(SourcedCommand):
    """Change of a user, in at least one way: another ``password``, none from now on (``drops_password``),
    ``is_active``."""

    name: Name
    password: Secret | None = None
    drops_password: bool = False
    is_active: bool | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropUser(SourcedCommand):
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateRole(SourcedCommand):
    name: Name
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropRole(SourcedCommand):
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class GrantTarget:
    """Target that follows ON: SYSTEM, ZONE and a name, or ALL ZONES (neither of the two)."""

    is_system: bool = False
    zone: Name | None = None


@dataclass(frozen=True, slots=True)
class ChangeGrants(SourcedCommand):
    """GRANT ... ON ... TO, or REVOKE ... ON ... FROM. At least one privilege and one user or role."""

    privileges: tuple[Name, ...]
    target: GrantTarget
    grantees: tuple[Name, ...]
    is_granted: bool


@dataclass(frozen=True, slots=True)
class ChangeMembers(SourcedCommand):
    """GRANT role TO user, or REVOKE role FROM user. At least one of each."""

    roles: tuple[Name, ...]
    users: tuple[Name, ...]
    is_granted: bool


ZoneCommand = CreateZone | AlterZone | RenameZone | SetDefaultZone | DropZone
TableCommand = CreateTable | AddColumns | DropColumns | DropTable
SchemaCommand = ZoneCommand | TableCommand
"""Commands that DDL files declare and plans are made of."""
UserCommand = CreateUser | AlterUser | DropUser | CreateRole | DropRole
PrincipalCommand = UserCommand | ChangeGrants | ChangeMembers
Command = SchemaCommand | PrincipalCommand
