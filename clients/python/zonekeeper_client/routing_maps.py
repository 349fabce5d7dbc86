"""The routing maps of a client, read from the API's JSON, and when they are fetched again."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import mmh3

from zonekeeper_client.errors import ClientError, JsonObject, RefusedByServerError, ServersUnavailableError
from zonekeeper_client.servers import Answer, Pause, ServerFailedError, Servers, routing_request

KEY_HASH_NAME = "murmur3-32"
GROUPS_ENGINE, STORE_ENGINE = "etcd", "store"


class Partition(NamedTuple):
    """A partition of a zone."""

    zone_id: int
    number: int

    def __str__(self) -> str:
        return f"{self.zone_id}/{self.number}"


@dataclass(frozen=True, slots=True)
class Route:
    """URLs to ask, the preferred one first. ``generation``: that of the group; None: any."""

    voters: tuple[str, ...] = ()
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class RoutingMap:
    """``routes[n]``: the voters of partition n, and the generation of its group; or the store servers of its
    owners. Of two maps the one with the higher ``version`` is the newer; ``tag`` (an ETag) says whether two are
    the same."""

    zone_id: int
    routes: tuple[Route, ...]
    version: int
    tag: str
    engine: str = GROUPS_ENGINE

    @classmethod
    def decode(cls, body: JsonObject, tag: str) -> Self:
        """Raises ClientError when the servers hash keys in a way that this client does not know."""
        if body["key_hash"] != KEY_HASH_NAME:
            raise ClientError(
                f"the server hashes keys by {body['key_hash']}; this client knows {KEY_HASH_NAME}"
            )
        routes = tuple(Route(tuple(each["voters"]), each.get("generation")) for each in body["partitions"])
        return cls(body["zone_id"], routes, body["version"], tag, body.get("engine", GROUPS_ENGINE))

    def partition_of(self, key: str) -> Partition:
        return Partition(self.zone_id, key_hash(key) % len(self.routes))


def key_hash(key: str) -> int:
    """MurmurHash3 x86 32-bit, seed 0, of the key in UTF-8, unsigned. Frozen: keys lie where it says."""
    return int(mmh3.hash(key.encode(), 0, signed=False))


log = logging.getLogger(__name__)

PAUSE = Pause(0.05, 1.0)
"""Between two fetches of a map that turned out to be the same; grows, and starts anew with each new map."""
MAP_VERSION_FIELD = "Zonekeeper-Map-Version"


@dataclass(slots=True)
class RoutedZone:
    """``fetch``: the only one under way. ``answered`` is set, and replaced, when it ends. ``not_before``: the
    earliest start of the next one, a ``pause`` after the last."""

    name: str
    map: RoutingMap | None = None
    fetch: asyncio.Task[None] | None = None
    pause: Pause = PAUSE
    not_before: float = 0.0
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class RoutingMaps:
    """One per client and event loop; ``close`` it. Each zone's map is fetched once, and again when a member
    that it lists fails or is of another generation: never twice at the same time, however many calls fail
    together."""

    def __init__(self, servers: Servers, time_limit_s: float) -> None:
        self._servers = servers
        self._time_limit_s = time_limit_s
        self._zones: dict[str, RoutedZone] = {}
        self._by_id: dict[int, tuple[RoutedZone, RoutingMap]] = {}

    async def of(self, zone: str) -> RoutingMap:
        """The map that is held, or a new one. Raises ServersUnavailableError, RefusedByServerError."""
        held = self._zones.setdefault(zone, RoutedZone(zone))
        if held.map is None:
            # Shielded: others wait for the same fetch.
            await asyncio.shield(self._fetching(held))
        assert held.map is not None
        return held.map

    def route(self, partition: Partition) -> Route:
        held = self._by_id.get(partition.zone_id)
        return held[1].routes[partition.number] if held is not None else Route()

    def lists(self, url: str) -> bool:
        """Any of the maps has it."""
        return any(url in route.voters for _, held in self._by_id.values() for route in held.routes)

    async def wait_for_change(self, partition: Partition, seen: Route, timeout_s: float) -> None:
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

    def doubt(self, partition: Partition) -> None:
        """A listed member did not answer, or is of another group or generation. Returns at once."""
        held = self._by_id.get(partition.zone_id)
        if held is not None:
            self._fetching(held[0])

    async def close(self) -> None:
        under_way = [zone.fetch for zone in self._zones.values() if zone.fetch is not None]
        for fetch in under_way:
            fetch.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _fetching(self, zone: RoutedZone) -> asyncio.Task[None]:
        if zone.fetch is None or zone.fetch.done():
            zone.fetch = asyncio.create_task(self._fetch(zone), name=f"routing map of {zone.name}")
            zone.fetch.add_done_callback(lambda ended: _note_end(zone, ended))
        return zone.fetch

    async def _fetch(self, zone: RoutedZone) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(zone.not_before - clock(), 0.0))
        request = routing_request(zone.name, None if zone.map is None else zone.map.tag)
        try:
            answer = await self._servers.answered(request, self._time_limit_s)
        except ServerFailedError as failed:
            raise ServersUnavailableError(f"no routing map of zone {zone.name}: {failed}") from failed
        except RefusedByServerError:
            # Calls under way go on with the addresses that they have: what they sent may have been applied.
            zone.map = None
            raise
        is_new = self._take(zone, answer)
        zone.pause = (PAUSE if is_new else zone.pause).longer()
        zone.not_before = clock() + zone.pause.drawn_s

    def _take(self, zone: RoutedZone, answer: Answer) -> bool:
        """True for another map. An answer of a server whose view is older than the one held is left aside."""
        held = zone.map
        if answer.is_unchanged and held is not None:
            version = int(answer.headers.get(MAP_VERSION_FIELD, held.version))
            self._hold(zone, replace(held, version=max(held.version, version)))
            return False
        fetched = RoutingMap.decode(answer.body, answer.headers.get("etag", ""))
        if held is not None and fetched.version < held.version:
            return False
        self._hold(zone, fetched)
        log.debug("routing map of zone %s, version %d", zone.name, fetched.version)
        return held is None or held.tag != fetched.tag

    def _hold(self, zone: RoutedZone, fetched: RoutingMap) -> None:
        zone.map = fetched
        self._by_id[fetched.zone_id] = zone, fetched


def _note_end(zone: RoutedZone, ended: asyncio.Task[None]) -> None:
    zone.answered.set()
    zone.answered = asyncio.Event()
    if not ended.cancelled() and ended.exception() is not None:
        log.debug("no routing map of zone %s: %s", zone.name, ended.exception())
