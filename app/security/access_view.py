"""What a server knows of users, privileges and tokens: read from the catalog, and never older than two seconds
as long as that answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from app.security.fresh_value import FreshValue, FreshValues
from catalog.core.access_tokens import NO_BASIS, AccessToken, LoginBasis
from catalog.core.authorisation import Grants
from catalog.core.principals import LOCAL, Principal


class TokenStore(Protocol):
    """The catalog's database, off the event loop. Each call raises StoreError."""

    async def token(self, digest: str) -> AccessToken | None: ...

    async def tokens(self, owner: Principal | None) -> tuple[AccessToken, ...]: ...

    async def add_token(self, token: AccessToken, basis: LoginBasis = NO_BASIS) -> None: ...

    async def revoke_token(self, token_id: str, now_us: int) -> None: ...


class AccessView:
    """One per server."""

    def __init__(
        self,
        grants: Callable[[], Awaitable[Grants]],
        store: TokenStore,
        clock: Callable[[], float] = time.monotonic,
        changes: Callable[[], int] = lambda: 0,
    ) -> None:
        """``changes`` grows with each change that this server has made: they hold on it at once."""
        self.changes = changes
        self._changes_read = changes()
        self.store = store
        self._grants = FreshValue(grants, clock)
        self._tokens = FreshValues(store.token, clock, changes)

    async def grants(self) -> Grants:
        """Raises StoreError (GRANTS_UNAVAILABLE)."""
        changes = self.changes()
        if changes == self._changes_read:
            return await self._grants.get()
        grants = await self._grants.anew()
        self._changes_read = max(self._changes_read, changes)
        return grants

    async def has_active(self, owner: Principal) -> bool:
        """Whether the owner of what the catalog has kept, a token, a link or a session, may log in: what it was
        made for may be newer than the grants that are known. Raises StoreError (GRANTS_UNAVAILABLE)."""
        return _is_active(await self.grants(), owner) or _is_active(await self._grants.anew(), owner)

    async def token(self, digest: str) -> AccessToken | None:
        """Also one that has expired or was revoked. Raises StoreError (GRANTS_UNAVAILABLE)."""
        return await self._tokens.get(digest)

    def forget(self, digest: str) -> None:
        """Of a token that was changed by this server."""
        self._tokens.forget(digest)


def _is_active(grants: Grants, owner: Principal) -> bool:
    user = grants.users.get(owner)
    return owner.source == LOCAL and user is not None and user.is_active
