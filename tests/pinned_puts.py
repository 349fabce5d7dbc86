"""Clients that each put at one member only, whoever else serves the partition: who acknowledged what, and when.
A routed client turns to another member as soon as one fails; these show what a member answers that nobody else
knows of any more."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aetcd import rpc

from rebalance.core.keys import PartitionId
from rebalance.groups.data_client import Connections, PartitionClient
from rebalance.groups.etcd_api import GENERATION_KEY, CallFailedError, classify
from rebalance.groups.group_guard import WrongGroupError

PUT_S = 1.0
PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A put that ``endpoint`` acknowledged. Times are nanoseconds of one monotonic clock. ``generation``: of
    the group that the member belongs to, as it said before the put; None where it said another one after it."""

    endpoint: str
    generation: int | None
    key: str
    value: str
    invoked: int
    returned: int


class PinnedPuts:
    """One client for each member's URL; each key is put once, and by no other of these."""

    def __init__(self, partition: PartitionId) -> None:
        self._partition = partition
        self._connections = Connections()
        self._name = uuid.uuid4().hex[:8]
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.acknowledged: list[Acknowledged] = []
        self.failures: dict[str, str] = {}
        """Why the last put at an endpoint failed, while it fails."""

    def at(self, *urls: str) -> None:
        """From now on also there."""
        for url in urls:
            if url not in self._tasks:
                self._tasks[url] = asyncio.create_task(self._run(url), name=f"puts at {url}")

    def since(self, instant: int, *urls: str) -> list[Acknowledged]:
        """What ``urls`` (none: all) acknowledged of the puts that began at ``instant`` or later."""
        return [
            each
            for each in self.acknowledged
            if each.invoked >= instant and each.endpoint in (urls or self._tasks)
        ]

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._connections.close()

    async def _run(self, url: str) -> None:
        client = PartitionClient(self._partition, self._connections)
        for number in itertools.count():
            key, value = f"{url}/{self._name}/{number}", uuid.uuid4().hex
            invoked = time.monotonic_ns()
            try:
                before = await self._generation(url)
                await client.put(url, key.encode(), value.encode(), value, PUT_S)
                returned = time.monotonic_ns()
            except (CallFailedError, WrongGroupError) as failed:
                self.failures[url] = str(failed)
            else:
                generation = before if await self._belongs_to(before, url) else None
                self.acknowledged.append(Acknowledged(url, generation, key, value, invoked, returned))
                self.failures.pop(url, None)
            await asyncio.sleep(PAUSE_S)

    async def _belongs_to(self, generation: int, url: str) -> bool:
        """Also where it says nothing any more."""
        try:
            return await self._generation(url) == generation
        except CallFailedError:
            return True

    async def _generation(self, url: str) -> int:
        """The member's own; 0 for the first group of a partition."""
        request = rpc.RangeRequest(key=GENERATION_KEY, serializable=True)
        try:
            reply = await rpc.KVStub(self._connections.channel(url)).Range(request, timeout=PUT_S)
        except rpc.AioRpcError as error:
            raise classify(error) from error
        return int(reply.kvs[0].value) if reply.kvs else 0


def outlived(acknowledged: Iterable[Acknowledged]) -> list[Acknowledged]:
    """Puts that a group acknowledged which began after a group of a later generation had acknowledged one: two
    groups of one partition that both serve. Those that began before it, and ended after it, may have taken
    effect before it."""
    puts = [each for each in acknowledged if each.generation is not None]
    firsts: dict[int, int] = {}
    for each in puts:
        if each.generation is not None:
            firsts[each.generation] = min(each.returned, firsts.get(each.generation, each.returned))
    return [
        each
        for each in puts
        if any(
            generation > (each.generation or 0) and each.invoked > first for generation, first in firsts.items()
        )
    ]


@asynccontextmanager
async def pinned_puts(partition: PartitionId, urls: Iterable[str]) -> AsyncIterator[PinnedPuts]:
    """They go on for the length of the block."""
    running = PinnedPuts(partition)
    running.at(*urls)
    try:
        yield running
    finally:
        await running.close()
