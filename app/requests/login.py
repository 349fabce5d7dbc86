"""What a request has proved of its sender: a context variable beside ``app.requests.actor``, asked whether the
sender may do something. None where nobody has to log in, and for the work that a server does by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum

from catalog.core.access_tokens import AccessToken, LoginBasis
from catalog.core.authorisation import Caller
from catalog.core.principals import LOCAL
from catalog.core.sessions import ConsoleSession
from rebalance.hosting.stranger_share import let_in


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
        """For the audit: users of the catalog by their names, others with their source, both where two are
        named."""
        principal = self.caller.principal
        name = principal.name if principal.source == LOCAL else str(principal)
        return f"{name} for {self.acts_for}" if self.acts_for else name


_CURRENT: ContextVar[Login | None] = ContextVar("login", default=None)


def current_login() -> Login | None:
    return _CURRENT.get()


@contextmanager
def logged_in(login: Login) -> Iterator[None]:
    """What runs inside the block, in this task or in tasks that it begins, is authorised for ``login``."""
    let_in()
    before = _CURRENT.set(login)
    try:
        yield
    finally:
        _CURRENT.reset(before)
