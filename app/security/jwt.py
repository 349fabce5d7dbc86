"""JSON Web Tokens of one issuer: signatures, claims, and the keys at the issuer's address.

Only listed things are accepted: asymmetric algorithms, one issuer, one audience, an expiry at most an hour
ahead. The keys come from the configured address alone, whatever a token says.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
import structlog
from jwt import PyJWK, PyJWKSet

from catalog.core.authorisation import LOCAL, ROLE, Principal, role
from catalog.core.errors import ErrorKind, RefusedError, StoreError

log = structlog.get_logger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms that may be accepted; none of them works with a secret that verifiers know."""
SKEW_S = 60
AHEAD_S_MAX = 3_600
FETCH_INTERVAL_S = 60.0
KEYS_AGE_S_MAX = 3_600.0
"""Age at which keys are fetched again, so that those which the issuer has withdrawn are no longer valid."""
FETCH_TIMEOUT_S = 5.0
KEYS_BYTES_MAX = 1 << 20
NAME_CHARS_MAX = 128
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")

UNREADABLE = (httpx.HTTPError, jwt.PyJWTError, ValueError, TypeError, AttributeError, RecursionError)
"""Exceptions for an answer without usable keys; RecursionError for one that is nested too deeply."""

KeysFetch = Callable[[], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class JwtIssuer:
    """Issuer of JWTs, and the rules for its tokens. ``roles``: values of the claim ``roles_claim``, each with
    the role of the catalog for which it stands. A claim makes administrators only where this mapping says
    so."""

    issuer: str
    audience: str
    keys_url: str
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    user_claim: str = "sub"
    roles_claim: str = "groups"
    roles: Mapping[str, str] = field(default_factory=dict, hash=False)

    def check(self) -> None:
        """Check the configuration. Raises ValueError, which names what would be accepted."""
        refused = [name for name in self.algorithms if name not in ALGORITHMS]
        if refused or not self.algorithms:
            raise ValueError(
                f"algorithms of JWTs are {', '.join(ALGORITHMS)}; not {', '.join(refused) or 'none'}"
            )
        if not self.issuer or not self.audience:
            raise ValueError("JWTs need an issuer and an audience")
        if self.issuer in (LOCAL, ROLE):
            raise ValueError(
                f"{self.issuer!r} cannot be an issuer: users and roles of the catalog have this source"
            )
        url = urlsplit(self.keys_url)
        is_near = url.scheme == "http" and url.hostname in LOOPBACK_HOSTS
        if not is_near and (url.scheme != "https" or not url.hostname):
            raise ValueError(f"the keys of JWTs come from an https address, not from {self.keys_url!r}")


@dataclass(frozen=True, slots=True)
class JwtIdentity:
    """Identity that a token proves. ``expires_s``: seconds since 1970."""

    principal: Principal
    roles: tuple[Principal, ...]
    expires_s: float


def is_jwt(token: str) -> bool:
    return token.count(".") == 2


class IssuerKeys:
    """The issuer's keys by their ids. An unknown id has them fetched, at most once a minute."""

    def __init__(self, fetch: KeysFetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._lock = asyncio.Lock()

    async def key(self, key_id: str) -> PyJWK | None:
        """The key of an id; None: the issuer has none. Raises StoreError (GRANTS_UNAVAILABLE) while no keys are
        known."""
        if self._is_missing(key_id):
            async with self._lock:
                if self._is_missing(key_id) and self._may_fetch():
                    await self._refresh()
        if self._is_old():
            raise StoreError(ErrorKind.GRANTS_UNAVAILABLE, "the issuer of JWTs has not given its keys")
        return self._keys.get(key_id)

    def _is_missing(self, key_id: str) -> bool:
        return self._is_old() or key_id not in self._keys

    def _is_old(self) -> bool:
        return self._fetched_s is None or self._clock() - self._fetched_s >= KEYS_AGE_S_MAX

    def _may_fetch(self) -> bool:
        return self._tried_s is None or self._clock() - self._tried_s >= FETCH_INTERVAL_S

    async def _refresh(self) -> None:
        self._tried_s = self._clock()
        try:
            keys = PyJWKSet.from_dict(json.loads(await self._fetch())).keys
        except UNREADABLE as error:
            log.warning("keys of JWTs not read", error=str(error))
            return
        self._keys = {str(key.key_id): key for key in keys if key.key_id is not None}
        self._fetched_s = self._tried_s


class JwtChecks:
    """Checks of JWTs. Raises ValueError for an ``issuer`` that is not well configured."""

    def __init__(self, issuer: JwtIssuer, keys: IssuerKeys) -> None:
        issuer.check()
        self._issuer = issuer
        self._keys = keys

    async def identity(self, token: str) -> JwtIdentity:
        """The identity that the token proves. Raises RefusedError (UNAUTHENTICATED), which says what is wrong
        with the token, and StoreError without keys."""
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in self._issuer.algorithms:
                raise _refused(f"its algorithm is none of {', '.join(self._issuer.algorithms)}")
            key = await self._keys.key(str(header.get("kid", "")))
            if key is None:
                raise _refused("its key is none of the issuer's")
            return self._identity(self._claims(token, key))
        except jwt.PyJWTError as error:
            raise _refused(str(error)) from error

    def _claims(self, token: str, key: PyJWK) -> dict[str, Any]:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(self._issuer.algorithms),
            audience=self._issuer.audience,
            issuer=self._issuer.issuer,
            leeway=SKEW_S,
            options={"require": ["exp", "aud", "iss", self._issuer.user_claim], "strict_aud": True},
        )
        if float(claims["exp"]) > time.time() + AHEAD_S_MAX + SKEW_S:
            raise _refused(f"it expires more than {AHEAD_S_MAX} s from now")
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> JwtIdentity:
        issuer = self._issuer
        name = claims[issuer.user_claim]
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
            raise _refused(f"its claim {issuer.user_claim} is not a name of up to {NAME_CHARS_MAX} characters")
        claimed = claims.get(issuer.roles_claim, [])
        groups = claimed if isinstance(claimed, list) else [claimed]
        roles = {issuer.roles[group] for group in groups if isinstance(group, str) and group in issuer.roles}
        return JwtIdentity(
            Principal(issuer.issuer, name), tuple(map(role, sorted(roles))), float(claims["exp"])
        )


async def fetch_keys(url: str) -> bytes:
    """Fetch a JSON Web Key Set from exactly this address: no redirect is followed. Raises httpx.HTTPError,
    ValueError."""
    async with (
        httpx.AsyncClient(timeout=FETCH_TIMEOUT_S, follow_redirects=False, trust_env=False) as client,
        client.stream("GET", url) as answer,
    ):
        if answer.status_code != httpx.codes.OK:
            raise ValueError(f"{url} answered HTTP {answer.status_code}")
        body = b""
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > KEYS_BYTES_MAX:
                raise ValueError(f"{url} sent more than {KEYS_BYTES_MAX} bytes")
        return body


def _refused(reason: str) -> RefusedError:
    return RefusedError(ErrorKind.UNAUTHENTICATED, f"the JWT is not accepted: {reason}")
