"""The request that is being served: its sender, the proof of the sender's identity, and the request's id.

Context variables, because between the edge (outermost) and the commit (innermost, in the worker thread) lie
engines that need not know of them. There is no login where none is required, and for work of the
server's own. The id is in the answer, in every line of the log, and in the audit.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from structlog.contextvars import bound_contextvars

from catalog.core.audit import NOBODY, Actor
from catalog.core.authorisation import LOCAL, Caller, Held, Principal
from catalog.core.credentials import AccessToken, ConsoleSession, LoginBasis
from catalog.core.versions import CatalogSnapshot
from catalog.core.zone import Origin, ZoneId
from rebalance.hosting.client_connections import let_in

T = TypeVar("T")


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """The variable has the value inside the block, in this task and in tasks that it begins."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


_ACTOR: ContextVar[Actor] = ContextVar("actor", default=NOBODY)


def current_actor() -> Actor:
    """``NOBODY`` outside of requests."""
    return _ACTOR.get()


def current_caller() -> Caller | None:
    """Caller that is authorised for the current work. None if no login is required, and for work that a server
    does by itself."""
    return _ACTOR.get().caller


def current_principal() -> Principal | None:
    """Principal of the current work; None if there is no caller."""
    caller = current_caller()
    return None if caller is None else caller.principal


def current_scope() -> Held | None:
    """The scope of what is being done now; None: all that its principal may."""
    caller = current_caller()
    return None if caller is None else caller.scope


def seen_zones(catalog: CatalogSnapshot) -> frozenset[ZoneId] | None:
    """Zones that may be shown to the caller; None: all, also those that are gone."""
    caller = current_caller()
    return (
        None if caller is None else caller.seen_zones(catalog.grants, (zone.zone_id for zone in catalog.zones))
    )


def current_origin() -> Origin:
    """Origin of a change of the metastore's keys: the current actor, and the reason."""
    actor = current_actor()
    return Origin(actor.name, actor.verified, actor.reason)


def acting(actor: Actor) -> AbstractContextManager[None]:
    """Set the actor for whom the block runs."""
    return holding(_ACTOR, actor)


class Proof(Enum):
    PASSWORD = "PASSWORD"
    TOKEN = "TOKEN"
    JWT = "JWT"
    LINK = "LINK"
    SESSION = "SESSION"


@dataclass(frozen=True, slots=True)
class Login:
    """``token`` or ``session``: the one that it was proved with. ``expires_us``: when that ends, microseconds
    since 1970; None: a password does not. ``acts_for``: the user that a statement names, where that is another
    one. ``user_version``: that had changed the user last when the password was compared."""

    caller: Caller
    proof: Proof
    token: AccessToken | None = None
    expires_us: int | None = None
    acts_for: str = ""
    session: ConsoleSession | None = None
    user_version: int | None = None

    @property
    def basis(self) -> LoginBasis:
        return LoginBasis(self.token.digest if self.token is not None else None, self.user_version)

    @property
    def shown_name(self) -> str:
        """Name for the audit: of users of the catalog without their source, of others with it. If a statement
        names another user, both are given."""
        principal = self.caller.principal
        name = principal.name if principal.source == LOCAL else str(principal)
        return f"{name} for {self.acts_for}" if self.acts_for else name


_LOGIN: ContextVar[Login | None] = ContextVar("login", default=None)


def current_login() -> Login | None:
    return _LOGIN.get()


def logged_in(login: Login) -> AbstractContextManager[None]:
    """Set the login by which the work of the block is authorised."""
    let_in()
    return holding(_LOGIN, login)


HEADER = "X-Request-Id"
PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
BYTES = 16

_REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """Empty outside of requests."""
    return _REQUEST_ID.get()


def request_id_of(values: Sequence[bytes]) -> str:
    """The one that a proxy or client has given, if it is the only one and well-formed; else a new one: what
    stands in a log must not be what a client likes."""
    if len(values) == 1 and re.fullmatch(PATTERN.encode(), values[0]):
        return values[0].decode("ascii")
    return secrets.token_hex(BYTES)


@contextmanager
def requested(request_id: str) -> Iterator[None]:
    """Set the request for which the block runs, here and in its log lines."""
    with holding(_REQUEST_ID, request_id), bound_contextvars(request_id=request_id):
        yield
