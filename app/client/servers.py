"""The API servers of one installation: any of them answers, and the next one is asked when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import httpx

from app.client.errors import ClientError, refusal
from app.client.problem import ProblemDocument, json_object
from app.client.requests import TIMEOUT_FIELD, TIMEOUT_MAX_S, Request
from rebalance.hosting.tls_handshakes import SharedContext, closed_handshakes

T = TypeVar("T")

CONNECT_LIMIT_S = 2.0
HUNG_AFTER_S = 5.0
"""With several servers, one that does not answer for so long is left for the next one. What was asked is
repeated there, so only what may be repeated is sent through here."""


UNDONE = frozenset(
    {
        *("WRONG_GENERATION", "PARTITION_FULL", "PARTITION_UNAVAILABLE", "PARTITION_LOST", "OWNERS_AWAITED"),
        *("PARTITION_BUSY", "METASTORE_UNAVAILABLE"),
    }
)
"""Names of errors (5xx) after which nothing was written."""


class ServerFailedError(ClientError):
    """One attempt at one server failed; the same request may be sent again, to another one. ``may_be_done``:
    what it asks for may have been carried out, or may yet be."""

    def __init__(self, message: str, *, may_be_done: bool = False) -> None:
        super().__init__(message)
        self.may_be_done = may_be_done


class Servers:
    """Belongs to one event loop; ``close`` it. ``token`` is sent with every request. ``authority`` (PEM) has
    signed the servers' certificates; empty: one that the system trusts. ``transport`` replaces the network in
    tests."""

    def __init__(
        self,
        urls: Sequence[str],
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        token: str = "",
        authority: str = "",
    ) -> None:
        """Raises ValueError, for a token that would be sent without TLS, too."""
        if not urls:
            raise ValueError("a client needs the URL of at least one server")
        self._urls = [url.rstrip("/") for url in urls]
        plain = [url for url in self._urls if not url.startswith("https://")]
        if token and plain:
            raise ValueError(f"a token is sent over HTTPS only, and {plain[0]} is not")
        # The environment's proxies are for the outside; a Zonekeeper is on this machine or near.
        self._http = httpx.AsyncClient(
            transport=transport,
            trust_env=False,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=SharedContext.trusting(authority),
        )
        self._turn = 0

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, request: Request[T], limit_s: float) -> httpx.Response:
        """One attempt, at most ``limit_s``, as the server is told. The answer is a success or a 304.

        Raises ServerFailedError when repeating may help, RefusedByServerError when it cannot.
        """
        turn = self._turn
        url = self._urls[turn % len(self._urls)]
        whole_s = min(limit_s, HUNG_AFTER_S) if len(self._urls) > 1 else limit_s
        stated = {TIMEOUT_FIELD: f"{min(max(whole_s, 0.001), TIMEOUT_MAX_S):.3f}"}
        try:
            async with asyncio.timeout(whole_s):
                response = await self._http.request(
                    request.method,
                    f"{url}{request.path}",
                    json=request.body,
                    headers={**request.headers, **stated},
                    extensions=closed_handshakes(),
                    timeout=httpx.Timeout(whole_s, connect=min(whole_s, CONNECT_LIMIT_S)),
                )
        except (TimeoutError, httpx.TransportError) as error:
            self._turn_away(turn)
            was_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise ServerFailedError(f"{url}: {error!r}", may_be_done=was_sent) from error
        if response.is_success or response.status_code == httpx.codes.NOT_MODIFIED:
            return response
        problem = ProblemDocument.from_body(response.status_code, json_object(response) or {})
        if response.is_server_error:
            self._turn_away(turn)
            raise ServerFailedError(f"{url}: {problem.headline()}", may_be_done=problem.name not in UNDONE)
        raise refusal(problem)

    def _turn_away(self, turn: int) -> None:
        # Calls that fail together at one server move on by one, not by as many as they are.
        if self._turn == turn:
            self._turn += 1
