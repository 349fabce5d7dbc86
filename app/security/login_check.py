"""A credential is proved: by the user's password, an opaque token of the catalog, or a JWT of the issuer."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

import structlog

from app.requests.login import Login, Proof
from app.security.access_view import AccessView
from app.security.credentials import BearerCredential, Credential, LinkCredential, PasswordCredential
from app.security.jwt import JwtChecks, is_jwt
from app.security.login_limits import LoginLimits, Wait
from app.security.passwords import PasswordChecks, StoredPassword
from app.security.token_secrets import PREFIX
from catalog.core.access_tokens import digest_of
from catalog.core.authorisation import Caller, Grants
from catalog.core.errors import ErrorKind, RefusedError, StatementError
from catalog.core.principals import Principal
from rebalance.ports.measures import NO_MEASURES, Measures
from rebalance.ports.metric_rows import Metric

log = structlog.get_logger(__name__)

WRONG_PASSWORD = "the user or the password is not right"
WRONG_TOKEN = "the token does not exist, has expired or was revoked: log in again with `zonectl login`"
WRONG_LINK = "the link does not exist, has expired or was used: `zonectl console-link` makes another"

_METHODS = {PasswordCredential: "password", BearerCredential: "token", LinkCredential: "link"}

UseLink = Callable[[str], Awaitable[Principal | None]]
"""Of the secret of a one-time link: whose it is, once. Raises StoreError."""


class LoginLimitedError(RefusedError):
    """``wait_s``: whole seconds until another login may be tried."""

    def __init__(self, wait: Wait) -> None:
        self.wait_s = math.ceil(wait.seconds)
        message = f"too many logins have failed from this address: try again in {self.wait_s} s"
        super().__init__(ErrorKind.LOGIN_LIMITED, message)


def utc_now_us() -> int:
    return time.time_ns() // 1_000


class LoginCheck:
    """``clock``: seconds, monotonic. ``now_us``: microseconds since 1970."""

    def __init__(
        self,
        access: AccessView,
        passwords: PasswordChecks,
        jwts: JwtChecks | None = None,
        clock: Callable[[], float] = time.monotonic,
        now_us: Callable[[], int] = utc_now_us,
        use_link: UseLink | None = None,
        measures: Measures = NO_MEASURES,
    ) -> None:
        self._measures = measures
        self._access = access
        self._use_link = use_link
        self._passwords = passwords
        self._jwts = jwts
        self._clock = clock
        self._now_us = now_us
        self._limits = LoginLimits()

    async def login(self, credential: Credential | LinkCredential, address: str) -> Login:
        """``address``: where the request comes from. Raises RefusedError (UNAUTHENTICATED, LOGIN_LIMITED) and
        StoreError (GRANTS_UNAVAILABLE)."""
        try:
            login = await self._login(credential, address)
        except StatementError as error:
            self._measures.count(Metric.LOGINS, _METHODS[type(credential)], error.kind.name)
            raise
        self._measures.count(Metric.LOGINS, _METHODS[type(credential)], "ok")
        return login

    async def _login(self, credential: Credential | LinkCredential, address: str) -> Login:
        grants = await self._access.grants()
        if isinstance(credential, PasswordCredential):
            return await self._by_password(credential, address, grants)
        if isinstance(credential, LinkCredential):
            return await self._by_link(credential, address)
        return await self._by_token(credential, address)

    async def _by_password(self, credential: PasswordCredential, address: str, grants: Grants) -> Login:
        name = credential.user.lower()
        wait = self._limits.wait(address, name, self._clock())
        if wait is not None:
            raise LoginLimitedError(wait)
        user = grants.user(name)
        stored = StoredPassword(name, user.password_hash, user.changed_version) if user is not None else None
        is_right = await self._passwords.is_right(stored, credential.password, address)
        if user is None or not user.is_active or not is_right:
            raise self._failure(address, name, WRONG_PASSWORD)
        # Of guesses that were sent at the same time, the limit's number is told whether they are right.
        wait = self._limits.wait(address, name, self._clock())
        if wait is not None:
            raise LoginLimitedError(wait)
        return Login(Caller(user.principal), Proof.PASSWORD, user_version=user.changed_version)

    async def _by_token(self, credential: BearerCredential, address: str) -> Login:
        """What is wrong is counted, but never holds up what is right: nobody guesses a token."""
        text = credential.token
        digest = digest_of(text)
        if self._jwts is not None and is_jwt(text) and not text.startswith(PREFIX):
            try:
                identity = await self._jwts.identity(text)
            except RefusedError as error:
                raise self._failure(address, digest, error.message) from error
            caller = Caller(identity.principal, identity.roles)
            return Login(caller, Proof.JWT, expires_us=int(identity.expires_s * 1_000_000))
        token = await self._access.token(digest) if text.startswith(PREFIX) else None
        if (
            token is None
            or not token.is_valid(self._now_us())
            or not await self._access.has_active(token.owner)
        ):
            raise self._failure(address, digest, WRONG_TOKEN)
        return Login(Caller(token.owner, scope=token.scope), Proof.TOKEN, token, token.expires_us)

    async def _by_link(self, credential: LinkCredential, address: str) -> Login:
        """As with tokens: nobody guesses one."""
        owner = await self._use_link(credential.secret) if self._use_link is not None else None
        if owner is None or not await self._access.has_active(owner):
            raise self._failure(address, digest_of(credential.secret), WRONG_LINK)
        return Login(Caller(owner), Proof.LINK)

    def _failure(self, address: str, name: str, reason: str) -> RefusedError:
        now = self._clock()
        wait = self._limits.wait(address, name, now)
        if wait is not None:
            return LoginLimitedError(wait)
        self._limits.failed(address, name, now)
        log.info("login failed", address=address)
        return RefusedError(ErrorKind.UNAUTHENTICATED, reason)
