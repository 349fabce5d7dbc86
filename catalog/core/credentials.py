"""Opaque tokens: 256 random bits that are shown once, of which the catalog keeps the SHA-256.

A token is its owner's: it never allows more than the owner may, and no more than its scope lists. One that is
requested with another token is within that one's scope and lifetime. Times are microseconds since 1970.

Sessions of the console, and the links that open one, are kept in the same way. A session ends ``LIFETIME_US``
after its login, ``IDLE_US`` after its last use, or with a logout; the catalog ends those of a user whose
password or state changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from catalog.core.authorisation import (
    ALL_ZONES,
    SYSTEM,
    GrantObject,
    Held,
    Principal,
    Privilege,
    lost_privileges,
    privileges_of,
    zone_object,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId

DAY_US = 86_400 * 1_000_000
LIFETIME_DAYS = 30
LIFETIME_DAYS_MAX = 90
TOKENS_MAX = 50
"""Maximum number of valid tokens of one user."""

_CLAUSE = re.compile(
    r"\s*([A-Z]+(?:\s*,\s*[A-Z]+)*)\s+ON\s+(SYSTEM|ALL\s+ZONES|ZONE\s+(\d{1,9}))\s*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """Token as the catalog keeps it. ``digest`` is the SHA-256 of the secret, in hex. ``scope`` None: all that
    its owner may. ``revoked_us`` None: it was not revoked."""

    token_id: str
    digest: str
    owner: Principal
    scope: Held | None = field(hash=False)
    created_us: int
    expires_us: int
    revoked_us: int | None = None

    def is_valid(self, now_us: int) -> bool:
        return self.revoked_us is None and now_us < self.expires_us


@dataclass(frozen=True, slots=True)
class LoginBasis:
    """Proof that the maker of a token, a link or a session was let in with, as these outlive the request: the
    digest of a token, or the catalog version that changed the user last as the password was compared. Servers
    know both up to two seconds late; the transaction asks again. Both None: it stands for itself."""

    token_digest: str | None = None
    user_version: int | None = None


NO_BASIS = LoginBasis()


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """``lifetime_us`` None: the default, or as long as the token by which it is requested."""

    scope: Held | None = field(default=None, hash=False)
    lifetime_us: int | None = None


def digest_of(secret: str) -> str:
    """Needs no salt: nobody can try 2^256 secrets."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def issue(
    request: TokenRequest, owner: Principal, secret: str, now_us: int, parent: AccessToken | None = None
) -> AccessToken:
    """``parent``: the token by which it is requested, if it is by one.

    Raises RefusedError: INVALID_REQUEST for a lifetime out of bounds, TOKEN_TOO_BROAD for a scope or a
    lifetime beyond the parent's.
    """
    lifetime_us = LIFETIME_DAYS * DAY_US if request.lifetime_us is None else request.lifetime_us
    if not 0 < lifetime_us <= LIFETIME_DAYS_MAX * DAY_US:
        message = f"a token is valid for up to {LIFETIME_DAYS_MAX} days"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    scope, expires_us = request.scope, now_us + lifetime_us
    if parent is not None:
        if request.lifetime_us is None:
            expires_us = min(expires_us, parent.expires_us)
        if expires_us > parent.expires_us:
            message = "a token that is requested with another one does not outlive it"
            raise RefusedError(ErrorKind.TOKEN_TOO_BROAD, message)
        scope = parent.scope if scope is None else scope
        if not is_within(scope, parent.scope):
            message = (
                f"its scope is {scope_text(parent.scope)}, and a token that it requests has no broader one"
            )
            raise RefusedError(ErrorKind.TOKEN_TOO_BROAD, message)
    digest = digest_of(secret)
    return AccessToken(digest[:12], digest, owner, scope, now_us, expires_us)


def is_within(scope: Held | None, outer: Held | None) -> bool:
    """Check that everything that ``scope`` allows, ``outer`` allows, too."""
    return outer is None or (scope is not None and not lost_privileges(scope, outer))


def reaches(by: AccessToken | None, token: AccessToken) -> bool:
    """Check that a caller who is logged in by ``by`` may look at ``token`` and end it: by a password all of its
    own, by a token that one and those that it could have requested."""
    return by is None or by.token_id == token.token_id or is_within(token.scope, by.scope)


def scope_text(scope: Held | None) -> str:
    """Write a scope as ``scope_of`` reads it; empty: no limit."""
    clauses = (
        f"{', '.join(sorted(privilege.value for privilege in privileges))} ON {target}"
        for target, privileges in sorted((scope or {}).items(), key=lambda item: str(item[0]))
    )
    return "; ".join(clauses)


def scope_of(text: str) -> Held | None:
    """Read a scope such as ``SEE, READ ON ALL ZONES; OPERATE ON SYSTEM; WRITE ON ZONE 7``, where a zone is
    given by its id. Empty: no limit. Raises RefusedError (INVALID_REQUEST), naming the part that is wrong."""
    if not text.strip():
        return None
    scope: dict[GrantObject, frozenset[Privilege]] = {}
    for clause in text.split(";"):
        target, privileges = _clause(clause)
        scope[target] = scope.get(target, frozenset()) | privileges
    return scope


def _clause(text: str) -> tuple[GrantObject, frozenset[Privilege]]:
    match = _CLAUSE.fullmatch(text)
    if match is None:
        message = f"{text.strip()!r} is no part of a scope such as SEE, READ ON ALL ZONES; OPERATE ON SYSTEM"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    names, kind, zone_id = match.groups()
    named: Mapping[str, GrantObject] = {"SYSTEM": SYSTEM, "ALL ZONES": ALL_ZONES}
    target = zone_object(ZoneId(int(zone_id))) if zone_id else named[" ".join(kind.upper().split())]
    accepted = {privilege.value: privilege for privilege in privileges_of(target.kind)}
    privileges = set()
    for name in (part.strip().upper() for part in names.split(",")):
        if name not in accepted:
            message = f"{name} is no privilege ON {target}; there are {', '.join(sorted(accepted))}"
            raise RefusedError(ErrorKind.INVALID_REQUEST, message)
        privileges.add(accepted[name])
    return target, frozenset(privileges)


MINUTE_US = 60 * 1_000_000
LIFETIME_US = 8 * 60 * MINUTE_US
IDLE_US = 30 * MINUTE_US
LINK_US = 5 * MINUTE_US
LINKS_MAX = 10
"""Maximum number of usable links of one user."""
ID_CHARS = 12
USE_NOTED_US = MINUTE_US
"""A use is written down when the one that is known is older: not each request writes."""


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """Session as the catalog keeps it. ``digest`` and ``csrf`` are SHA-256, in hex: of the secret in the
    browser's cookie, and of what its pages send with a logout."""

    digest: str
    owner: Principal
    csrf: str
    created_us: int
    used_us: int
    expires_us: int

    @property
    def session_id(self) -> str:
        """Return the id that it is listed by. Says nothing of the secret."""
        return self.digest[:ID_CHARS]

    @property
    def ends_us(self) -> int:
        """Unless it is used before."""
        return min(self.expires_us, self.used_us + IDLE_US)

    def is_valid(self, now_us: int) -> bool:
        return now_us < self.ends_us


@dataclass(frozen=True, slots=True)
class OneTimeLink:
    """``digest``: SHA-256 of the secret in the link's fragment, in hex."""

    digest: str
    owner: Principal
    created_us: int
    expires_us: int


def csrf_of(secret: str) -> str:
    """Return the value by which a page proves that it is one of ours: it follows from the secret in the cookie,
    which no page can read, and says nothing about it."""
    return digest_of(f"csrf of {secret}")


def opened_session(owner: Principal, secret: str, now_us: int) -> ConsoleSession:
    csrf = digest_of(csrf_of(secret))
    return ConsoleSession(digest_of(secret), owner, csrf, now_us, now_us, now_us + LIFETIME_US)


def issued_link(owner: Principal, secret: str, now_us: int) -> OneTimeLink:
    return OneTimeLink(digest_of(secret), owner, now_us, now_us + LINK_US)
