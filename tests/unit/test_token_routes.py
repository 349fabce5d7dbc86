"""A token that goes from the catalog while it is revoked."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from app.api.tokens import revoke_token
from app.requests.context import Login, Proof, logged_in
from app.security.access_view import AccessView
from catalog.core.authorisation import Caller
from catalog.core.credentials import digest_of
from tests.fixtures.access_world import MemoryAccess
from tests.fixtures.partial_services import services_with


class Purging(MemoryAccess):
    """A catalog from which another server removes tokens as soon as they are revoked."""

    async def revoke_token(self, token_id: str, now_us: int) -> None:
        self.kept.clear()


async def test_the_answer_shows_a_token_that_is_gone_as_revoked() -> None:
    async def record(*_: Any) -> None:
        """Keep nothing."""

    store = Purging()
    token = store.kept[digest_of(store.issued("anna"))]
    services = services_with(access=AccessView(store.grants, store), audit=SimpleNamespace(record=record))
    with logged_in(Login(Caller(token.owner), Proof.PASSWORD)):
        answer = await revoke_token(token.token_id, services)
    body = json.loads(answer.body)
    assert body["token_id"] == token.token_id
    assert body["revoked_at"] is not None
