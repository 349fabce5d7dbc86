"""Servers that answer as a test says, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from zonekeeper_client.routing_maps import RoutingMaps
from zonekeeper_client.servers import Servers

URL = "http://one:1"
ROUTING = "/api/v1/zones/ORDERS/routing"

Answer = Callable[[httpx.Request], httpx.Response]


class Network(httpx.AsyncBaseTransport):
    """Gives ``answers`` one after the other, the last one for ever. ``gate``: no answer before it is set."""

    def __init__(self, *answers: httpx.Response | Exception | Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.most_at_once = self._now = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self._now -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            return answer(request)
        # A fresh one each time: a response is read once.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def routing(
    version: int, *voters: str, zone_id: int = 7, key_hash: str = "murmur3-32", generation: int | None = 0
) -> httpx.Response:
    """A map of one partition; ``generation`` None: of a server that names none."""
    partition: dict[str, Any] = {"partition": 0, "voters": list(voters)}
    if generation is not None:
        partition["generation"] = generation
    body = {
        "zone": "ORDERS",
        "zone_id": zone_id,
        "key_hash": key_hash,
        "partitions": [partition],
        "version": version,
    }
    return httpx.Response(200, json=body, headers={"etag": f'W/"{zone_id}-{"-".join(voters)}-{generation}"'})


def problem(status: int, name: str) -> httpx.Response:
    body: dict[str, Any] = {"status": status, "name": name, "detail": f"this is {name}", "code": 4004}
    return httpx.Response(status, json=body)


def maps_over(network: Network, limit_s: float = 60.0) -> RoutingMaps:
    return RoutingMaps(Servers([URL], network), limit_s)
