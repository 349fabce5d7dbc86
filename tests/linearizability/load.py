"""Clients that read and write a few keys for as long as a run goes on, and note what they were told."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from rebalance.data.zone_router import TIME_LIMIT_S
from rebalance.hosting.tls import TlsFiles
from tests.fixtures.local_access import NO_LOGIN, ClientLogin
from tests.linearizability.history import Action, Recorder
from tests.linearizability.lossy_network import LossyNetwork, LossyRouting
from tests.linearizability.rewritten_routing import RotatedRouting
from zonekeeper_client import Mode, OutcomeUnknownError, ReadTimedOutError, ServersUnavailableError, ZoneClient

REGISTERS = 6
PAUSE_S, BUSY_PAUSE_S = 0.2, 0.01
"""Seconds of a client's pause after each operation; the long runs are the busy ones."""
READS_MAX = 20
"""Most reads of one key in the end, each with the time limit of a client: a busy machine may need some."""
ONCE_SHARE = 0.1
"""Share of puts to a key of their own, which is written only once: a lost one shows in the end."""
SPREAD_PLACES = 3
NO_ANSWER = (ReadTimedOutError, ServersUnavailableError, OutcomeUnknownError)


class Way(Enum):
    """Route by which a client reaches its key. LOSSY: straight to the groups, through a network that loses
    answers. SPREAD: straight to them, and each client prefers another voter."""

    DIRECT = "DIRECT"
    ROUTED = "ROUTED"
    LOSSY = "LOSSY"
    SPREAD = "SPREAD"


CLIENTS = {Way.DIRECT: 3, Way.ROUTED: 3, Way.LOSSY: 3}


@dataclass
class Figures:
    """Figures of one way, in seconds; the time of an operation that was never answered counts as well."""

    puts: list[float] = field(default_factory=list)
    gets: list[float] = field(default_factory=list)
    unknown: int = 0
    unanswered_gets: int = 0

    def __str__(self) -> str:
        both = sorted([*self.puts, *self.gets])
        p99_ms = statistics.quantiles(both, n=100)[98] * 1e3 if len(both) > 100 else 0.0
        return (
            f"{len(self.puts)} puts, {len(self.gets)} gets, {self.unknown} unknown outcomes, "
            f"{self.unanswered_gets} gets unanswered, longest stall {both[-1]:.2f} s, p99 {p99_ms:.0f} ms"
        )


class Load:
    """Clients of every way, all of one recorder. ``errors``: what no client may ever get. ``prefix`` is that of
    every key, and no key may have had it before. Puts and gets take ``limit_s`` at most, with some ``pause_s``
    after each."""

    def __init__(
        self,
        urls: Sequence[str],
        zone: str,
        seed: int,
        prefix: str = "",
        limit_s: float = TIME_LIMIT_S,
        pause_s: float = PAUSE_S,
        tls: TlsFiles | None = None,
        login: ClientLogin = NO_LOGIN,
    ) -> None:
        self.recorder = Recorder()
        self.figures = {way: Figures() for way in Way}
        self.network = LossyNetwork(seed)
        self.errors: list[Exception] = []
        self._zone = zone
        self._seed = seed
        self._prefix = prefix
        self._pause_s = pause_s
        straight = partial(ZoneClient, urls, mode=Mode.DIRECT, time_limit_s=limit_s, tls=tls, **login)
        authority = login["authority"]
        self._clients = {
            Way.DIRECT: [straight()],
            Way.ROUTED: [ZoneClient(urls, time_limit_s=limit_s, **login)],
            Way.LOSSY: [straight(transport=LossyRouting(authority, self.network))],
            Way.SPREAD: [
                straight(transport=RotatedRouting(authority, place)) for place in range(SPREAD_PLACES)
            ],
        }
        self._once: list[str] = []

    async def run_client(self, number: int, way: Way) -> None:
        """Work until cancelled; what is under way then stays open."""
        chooser = random.Random(f"{self._seed}/{number}")
        for turn in range(10**9):
            key = f"{self._prefix}register-{chooser.randrange(REGISTERS)}"
            if chooser.random() < 0.5:
                await self.get(number, way, key)
            else:
                if chooser.random() < ONCE_SHARE:
                    key = f"{self._prefix}once-{number}-{turn}"
                    self._once.append(key)
                await self.put(number, way, key, f"{number}/{turn}")
            await asyncio.sleep(self._pause_s * chooser.uniform(0.5, 1.5))

    async def put(self, number: int, way: Way, key: str, value: str) -> None:
        handle, begun = self.recorder.begin(number, key, Action.PUT, value), _now()
        try:
            await self._client(number, way).put(self._zone, key, value)
            self.recorder.end(handle)
        except NO_ANSWER:
            self.recorder.leave_open(handle)
            self.figures[way].unknown += 1
        except Exception as error:
            self.errors.append(error)
        self.figures[way].puts.append(_now() - begun)

    async def get(self, number: int, way: Way, key: str) -> bool:
        """Get the key; True if there was an answer."""
        handle, begun = self.recorder.begin(number, key, Action.GET), _now()
        try:
            found = await self._client(number, way).get(self._zone, key)
            self.recorder.end(handle, found.value if found is not None else None)
        except NO_ANSWER:
            self.recorder.leave_open(handle)
            self.figures[way].unanswered_gets += 1
            return False
        except Exception as error:
            self.errors.append(error)
            return False
        finally:
            self.figures[way].gets.append(_now() - begun)
        return True

    async def read_back(self) -> int:
        """Every key once more, straight and through the server in turns; the number of keys. The history then
        ends with what is there, so that an acknowledged put which is lost has no explanation."""
        keys = [*(f"{self._prefix}register-{number}" for number in range(REGISTERS)), *self._once]
        gate = asyncio.Semaphore(8)

        async def read(key: str, way: Way) -> None:
            async with gate:
                for _ in range(READS_MAX):
                    if await self.get(-1, way, key):
                        return
            raise AssertionError(f"{READS_MAX} reads of {key} had no answer")

        ways = (Way.DIRECT, Way.ROUTED)
        await asyncio.gather(*(read(key, ways[index % len(ways)]) for index, key in enumerate(keys)))
        return len(keys)

    async def close(self) -> None:
        for clients in self._clients.values():
            for client in clients:
                await client.close()
        await self.network.close()

    def _client(self, number: int, way: Way) -> ZoneClient:
        clients = self._clients[way]
        return clients[number % len(clients)]


@asynccontextmanager
async def load(
    urls: Sequence[str],
    zone: str,
    seed: int,
    *,
    clients: Mapping[Way, int] = CLIENTS,
    prefix: str = "",
    limit_s: float = TIME_LIMIT_S,
    pause_s: float = PAUSE_S,
    tls: TlsFiles | None = None,
    login: ClientLogin = NO_LOGIN,
) -> AsyncIterator[Load]:
    """Let so many ``clients`` work for the length of the block."""
    running = Load(urls, zone, seed, prefix, limit_s, pause_s, tls, login)
    tasks = [
        asyncio.create_task(running.run_client(number, way))
        for number, way in enumerate([way for way, count in clients.items() for _ in range(count)])
    ]
    try:
        yield running
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await running.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
