"""Users, privileges and tokens as a server knows them: read from the catalog, and never older than two seconds
while the catalog answers. A value may be a second old; then it is read again while requests still use it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from catalog.core.authorisation import LOCAL, Grants, Principal
from catalog.core.credentials import NO_BASIS, AccessToken, LoginBasis
from catalog.core.errors import ErrorKind, StatementError, StoreError

T = TypeVar("T")

FRESH_S = 1.0
"""Age up to which a value is used as it is."""
HELD_S = 2.0
"""Age from which the reading, which begins at ``FRESH_S``, is awaited: a revocation takes effect on every
server by then."""
PATIENCE_S = 1.0
"""Longest wait for a reading while there is an older value."""
REFUSED_S = 10.0
"""Age from which a value is not used any more."""
KEPT_MAX = 10_000


@dataclass(eq=False)
class FreshValue(Generic[T]):
    """A value of the catalog, read again as it ages. ``read`` raises StatementError while the catalog does not
    answer."""

    read: Callable[[], Awaitable[T]]
    clock: Callable[[], float] = time.monotonic
    _known: tuple[T, float] | None = field(default=None, init=False)
    _reading: asyncio.Task[None] | None = field(default=None, init=False)

    async def get(self) -> T:
        """The value, read anew where it is too old. Raises StoreError (GRANTS_UNAVAILABLE) when nothing could
        be read for ``REFUSED_S``."""
        if self._known is not None and self._age() < FRESH_S:
            return self._known[0]
        if self._reading is None:
            self._reading = asyncio.create_task(self._refresh())
        if self._known is None or self._age() >= HELD_S:
            patience_s = REFUSED_S if self._known is None else PATIENCE_S
            await asyncio.wait({self._reading}, timeout=patience_s)
        if self._known is None or self._age() >= REFUSED_S:
            message = f"the catalog has not said for {REFUSED_S:g} s who may do what"
            raise StoreError(ErrorKind.GRANTS_UNAVAILABLE, message)
        return self._known[0]

    async def anew(self) -> T:
        """The value as of a moment after this call, if the catalog answers in time. Raises as ``get`` does."""
        if self._reading is not None:
            # It may have begun before.
            await asyncio.wait({self._reading}, timeout=PATIENCE_S)
        if self._reading is None:
            self._reading = asyncio.create_task(self._refresh())
        await asyncio.wait({self._reading}, timeout=PATIENCE_S)
        return await self.get()

    def is_since(self, moment_s: float) -> bool:
        """True if the value was read at or after this time of the clock: ``anew`` may return an older one."""
        return self._known is not None and self._known[1] >= moment_s

    def _age(self) -> float:
        assert self._known is not None, "asked of a value"
        return self.clock() - self._known[1]

    async def _refresh(self) -> None:
        # As old as the question: what changes meanwhile may not be in the answer.
        began_s = self.clock()
        try:
            self._known = (await self.read(), began_s)
        except StatementError:
            return
        finally:
            self._reading = None


@dataclass(eq=False)
class FreshValues(Generic[T]):
    """Values by key. Of more than ``KEPT_MAX`` those that were used longest ago are forgotten. All are when
    ``changes`` has grown: this server has changed something on which they depend."""

    read: Callable[[str], Awaitable[T]]
    clock: Callable[[], float] = time.monotonic
    changes: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        self._changes_read = self.changes()
        self._values: OrderedDict[str, FreshValue[T]] = OrderedDict()

    async def get(self, key: str) -> T:
        """The value of ``key``. Raises StoreError (GRANTS_UNAVAILABLE)."""
        changes = self.changes()
        if changes != self._changes_read:
            self._values.clear()
            self._changes_read = changes
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = FreshValue(partial(self.read, key), self.clock)
            while len(self._values) > KEPT_MAX:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return await value.get()

    def forget(self, key: str) -> None:
        """Forget the value of ``key``, which this server has changed."""
        self._values.pop(key, None)


class TokenStore(Protocol):
    """Tokens in the catalog's database, off the event loop. Each call raises StoreError."""

    async def token(self, digest: str) -> AccessToken | None: ...

    async def tokens(self, owner: Principal | None) -> tuple[AccessToken, ...]: ...

    async def add_token(self, token: AccessToken, basis: LoginBasis = NO_BASIS) -> None: ...

    async def revoke_token(self, token_id: str, now_us: int) -> None: ...


@dataclass(eq=False)
class AccessView:
    """View of users, privileges and tokens; one per server. ``changes`` grows with each change that this server
    has made: on this server they take effect at once. ``tokens``: by digest, also expired and
    revoked ones."""

    read_grants: Callable[[], Awaitable[Grants]]
    store: TokenStore
    clock: Callable[[], float] = time.monotonic
    changes: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        self._changes_read = self.changes()
        self._grants = FreshValue(self.read_grants, self.clock)
        self.tokens = FreshValues(self.store.token, self.clock, self.changes)

    async def grants(self) -> Grants:
        """Users, roles and grants. Raises StoreError (GRANTS_UNAVAILABLE)."""
        changes = self.changes()
        if changes == self._changes_read:
            return await self._grants.get()
        asked_s = self.clock()
        grants = await self._grants.anew()
        if self._grants.is_since(asked_s):
            self._changes_read = max(self._changes_read, changes)
        return grants

    async def has_active(self, owner: Principal) -> bool:
        """True if the owner of a stored token, link or session may log in. Grants are read anew before it is
        False, since the owner may be newer than those that are known. Raises StoreError
        (GRANTS_UNAVAILABLE)."""
        return _is_active(await self.grants(), owner) or _is_active(await self._grants.anew(), owner)


def _is_active(grants: Grants, owner: Principal) -> bool:
    user = grants.users.get(owner)
    return owner.source == LOCAL and user is not None and user.is_active
