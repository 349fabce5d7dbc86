"""Transports between a client and its servers that change the routing maps which it gets."""

from __future__ import annotations

import json
import ssl
from abc import abstractmethod

import httpx


class RewrittenRouting(httpx.AsyncBaseTransport):
    """All else passes as it is."""

    def __init__(self, authority: str) -> None:
        """``authority``: PEM, of the servers' certificates; empty: they have none."""
        verify = ssl.create_default_context(cadata=authority) if authority else True
        self._transport = httpx.AsyncHTTPTransport(verify=verify)

    @abstractmethod
    async def voters(self, urls: list[str]) -> list[str]:
        """URLs that the client gets instead of ``urls``, a partition's voters in order of preference."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._transport.handle_async_request(request)
        if response.status_code != httpx.codes.OK or not request.url.path.endswith("/routing"):
            return response
        body = json.loads(await response.aread())
        await response.aclose()
        for partition in body["partitions"]:
            partition["voters"] = await self.voters(partition["voters"])
        return httpx.Response(200, json=body, headers={"etag": response.headers["etag"]})

    async def aclose(self) -> None:
        await self._transport.aclose()


class RotatedRouting(RewrittenRouting):
    """Routing that prefers not the leader but the voter at a place of theirs in order of URLs: so a client goes
    on asking a member that all others avoid."""

    def __init__(self, authority: str, place: int) -> None:
        super().__init__(authority)
        self._place = place

    async def voters(self, urls: list[str]) -> list[str]:
        ordered, first = sorted(urls), self._place % max(len(urls), 1)
        return [*ordered[first:], *ordered[:first]]
