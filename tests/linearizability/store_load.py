"""Clients of a zone that store servers keep: they read and write a few keys by the wire, and note what they
were answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic, monotonic_ns

from catalog.core.zone import ZoneId
from rebalance.store.core.log_records import KeyChange, WriteId
from rebalance.store.core.store_messages import AnswerCode, ReadRequest, StoreAnswer, WriteRequest
from rebalance.store.shell.store_client import ChannelRequest, StoreChannel, StoreUnreachableError
from tests.linearizability.history import Action, Recorder
from tests.linearizability.store_judgement import Served

AGAIN = frozenset(
    {
        AnswerCode.NOT_PRIMARY,
        AnswerCode.NOT_SERVING,
        AnswerCode.UNKNOWN,
        AnswerCode.WAITING_FOR_OWNERS,
        AnswerCode.NO_ZONE,
    }
)
REGISTERS = 3
"""Registers of each partition."""
ATTEMPT_S = 1.0
"""A server that is stopped or cut off says nothing; another one is asked, with the same write id."""
LIMITS_S = (2.0, 60.0)
"""Time limits of clients in turns, in seconds: those that give up soon leave writes of unknown outcome, the
others see repeats end."""
READ_BACK_S = 120.0
ONCE_SHARE = 0.1
"""Share of puts to a key of their own, which is written only once: a lost one shows in the end."""


class StoreLoad:
    """``urls``: of servers, by name. ``served``: who answered, on which version. ``refusals``: answers
    that no client may get. ``once``: keys that were put once."""

    def __init__(
        self,
        urls: Mapping[str, str],
        zone: ZoneId,
        partitions: int,
        seed: int,
        pause_s: float = 0.02,
    ) -> None:
        self.recorder = Recorder()
        self.served: list[Served] = []
        self.refusals: list[StoreAnswer] = []
        self.acknowledged = self.unknown = self.repeated = 0
        self.stall_s = 0.0
        self._urls = urls
        self._zone = zone
        self._partitions = partitions
        self._seed = seed
        self._pause_s = pause_s
        self._channels: dict[str, StoreChannel] = {}
        self._leaders: dict[int, str] = {}
        self._chooser = random.Random(f"{seed}/servers")
        self.once: list[tuple[int, str]] = []

    @property
    def figures(self) -> str:
        return (
            f"{len(self.recorder.operations)} operations, {self.acknowledged} acknowledged puts, "
            f"{self.repeated} of them repeats, {self.unknown} unknown, longest stall {self.stall_s:.1f} s"
        )

    async def run_client(self, number: int) -> None:
        """Work until cancelled; what is under way then stays open."""
        chooser = random.Random(f"{self._seed}/{number}")
        limit_s = LIMITS_S[number % len(LIMITS_S)]
        for turn in range(10**9):
            partition, key = chooser.randrange(self._partitions), f"register-{chooser.randrange(REGISTERS)}"
            kind = chooser.random()
            if kind < 0.4:
                await self.get(number, partition, key, limit_s)
            else:
                if kind > 1 - ONCE_SHARE:
                    key = f"once-{number}-{turn}"
                    self.once.append((partition, key))
                value = None if kind < 0.5 else f"{number}/{turn}"
                await self.put(number, partition, key, value, limit_s)
            await asyncio.sleep(self._pause_s * chooser.uniform(0.5, 1.5))

    async def put(self, client: int, partition: int, key: str, value: str | None, limit_s: float) -> None:
        """None deletes the key."""
        action = Action.PUT if value is not None else Action.DELETE
        handle = self.recorder.begin(client, f"{partition}/{key}", action, value)
        change = KeyChange(key.encode(), value.encode() if value is not None else None)
        write = WriteId(f"{client}-{handle}-{monotonic_ns()}")
        answer = await self._until_known(WriteRequest(0, write, self._zone, partition, (change,)), limit_s)
        if answer is None:
            self.recorder.leave_open(handle)
            self.unknown += 1
        else:
            self.recorder.end(handle)
            self.acknowledged += 1
            self.repeated += answer.repeated

    async def get(self, client: int, partition: int, key: str, limit_s: float) -> bool:
        """Get the key; True if there was an answer."""
        handle = self.recorder.begin(client, f"{partition}/{key}", Action.GET)
        answer = await self._until_known(ReadRequest(0, self._zone, partition, key.encode()), limit_s)
        if answer is None:
            self.recorder.leave_open(handle)
            return False
        self.recorder.end(handle, answer.value.decode() if answer.value is not None else None)
        return True

    async def read_back(self) -> int:
        """Every key once more; the number of keys. The history then ends with what is there, so that an
        acknowledged put which is lost has no explanation."""
        registers = [f"register-{number}" for number in range(REGISTERS)]
        keys = [(partition, key) for partition in range(self._partitions) for key in registers] + self.once
        gate = asyncio.Semaphore(16)

        async def read(partition: int, key: str) -> None:
            async with gate:
                assert await self.get(-1, partition, key, READ_BACK_S), f"nobody answers for {partition}/{key}"

        await asyncio.gather(*(read(*place) for place in keys))
        return len(keys)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    # One operation

    async def _until_known(self, request: ChannelRequest, limit_s: float) -> StoreAnswer | None:
        """Answer that ends the request; None: the time is over, and the outcome is unknown."""
        partition = request.partition
        began, invoked = monotonic(), monotonic_ns()
        name = self._leaders.get(partition, "")
        while monotonic() - began < limit_s:
            name = name if name in self._urls else self._somebody()
            answer = await self._attempt(name, request)
            if answer is not None and answer.code is AnswerCode.DONE:
                self._leaders[partition] = name
                self.stall_s = max(self.stall_s, monotonic() - began)
                self.served.append(Served(partition, name, answer.version, invoked, monotonic_ns()))
                return answer
            if answer is not None and answer.code not in AGAIN:
                self.refusals.append(answer)
            name = answer.primary if answer is not None and answer.primary != name else ""
            invoked = monotonic_ns()
            await asyncio.sleep(self._chooser.uniform(0.01, 0.1))
        return None

    def _somebody(self) -> str:
        return self._chooser.choice(sorted(self._urls))

    async def _attempt(self, name: str, request: ChannelRequest) -> StoreAnswer | None:
        url = self._urls[name]
        if (channel := self._channels.get(url)) is None:
            channel = self._channels[url] = StoreChannel(url)
        try:
            return await channel.ask(request, ATTEMPT_S)
        except StoreUnreachableError:
            return None


@asynccontextmanager
async def store_load(
    urls: Mapping[str, str], zone: ZoneId, partitions: int, seed: int, clients: int
) -> AsyncIterator[StoreLoad]:
    """Let so many clients work for the length of the block."""
    running = StoreLoad(urls, zone, partitions, seed)
    tasks = [asyncio.create_task(running.run_client(number)) for number in range(clients)]
    try:
        yield running
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        await running.close()
    errors = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
    assert not errors, errors
