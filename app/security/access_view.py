"""What a server knows of users, privileges and tokens: read from the catalog, and never older than two seconds
as long as that answers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from app.security.fresh_value import FreshValue
from catalog.core.access_tokens import AccessToken
from catalog.core.authorisation import Grants
from catalog.core.principals import Principal

TOKENS_KEPT_MAX = 10_000


class TokenStore(Protocol):
    """The catalog's database, off the event loop. Each call raises StoreError."""

    async def token(self, digest: str) -> AccessToken | None: ...

    async def tokens(self, owner: Principal | None) -> tuple[AccessToken, ...]: ...

    async def add_token(self, token: AccessToken) -> None: ...

    async def revoke_token(self, token_id: str, now_us: int) -> None: ...


class AccessView:
    """One per server."""

    def __init__(
        self,
        grants: Callable[[], Awaitable[Grants]],
        store: TokenStore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self._clock = clock
        self._grants = FreshValue(grants, clock)
        self._tokens: OrderedDict[str, FreshValue[AccessToken | None]] = OrderedDict()

    async def grants(self) -> Grants:
        """Raises StoreError (GRANTS_UNAVAILABLE)."""
        return await self._grants.get()

    async def token(self, digest: str) -> AccessToken | None:
        """Also one that has expired or was revoked. Raises StoreError (GRANTS_UNAVAILABLE)."""
        value = self._tokens.get(digest)
        if value is None:
            value = FreshValue(partial(self.store.token, digest), self._clock)
            self._tokens[digest] = value
            while len(self._tokens) > TOKENS_KEPT_MAX:
                self._tokens.popitem(last=False)
        self._tokens.move_to_end(digest)
        return await value.get()

    def forget(self, digest: str) -> None:
        """Of a token that was changed by this server."""
        self._tokens.pop(digest, None)
