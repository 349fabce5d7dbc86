"""The routing maps of a client, and when they are fetched again: the ``EndpointSource`` of its router."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field, replace

import httpx
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from app.client import requests
from app.client.errors import ClientError, RefusedByServerError, ServersUnavailableError
from app.client.problem import json_object
from app.client.routing_map import RoutingMap
from app.client.servers import ServerFailedError, Servers
from catalog.core.zone import ZoneId
from rebalance.core.backoff import Backoff
from rebalance.core.keys import PartitionId
from rebalance.ports.groups import Route

log = logging.getLogger(__name__)
"""Users' programs import this: what they print is theirs."""

FETCH_LIMIT_S = 5.0
RETRY_S, RETRY_MAX_S = 0.05, 1.0
PAUSE = Backoff(0.05, 1.0)
"""Between two fetches of a map that turned out to be the same; grows, and starts anew with each new map."""
VERSION_HEADER = "Zonekeeper-Map-Version"


@dataclass(slots=True)
class _RoutedZone:
    """``fetch``: the only one under way. ``answered`` is set, and replaced, when it ends. ``not_before``: the
    earliest start of the next one, a ``pause`` after the last."""

    name: str
    map: RoutingMap | None = None
    fetch: asyncio.Task[None] | None = None
    pause: Backoff = PAUSE
    not_before: float = 0.0
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class RoutingMaps:
    """One per client and event loop; ``close`` it. Each zone's map is fetched once, and again when a member
    that it lists fails or is of another generation: never twice at the same time, however many calls fail
    together."""

    def __init__(self, servers: Servers, time_limit_s: float) -> None:
        self._servers = servers
        self._time_limit_s = time_limit_s
        self._zones: dict[str, _RoutedZone] = {}
        self._by_id: dict[ZoneId, tuple[_RoutedZone, RoutingMap]] = {}
        self._random = random.Random()

    async def of(self, zone: str) -> RoutingMap:
        """The map that is held, or a new one. Raises ServersUnavailableError, RefusedByServerError."""
        held = self._zones.setdefault(zone, _RoutedZone(zone))
        if held.map is None:
            # Shielded: others wait for the same fetch.
            await asyncio.shield(self._fetching(held))
        assert held.map is not None
        return held.map

    def route(self, partition: PartitionId) -> Route:
        held = self._by_id.get(partition.zone_id)
        return held[1].routes[partition.partition] if held is not None else Route()

    def learners(self, partition: PartitionId) -> tuple[str, ...]:
        """None: reads from learners go through a server, which knows what each of them holds."""
        return ()

    async def wait_for_change(self, partition: PartitionId, seen: Route, timeout_s: float) -> None:
        """Fetches while it waits. Calls wait only in zones whose map was held once."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        zone, _ = self._by_id[partition.zone_id]
        while self.route(partition) == seen:
            answered = zone.answered
            self._fetching(zone)
            try:
                async with asyncio.timeout_at(deadline):
                    await answered.wait()
            except TimeoutError:
                return

    def doubt(self, partition: PartitionId) -> None:
        held = self._by_id.get(partition.zone_id)
        if held is not None:
            self._fetching(held[0])

    async def close(self) -> None:
        under_way = [zone.fetch for zone in self._zones.values() if zone.fetch is not None]
        for fetch in under_way:
            fetch.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _fetching(self, zone: _RoutedZone) -> asyncio.Task[None]:
        if zone.fetch is None or zone.fetch.done():
            zone.fetch = asyncio.create_task(self._fetch(zone), name=f"routing map of {zone.name}")
            zone.fetch.add_done_callback(lambda ended: _note_end(zone, ended))
        return zone.fetch

    async def _fetch(self, zone: _RoutedZone) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(zone.not_before - clock(), 0.0))
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(ServerFailedError),
            wait=wait_random_exponential(multiplier=RETRY_S, max=RETRY_MAX_S),
            stop=stop_after_delay(self._time_limit_s),
            reraise=True,
        )
        request = requests.routing(zone.name, None if zone.map is None else zone.map.tag)
        try:
            async for attempt in attempts:
                with attempt:
                    response = await self._servers.ask(request, min(FETCH_LIMIT_S, self._time_limit_s))
        except ServerFailedError as failed:
            raise ServersUnavailableError(f"no routing map of zone {zone.name}: {failed}") from failed
        except RefusedByServerError:
            # Calls under way go on with the addresses that they have: what they sent may have been applied.
            zone.map = None
            raise
        is_new = self._take(zone, response)
        zone.pause = (PAUSE if is_new else zone.pause).failed()
        zone.not_before = clock() + zone.pause.delay_s(self._random.random())

    def _take(self, zone: _RoutedZone, response: httpx.Response) -> bool:
        """True for another map. An answer of a server whose view is older than the one held is left aside."""
        held = zone.map
        if response.status_code == httpx.codes.NOT_MODIFIED and held is not None:
            version = int(response.headers.get(VERSION_HEADER, held.version))
            self._hold(zone, replace(held, version=max(held.version, version)))
            return False
        body = json_object(response)
        if body is None:
            raise ClientError(f"the routing map of zone {zone.name} is no JSON object")
        fetched = RoutingMap.decode(body, response.headers.get("etag", ""))
        if held is not None and fetched.version < held.version:
            return False
        self._hold(zone, fetched)
        log.debug("routing map of zone %s, version %d", zone.name, fetched.version)
        return held is None or held.tag != fetched.tag

    def _hold(self, zone: _RoutedZone, fetched: RoutingMap) -> None:
        zone.map = fetched
        self._by_id[fetched.zone_id] = zone, fetched


def _note_end(zone: _RoutedZone, ended: asyncio.Task[None]) -> None:
    zone.answered.set()
    zone.answered = asyncio.Event()
    if not ended.cancelled() and ended.exception() is not None:
        log.debug("no routing map of zone %s: %s", zone.name, ended.exception())
