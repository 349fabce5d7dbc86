"""Puts and gets straight at those who keep the key. They outlive moves: each attempt goes to one of them, and
any failure sends it to the next one, or to where a newer routing map says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from zonekeeper_client.errors import (
    ClientError,
    ConditionFailedError,
    OutcomeUnknownError,
    ReadTimedOutError,
    RefusedByServerError,
    ServersUnavailableError,
)
from zonekeeper_client.routing_maps import STORE_ENGINE, Partition, Route, RoutingMap, RoutingMaps
from zonekeeper_client.servers import Pause
from zonekeeper_client.store_servers import StoreServers
from zonekeeper_client.tls import ShownCertificate, TlsFiles
from zonekeeper_client.writes import AttemptFailedError, Row, Write, Written

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE = Pause(0.02, 0.25)
"""Pause after all members were asked: an election, or an exchange of the partition map, may end meanwhile."""
ROUTELESS_S = 1.0
AVOIDED_S = 1.0
"""A member that failed is asked last for this long."""

Attempt = Callable[[str, int | None, float], Awaitable[T]]
"""Attempt at a URL, with the generation that the route names and a limit in seconds."""


class Engine(Protocol):
    """One attempt at one member. Both raise AttemptFailedError and RefusedByServerError, ``put`` also
    ConditionFailedError and OperationAbandonedError. ``attempt_limits_s``: of the first attempts, and the last
    one of those that follow."""

    @property
    def attempt_limits_s(self) -> tuple[float, ...]: ...

    async def put(
        self, url: str, partition: Partition, generation: int | None, write: Write, limit_s: float
    ) -> Written: ...

    async def get(
        self, url: str, partition: Partition, generation: int | None, key: str, limit_s: float
    ) -> Row: ...

    async def close(self) -> None: ...


class DirectPath:
    """One per client and event loop; ``close`` it. ``tls``: for members that ask for a certificate."""

    def __init__(self, maps: RoutingMaps, tls: TlsFiles | None) -> None:
        """Raises OSError for files that are no certificate."""
        self._maps = maps
        self._certificate = None if tls is None else ShownCertificate(tls)
        self._engines: dict[str, Engine] = {}
        self._failed_at: dict[str, float] = {}

    async def close(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))

    async def put(self, held: RoutingMap, write: Write, limit_s: float) -> Written:
        """Raises OutcomeUnknownError after the time limit, or ServersUnavailableError when nothing can have
        been written; and what ``Engine.put`` raises."""
        partition, engine = held.partition_of(write.key), self._engine(held)
        return await self._repeated(
            partition,
            engine.attempt_limits_s,
            limit_s,
            lambda url, generation, call_s: engine.put(url, partition, generation, write, call_s),
        )

    async def get(self, held: RoutingMap, key: str, limit_s: float) -> Row:
        """Linearizable. Raises ReadTimedOutError, RefusedByServerError."""
        partition, engine = held.partition_of(key), self._engine(held)
        try:
            return await self._repeated(
                partition,
                engine.attempt_limits_s,
                limit_s,
                lambda url, generation, call_s: engine.get(url, partition, generation, key, call_s),
            )
        except (OutcomeUnknownError, ServersUnavailableError) as error:
            raise ReadTimedOutError(str(error)) from error

    def _engine(self, held: RoutingMap) -> Engine:
        engine = self._engines.get(held.engine)
        if engine is None:
            engine = self._engines[held.engine] = self._made(held.engine)
        return engine

    def _made(self, engine: str) -> Engine:
        if engine == STORE_ENGINE:
            return StoreServers(self._maps.lists, self._certificate)
        try:
            from zonekeeper_client.etcd_members import EtcdMembers
        except ImportError as error:
            raise ClientError(
                f"direct reads and writes of etcd groups need gRPC ({error}): "
                "pip install 'zonekeeper-client[direct]'"
            ) from error
        return EtcdMembers(self._maps.lists, self._certificate)

    async def _repeated(
        self, partition: Partition, limits_s: tuple[float, ...], whole_s: float, attempt: Attempt[T]
    ) -> T:
        clock = asyncio.get_running_loop().time
        deadline, pause, seen = clock() + whole_s, PAUSE, Route()
        waiting: list[str] = []
        attempts, reason, may_be_done = 0, "", False
        while (left_s := deadline - clock()) > 0:
            route = self._maps.route(partition)
            if route != seen:
                seen, waiting = route, self._ordered(route.voters)
            if not waiting:
                pause = pause.longer()
                rest_s = pause.drawn_s if route.voters else ROUTELESS_S
                await self._maps.wait_for_change(partition, route, min(rest_s, left_s))
                waiting = self._ordered(route.voters)
                continue
            url, call_s = waiting.pop(0), min(limits_s[min(attempts, len(limits_s) - 1)], left_s)
            attempts += 1
            try:
                return await attempt(url, route.generation, call_s)
            except AttemptFailedError as failed:
                reason = f"{url}: {failed}"
                may_be_done |= failed.may_be_done
                log.debug("attempt %d of partition %s failed at %s", attempts, partition, reason)
                self._maps.doubt(partition)
                if not failed.is_well:
                    recent = {other: at for other, at in self._failed_at.items() if clock() - at < AVOIDED_S}
                    self._failed_at = recent | {url: clock()}
                waiting = [] if failed.is_map_old else sorted(waiting, key=failed.names, reverse=True)
            except (ConditionFailedError, RefusedByServerError) as failed:
                # A revision never comes again; any other attempt that is late may yet be carried out.
                is_over = isinstance(failed, ConditionFailedError) and not failed.wants_absence
                if not may_be_done or is_over:
                    raise
                raise OutcomeUnknownError(f"partition {partition}: {failed}, after {reason}") from failed
        if not attempts:
            why = "" if seen.voters else ": no member of it is known"
            raise ServersUnavailableError(f"partition {partition}: nobody was asked in time{why}")
        message = f"partition {partition}: no answer within {whole_s:.3g} s after {attempts} attempts"
        message += f"; last: {reason}"
        raise OutcomeUnknownError(message) if may_be_done else ServersUnavailableError(message)

    def _ordered(self, urls: tuple[str, ...]) -> list[str]:
        """URLs in the order of attempts: those that failed a moment ago last, the oldest failure first."""
        earliest = asyncio.get_running_loop().time() - AVOIDED_S
        return sorted(urls, key=lambda url: max(self._failed_at.get(url, 0.0), earliest))
