"""The proof of a credential: the user's password, an opaque token of the catalog, a JWT of the issuer, or a
link.

Logins that fail are counted by address, and by user and address (``LoginLimits``). No user is ever locked:
logins from other addresses go on. The addresses whose failures are the oldest are forgotten first. Refusals of
requests, and of sockets that are not open yet, are sent here as well.
"""

from __future__ import annotations

import base64
import binascii
import math
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus

import structlog
from starlette.types import Receive, Scope, Send

from app.edge.headers import Fields, Header, with_headers
from app.edge.request_rules import send_refusal
from app.requests.context import Login, Proof
from app.security.access_view import AccessView
from app.security.jwt import JwtChecks, is_jwt
from app.security.passwords import PasswordChecks, StoredPassword
from app.security.token_secrets import PREFIX
from catalog.core.authorisation import Caller, Grants, Principal
from catalog.core.credentials import digest_of
from catalog.core.errors import ErrorKind, RefusedError, StatementError
from rebalance.hosting.client_connections import network_of
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric


@dataclass(frozen=True, slots=True)
class PasswordCredential:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerCredential:
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LinkCredential:
    """The secret in the fragment of a one-time link."""

    secret: str = field(repr=False)


Credential = PasswordCredential | BearerCredential


def read_credential(headers: list[str]) -> Credential | None:
    """Read the credential of a request's Authorization headers; None: there is none. Raises ValueError, without
    the header's text, for more than one, another scheme, or one that cannot be read."""
    if not headers:
        return None
    if len(headers) > 1:
        raise ValueError("the request has more than one Authorization header")
    scheme, _, value = headers[0].strip().partition(" ")
    value = value.strip()
    match scheme.lower():
        case "basic":
            return _basic(value)
        case "bearer" if value:
            return BearerCredential(value)
    raise ValueError("Authorization has the scheme Basic or Bearer")


def _basic(value: str) -> PasswordCredential:
    try:
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        user = colon = ""
    if not colon or not user:
        raise ValueError("Authorization: Basic is followed by user:password in UTF-8, as base64")
    return PasswordCredential(user, password)


WINDOW_S = 60.0
BY_ADDRESS_MAX = 10
BY_USER_MAX = 5
"""Failures of one user at one address; fewer than of an address, so that a script with an old password leaves
room for other users behind the address."""
KEYS_MAX = 20_000
NAME_CHARS_MAX = 128
"""Characters of a name that are remembered: no user has a longer one, and strangers may send any."""

LOOPBACK = "loopback"

_Key = tuple[str, str | None]


class LoginLimits:
    """Counters of failed logins. A login that they refuse does not count as one."""

    def __init__(self) -> None:
        self._failures: OrderedDict[_Key, deque[float]] = OrderedDict()

    def wait_s(self, address: str, user: str, now: float) -> float:
        """Seconds until another login may be tried; 0.0: it may be now. ``now``: the time of a clock that never
        goes back."""
        network = _place(address)
        pairs = (((network, None), BY_ADDRESS_MAX), ((network, user[:NAME_CHARS_MAX]), BY_USER_MAX))
        return max(0.0, *(self._seconds(key, most, now) for key, most in pairs))

    def failed(self, address: str, user: str, now: float) -> None:
        network = _place(address)
        for key in ((network, None), (network, user[:NAME_CHARS_MAX])):
            self._recent(key, now).append(now)
            self._failures.move_to_end(key)
        while len(self._failures) > KEYS_MAX:
            self._failures.popitem(last=False)

    def _seconds(self, key: _Key, most: int, now: float) -> float:
        if key not in self._failures:
            return 0.0
        times = self._recent(key, now)
        if not times:
            del self._failures[key]
        return times[-most] + WINDOW_S - now if len(times) >= most else 0.0

    def _recent(self, key: _Key, now: float) -> deque[float]:
        times = self._failures.setdefault(key, deque(maxlen=BY_ADDRESS_MAX))
        while times and times[0] + WINDOW_S <= now:
            times.popleft()
        return times


def _place(address: str) -> str:
    """The network by which an address is counted. All loopback addresses are one: each user of the machine has
    all of them."""
    network = network_of(address)
    return LOOPBACK if network.startswith("127.") or network == network_of("::1") else network


log = structlog.get_logger(__name__)

WRONG_PASSWORD = "the user or the password is not right"
WRONG_TOKEN = "the token does not exist, has expired or was revoked: log in again with `zonectl login`"
WRONG_LINK = "the link does not exist, has expired or was used: `zonectl console-link` makes another"

_METHODS = {PasswordCredential: "password", BearerCredential: "token", LinkCredential: "link"}

UseLink = Callable[[str], Awaitable[Principal | None]]
"""Use a one-time link by its secret: its owner, the first time; else None. Raises StoreError."""


class LoginLimitedError(RefusedError):
    """Refusal of a login after too many failures. ``wait_s``: whole seconds until another one may be tried."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = math.ceil(wait_s)
        message = f"too many logins have failed from this address: try again in {self.wait_s} s"
        super().__init__(ErrorKind.LOGIN_LIMITED, message)


def utc_now_us() -> int:
    return time.time_ns() // 1_000


@dataclass(eq=False)
class LoginCheck:
    """Checks of credentials. ``clock``: seconds, monotonic. ``now_us``: microseconds since 1970."""

    access: AccessView
    passwords: PasswordChecks
    jwts: JwtChecks | None = None
    clock: Callable[[], float] = time.monotonic
    now_us: Callable[[], int] = utc_now_us
    use_link: UseLink | None = None
    measures: Measures = NO_MEASURES

    def __post_init__(self) -> None:
        self._limits = LoginLimits()

    async def login(self, credential: Credential | LinkCredential, address: str) -> Login:
        """The login that the credential proves. ``address``: that of the request's sender. Raises RefusedError
        (UNAUTHENTICATED, LOGIN_LIMITED) and StoreError (GRANTS_UNAVAILABLE)."""
        try:
            login = await self._login(credential, address)
        except StatementError as error:
            self.measures.count(Metric.LOGINS, _METHODS[type(credential)], error.kind.name)
            raise
        self.measures.count(Metric.LOGINS, _METHODS[type(credential)], "ok")
        return login

    async def _login(self, credential: Credential | LinkCredential, address: str) -> Login:
        grants = await self.access.grants()
        if isinstance(credential, PasswordCredential):
            return await self._by_password(credential, address, grants)
        if isinstance(credential, LinkCredential):
            return await self._by_link(credential, address)
        return await self._by_token(credential, address)

    async def _by_password(self, credential: PasswordCredential, address: str, grants: Grants) -> Login:
        name = credential.user.lower()
        self._require_room(address, name)
        user = grants.user(name)
        stored = StoredPassword(name, user.password_hash, user.changed_version) if user is not None else None
        is_right = await self.passwords.is_right(stored, credential.password, address)
        if user is None or not user.is_active or not is_right:
            raise self._failure(address, name, WRONG_PASSWORD)
        # Of guesses that were sent at the same time, the limit's number is told whether they are right.
        self._require_room(address, name)
        return Login(Caller(user.principal), Proof.PASSWORD, user_version=user.changed_version)

    async def _by_token(self, credential: BearerCredential, address: str) -> Login:
        """Log in with a token or a JWT. Wrong ones are counted, but never hold up a right one, since a token
        cannot be guessed."""
        text = credential.token
        digest = digest_of(text)
        if self.jwts is not None and is_jwt(text) and not text.startswith(PREFIX):
            try:
                identity = await self.jwts.identity(text)
            except RefusedError as error:
                raise self._failure(address, digest, error.message) from error
            caller = Caller(identity.principal, identity.roles)
            return Login(caller, Proof.JWT, expires_us=int(identity.expires_s * 1_000_000))
        token = await self.access.tokens.get(digest) if text.startswith(PREFIX) else None
        if token is None or not token.is_valid(self.now_us()) or not await self.access.has_active(token.owner):
            raise self._failure(address, digest, WRONG_TOKEN)
        return Login(Caller(token.owner, scope=token.scope), Proof.TOKEN, token, token.expires_us)

    async def _by_link(self, credential: LinkCredential, address: str) -> Login:
        """Log in with a one-time link. Wrong ones never hold up a right one, as with tokens."""
        owner = await self.use_link(credential.secret) if self.use_link is not None else None
        if owner is None or not await self.access.has_active(owner):
            raise self._failure(address, digest_of(credential.secret), WRONG_LINK)
        return Login(Caller(owner), Proof.LINK)

    def _require_room(self, address: str, name: str) -> None:
        """Raise RefusedError (LOGIN_LIMITED) after too many failures."""
        if wait_s := self._limits.wait_s(address, name, self.clock()):
            raise LoginLimitedError(wait_s)

    def _failure(self, address: str, name: str, reason: str) -> RefusedError:
        """Count a failure, and return its refusal. Raises RefusedError (LOGIN_LIMITED) after too many."""
        self._require_room(address, name)
        self._limits.failed(address, name, self.clock())
        log.info("login failed", address=address)
        return RefusedError(ErrorKind.UNAUTHENTICATED, reason)


NO_STORE: Header = (b"cache-control", b"no-store")
AGAIN_S = 2
"""Seconds after which a browser loads a page again that the server could not give."""


async def refuse(
    error: StatementError, scope: Scope, receive: Receive, send: Send, more: Iterable[Header] = ()
) -> None:
    """Send a refusal. ``more``: headers of the answer. Where the server is at fault a browser is told to load
    the page again: the refusal that it shows has no script that would."""
    headers = [*more, NO_STORE]
    if error.kind.http_status == HTTPStatus.SERVICE_UNAVAILABLE and is_navigation(scope):
        headers.append((b"refresh", str(AGAIN_S).encode()))
    if isinstance(error, LoginLimitedError):
        headers.append((b"retry-after", str(error.wait_s).encode()))
    await send_refusal(error, scope, receive, send, headers)


def is_navigation(scope: Scope) -> bool:
    """True if a browser asks for a page, which it will show."""
    is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    return is_read and "text/html" in Fields.of(scope).first(b"accept")


def uncached(send: Send) -> Send:
    """Forbid caches to store the answer, unless it has a rule of its own."""
    return with_headers(send, (NO_STORE,))
