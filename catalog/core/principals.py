"""Principals and grants: users, roles, privileges and the objects they are about.

A principal is (source, name): two sources that both know an ANNA know two people (U1). So are two users of the
catalog of whom the second was made after the first was dropped. Roles are principals of a source of their own,
because grants name either. A grant of a zone names its id: a later zone of the same name has another one, and a
renamed zone keeps its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from catalog.core.zone import ZoneId

LOCAL = "local"
"""Source of the users that the catalog keeps. Other sources are issuers, by their address."""
ROLE = "role"
"""Source of roles, which nobody logs in as."""


@dataclass(frozen=True, slots=True)
class Principal:
    """``version``: that of the catalog which made this user of it; 0: of other sources. So nothing that a user
    has proved, sent or was granted is a later one's of the same name.

    Invariant: names of the sources LOCAL and ROLE are in lower case."""

    source: str
    name: str
    version: int = 0

    @property
    def is_role(self) -> bool:
        return self.source == ROLE

    def __str__(self) -> str:
        """``local:anna``: one text for source and name."""
        return f"{self.source}:{self.name}"


def local_user(name: str, version: int = 0) -> Principal:
    """Return the principal that this version of the catalog has made; 0: none of a catalog."""
    return Principal(LOCAL, name, version)


def role(name: str) -> Principal:
    return Principal(ROLE, name)


@dataclass(frozen=True, slots=True)
class User:
    """A user that the catalog keeps. ``password_hash`` is an encoded argon2id hash; None: no password logs in.

    A user that is not active may do nothing, whatever it is granted. ``changed_version`` is the catalog's
    version that changed its password or its state last.
    """

    principal: Principal
    password_hash: str | None = None
    is_active: bool = True
    changed_version: int = 0

    @property
    def name(self) -> str:
        return self.principal.name


@dataclass(frozen=True, slots=True)
class UserRole:
    """``is_ready``: one of those that every catalog has, which nobody alters or drops."""

    principal: Principal
    is_ready: bool = False
    created_version: int = 0

    @property
    def name(self) -> str:
        return self.principal.name


class Privilege(Enum):
    """Privilege that may be granted. Each but ADMIN is about its object alone; on a zone each implies SEE of
    it."""

    SEE = "SEE"
    """Zones: everything about them but their keys. System: nodes, health, metrics, documents."""

    ALTER = "ALTER"
    """Zones, and columns of their tables."""

    CREATE = "CREATE"
    """Tables of a zone; on all zones zones, too."""

    DROP = "DROP"
    """Zones, and their tables."""

    OPERATE = "OPERATE"
    """System: drains, limits, statements of others. Zones: their operations, and putting them at rest."""

    RECOVER = "RECOVER"
    """Zones: resets and restarts of partitions. System: adopting a restored store."""

    READ = "READ"
    """Keys of zones."""

    WRITE = "WRITE"
    """Keys of zones."""

    AUDIT = "AUDIT"
    """System: who changed what, and the statements of the catalog's history."""

    IMPERSONATE = "IMPERSONATE"
    """System: sending statements for another user, who is named beside the one that sends them."""

    ADMIN = "ADMIN"
    """System: users, roles and grants. Implies every other privilege, because it can grant it to itself."""


class ObjectKind(Enum):
    SYSTEM = "SYSTEM"
    ALL_ZONES = "ALL ZONES"
    ZONE = "ZONE"


@dataclass(frozen=True, slots=True)
class GrantObject:
    """Object of a privilege. ``zone_id`` is set exactly when ``kind`` is ZONE. ALL ZONES includes zones that
    are made later."""

    kind: ObjectKind
    zone_id: ZoneId | None = None

    def __str__(self) -> str:
        return self.kind.value if self.zone_id is None else f"{self.kind.value} {self.zone_id}"


SYSTEM = GrantObject(ObjectKind.SYSTEM)
ALL_ZONES = GrantObject(ObjectKind.ALL_ZONES)


def zone_object(zone_id: ZoneId) -> GrantObject:
    return GrantObject(ObjectKind.ZONE, zone_id)


_OF_SYSTEM = frozenset(
    (
        Privilege.SEE,
        Privilege.OPERATE,
        Privilege.RECOVER,
        Privilege.AUDIT,
        Privilege.IMPERSONATE,
        Privilege.ADMIN,
    )
)
_OF_ZONES = frozenset(Privilege) - {Privilege.AUDIT, Privilege.IMPERSONATE, Privilege.ADMIN}


def privileges_of(kind: ObjectKind) -> frozenset[Privilege]:
    """Return the privileges that mean something on an object of this kind; no others are granted on it."""
    return _OF_SYSTEM if kind is ObjectKind.SYSTEM else _OF_ZONES


@dataclass(frozen=True, slots=True)
class Grant:
    """Invariant: ``privilege`` is among ``privileges_of(object.kind)``."""

    grantee: Principal
    privilege: Privilege
    object: GrantObject


@dataclass(frozen=True, slots=True)
class Membership:
    """``user`` has what is granted to ``role``."""

    role: Principal
    user: Principal


_SEES = frozenset({Privilege.SEE})
_OPERATES = _SEES | {Privilege.OPERATE, Privilege.RECOVER}
READY_PRIVILEGES = {
    "viewer": {SYSTEM: _SEES, ALL_ZONES: _SEES},
    "writer": {SYSTEM: _SEES, ALL_ZONES: _SEES | {Privilege.READ, Privilege.WRITE}},
    "operator": {
        SYSTEM: _OPERATES,
        ALL_ZONES: _OPERATES | {Privilege.ALTER, Privilege.CREATE, Privilege.DROP},
    },
    "administrator": {SYSTEM: frozenset({Privilege.ADMIN})},
}
"""Roles that every catalog has. The migration that makes their tables writes them and their grants."""
READY_ROLES = tuple(READY_PRIVILEGES)
