"""Authorisation: the grants of one catalog version as a value, and the one function that decides on them.

Pure. Nothing else in the project compares privileges; whoever asks names a principal, a privilege and an
object, and gets a decision with its reason in words.

A principal is (source, name): two sources that both know an ANNA know two people (U1). So are two users of the
catalog of whom the second was made after the first was dropped. Roles are principals of a source of their own,
because grants name either. A grant of a zone names its id: a later zone of the same name has another one, and a
renamed zone keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

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


Held = Mapping[GrantObject, frozenset[Privilege]]
"""Privileges by object, as they are granted: nothing that follows from them is written out."""

_NOTHING: frozenset[Privilege] = frozenset()


class Permission(Enum):
    """ALLOWED; HIDDEN: the zone is not to be seen, and answers as one that does not exist (404); MISSING: it
    may be seen, and the privilege is missing (403)."""

    ALLOWED = "allowed"
    HIDDEN = "hidden"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """``reason`` is for the person who asked; of a hidden zone it is for logs only."""

    access: Permission
    reason: str

    @property
    def is_allowed(self) -> bool:
        return self.access is Permission.ALLOWED


@dataclass(frozen=True)
class Grants:
    """Users, roles and grants as the catalog has them at ``version``. Never changed: ``with_...`` makes
    another.

    Invariants: every member of ``roles_of`` and every grantee is a user or a role that is there, or a principal
    of another source than the catalog; each privilege fits its object; no empty sets are kept; users and roles
    have different names.
    """

    version: int = 0
    users: Mapping[Principal, User] = field(default_factory=dict)
    roles: Mapping[Principal, UserRole] = field(default_factory=dict)
    roles_of: Mapping[Principal, frozenset[Principal]] = field(default_factory=dict)
    held: Mapping[Principal, Held] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        version: int,
        users: Iterable[User] = (),
        roles: Iterable[UserRole] = (),
        memberships: Iterable[Membership] = (),
        grants: Iterable[Grant] = (),
    ) -> Grants:
        roles_of: dict[Principal, set[Principal]] = {}
        for membership in memberships:
            roles_of.setdefault(membership.user, set()).add(membership.role)
        held: dict[Principal, dict[GrantObject, set[Privilege]]] = {}
        for grant in grants:
            held.setdefault(grant.grantee, {}).setdefault(grant.object, set()).add(grant.privilege)
        return cls(
            version,
            {user.principal: user for user in users},
            {one.principal: one for one in roles},
            {principal: frozenset(members) for principal, members in roles_of.items()},
            {
                principal: {target: frozenset(names) for target, names in objects.items()}
                for principal, objects in held.items()
            },
        )

    def named(self, name: str) -> Principal | None:
        """The user of the catalog, or the role, of this name: they share their names."""
        return self._by_name.get(name)

    def user(self, name: str) -> User | None:
        """Return the catalog's user of that name, in lower case."""
        principal = self._by_name.get(name)
        return None if principal is None else self.users.get(principal)

    @cached_property
    def _by_name(self) -> Mapping[str, Principal]:
        return {principal.name: principal for principal in (*self.roles, *self.users)}

    @property
    def grants(self) -> tuple[Grant, ...]:
        every = (
            Grant(grantee, privilege, target)
            for grantee, held in self.held.items()
            for target, privileges in held.items()
            for privilege in privileges
        )
        return tuple(
            sorted(every, key=lambda grant: (str(grant.grantee), str(grant.object), grant.privilege.value))
        )

    def at(self, version: int) -> Grants:
        return self if version == self.version else replace(self, version=version)

    def with_user(self, user: User) -> Grants:
        return replace(self, users={**self.users, user.principal: user})

    def with_role(self, one: UserRole) -> Grants:
        return replace(self, roles={**self.roles, one.principal: one})

    def without(self, principal: Principal) -> Grants:
        """Return the grants without the user or role, all that it was granted, and its memberships."""
        members = {user: roles - {principal} for user, roles in self.roles_of.items() if user != principal}
        return Grants(
            self.version,
            {key: user for key, user in self.users.items() if key != principal},
            {key: one for key, one in self.roles.items() if key != principal},
            {user: roles for user, roles in members.items() if roles},
            {key: held for key, held in self.held.items() if key != principal},
        )

    def without_zone(self, zone_id: ZoneId) -> Grants:
        """Return the grants without those on a zone that is gone."""
        gone = GrantObject(ObjectKind.ZONE, zone_id)
        if not any(gone in held for held in self.held.values()):
            return self
        left = {
            grantee: {target: privileges for target, privileges in held.items() if target != gone}
            for grantee, held in self.held.items()
        }
        return replace(self, held={grantee: held for grantee, held in left.items() if held})

    def with_grant(self, grant: Grant, *, is_held: bool) -> Grants:
        """Return the grants with the grant, or without it."""
        objects = dict(self.held.get(grant.grantee, {}))
        before = objects.pop(grant.object, _NOTHING)
        after = before | {grant.privilege} if is_held else before - {grant.privilege}
        if after:
            objects[grant.object] = after
        held = {grantee: one for grantee, one in self.held.items() if grantee != grant.grantee}
        return replace(self, held={**held, grant.grantee: objects} if objects else held)

    def with_member(self, membership: Membership, *, is_member: bool) -> Grants:
        """Return the grants with the membership, or without it."""
        before = self.roles_of.get(membership.user, frozenset())
        after = before | {membership.role} if is_member else before - {membership.role}
        roles_of = {user: roles for user, roles in self.roles_of.items() if user != membership.user}
        return replace(self, roles_of={**roles_of, membership.user: after} if after else roles_of)

    def administrators(self) -> tuple[Principal, ...]:
        """The active users of the catalog that hold ADMIN, sorted by name."""
        users = (principal for principal, user in self.users.items() if user.is_active)
        return tuple(sorted((one for one in users if Caller(one).may(self, Privilege.ADMIN, SYSTEM)), key=str))


NO_GRANTS = Grants()
READY_GRANTS = Grants(
    roles={role(name): UserRole(role(name), is_ready=True) for name in READY_PRIVILEGES},
    held={role(name): held for name, held in READY_PRIVILEGES.items()},
)
"""Grants of a catalog in which no user was made yet."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller of a request, once it is known. ``roles`` are those that another source vouches for, besides those
    of the catalog. ``scope`` is the most that its token or its session lets it do; None: all that it is
    granted. ``enabled``: those of its roles that count, besides what the principal itself is granted; None:
    all."""

    principal: Principal
    roles: tuple[Principal, ...] = ()
    scope: Held | None = field(default=None, hash=False)
    enabled: frozenset[Principal] | None = None

    def decide(self, grants: Grants, privilege: Privilege, target: GrantObject) -> AccessDecision:
        """Decide on what the caller asks, which ``privilege`` stands for, with ``target``.

        A user of the catalog that is gone or not active may do nothing. ADMIN ON SYSTEM implies everything. On
        zones each privilege implies SEE, as nothing can be done with what is not there; ALL ZONES stands for
        each of them.
        """
        principal = self.principal
        if principal.source == LOCAL:
            user = grants.users.get(principal)
            if user is None or not user.is_active:
                reason = f"user {principal.name} does not exist or cannot log in"
                return _refused(target, reason, is_seen=False)
        subjects = self._subjects(grants)

        def is_held(needed: Privilege) -> bool:
            granted = any(holds(grants.held.get(subject, {}), needed, target) for subject in subjects)
            return granted and (self.scope is None or holds(self.scope, needed, target))

        if is_held(privilege):
            return AccessDecision(Permission.ALLOWED, f"{principal} has {privilege.value} ON {target}")
        reason = f"{principal} needs {privilege.value} ON {_named(target)}"
        return _refused(target, reason, is_seen=is_held(Privilege.SEE))

    def _subjects(self, grants: Grants) -> tuple[Principal, ...]:
        """The caller and those of its roles that count."""
        roles = (*self.roles, *grants.roles_of.get(self.principal, ()))
        return (self.principal, *(one for one in roles if self.enabled is None or one in self.enabled))

    def all_roles(self, grants: Grants) -> frozenset[Principal]:
        return grants.roles_of.get(self.principal, frozenset()) | frozenset(self.roles)

    def may(self, grants: Grants, privilege: Privilege, target: GrantObject) -> bool:
        return self.decide(grants, privilege, target).is_allowed

    def held(self, grants: Grants) -> Held:
        """All that it and its roles are granted; what its scope leaves out is not taken off."""
        held: dict[GrantObject, frozenset[Privilege]] = {}
        for subject in self._subjects(grants):
            for target, privileges in grants.held.get(subject, {}).items():
                held[target] = held.get(target, _NOTHING) | privileges
        return held

    def rights(self, grants: Grants) -> tuple[bool, Mapping[Principal, Held]]:
        """Return the basis of decisions on the caller: where two are equal, so is every decision."""
        user = grants.users.get(self.principal)
        subjects = {self.principal, *self.roles, *grants.roles_of.get(self.principal, ())}
        held = {subject: grants.held.get(subject, {}) for subject in subjects}
        return user is not None and user.is_active, held

    def seen_zones(self, grants: Grants, zone_ids: Iterable[ZoneId]) -> frozenset[ZoneId] | None:
        """Return those of the zones that the caller may see; None: all, also those that are gone."""
        if self.may(grants, Privilege.SEE, ALL_ZONES):
            return None
        seen = (one for one in zone_ids if self.may(grants, Privilege.SEE, GrantObject(ObjectKind.ZONE, one)))
        return frozenset(seen)


def holds(held: Held, privilege: Privilege, target: GrantObject) -> bool:
    """Check that what is granted to one subject, or what a scope lists, includes a privilege."""
    if Privilege.ADMIN in held.get(SYSTEM, _NOTHING):
        return True
    privileges = held.get(target, _NOTHING)
    if target.kind is ObjectKind.ZONE:
        privileges |= held.get(ALL_ZONES, _NOTHING)
    is_implied = privilege is Privilege.SEE and target.kind is not ObjectKind.SYSTEM
    return bool(privileges) if is_implied else privilege in privileges


def lost_privileges(before: Held, now: Held) -> tuple[tuple[Privilege, GrantObject], ...]:
    """Return what ``before`` includes and ``now`` does not, sorted. What was granted on one object may follow
    by now from what is granted on another."""
    lost = (
        (privilege, target)
        for target, privileges in before.items()
        for privilege in privileges
        if not holds(now, privilege, target)
    )
    return tuple(sorted(lost, key=lambda pair: (str(pair[1]), pair[0].value)))


def _refused(target: GrantObject, reason: str, *, is_seen: bool) -> AccessDecision:
    is_hidden = target.kind is ObjectKind.ZONE and not is_seen
    return AccessDecision(Permission.HIDDEN if is_hidden else Permission.MISSING, reason)


def _named(target: GrantObject) -> str:
    """The zone's name is known to who asks, and not here."""
    return "the zone" if target.kind is ObjectKind.ZONE else target.kind.value
