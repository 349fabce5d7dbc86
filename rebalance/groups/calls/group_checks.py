"""Checks of a partition's members: do its copies agree, and does its group still serve?

Copies are read one by one, each by itself, and compared (core: ``copy_samples``). One may be a little behind,
and values may change meanwhile: what does not agree is read again, and only what does not agree in the end is
reported. A group serves if one member gives a linearizable answer, which proves a majority.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tenacity import AsyncRetrying, retry_if_exception_type, wait_fixed

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.recovery.copy_samples import CopyVerdict, Values, chosen, digest_of, expected, judge
from rebalance.groups.calls.data_client import Connections, PartitionClient
from rebalance.groups.calls.etcd_api import CallFailedError
from rebalance.groups.calls.group_guard import WrongGroupError
from rebalance.hosting.tls import TlsFiles

CALL_LIMIT_S = 2.0
READS_MAX = 6
PAUSE_S = 0.1
"""Between two reads; twice as long each time: together some 3 s for a copy to come along."""
KEYS_PER_PAGE = 5_000
KEYS_MAX = 100_000
"""Keys of one copy that are listed to choose from; a copy with more is read no further once this many are
listed."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Keys to compare: ``count`` of each partition, chosen by ``seed``, or those that were saved earlier, by
    partition."""

    seed: int
    count: int
    saved: Mapping[int, Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class PartitionCheck:
    """``digests``: of what most copies have, by key. ``verdicts``: of copies that answered, by name;
    ``unread``: why others did not."""

    partition: int
    digests: Mapping[str, str | None] = field(default_factory=dict)
    verdicts: Mapping[str, CopyVerdict] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        return not self.unread and all(verdict.agrees for verdict in self.verdicts.values())


class CopyUnreadError(Exception):
    """A copy does not answer; the message says why."""


UNREAD = (CopyUnreadError, CallFailedError, WrongGroupError)


class CopyReads(Protocol):
    """Reads of one replica at a time, of one partition. Each raises CopyUnreadError, CallFailedError or
    WrongGroupError."""

    async def own_keys(self, url: str, after: bytes, limit: int, timeout_s: float) -> list[bytes]:
        """List at most ``limit`` keys of the replica, in order, from the one after ``after`` on."""
        ...

    async def own_values(self, url: str, keys: Sequence[bytes], timeout_s: float) -> list[bytes | None]:
        """Read the values that the replica has now, in the order of ``keys``; None: no such key."""
        ...


class CopyReader:
    """One per process and event loop; ``close`` it at the end."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        self._connections = Connections(tls)

    async def close(self) -> None:
        await self._connections.close()

    async def check(
        self,
        partition: PartitionId,
        copies: Mapping[str, str],
        samples: Samples,
        reads: CopyReads | None = None,
    ) -> PartitionCheck:
        """``copies``: client URL of each by name; a copy without one cannot be read. ``reads``: of what is no
        group of etcd."""
        urls = {name: url for name, url in copies.items() if url}
        unread = {name: "it has no address" for name in copies if name not in urls}
        if reads is not None:
            return await _Check(reads, partition, urls, samples, unread).result()
        client = PartitionClient(partition, self._connections)
        self._connections.use(partition, urls.values())
        try:
            return await _Check(client, partition, urls, samples, unread).result()
        finally:
            self._connections.use(partition, ())


@dataclass(frozen=True, slots=True)
class _Check:
    """One check of a partition's copies; ``unread`` is filled on the way."""

    client: CopyReads
    partition: PartitionId
    urls: Mapping[str, str]
    samples: Samples
    unread: dict[str, str]

    async def result(self) -> PartitionCheck:
        """Read until the copies agree, or they were read often enough."""
        keys = await self._keys()
        are_known, pause_s = self.samples.saved is not None, PAUSE_S
        for attempt in range(READS_MAX):
            if attempt:
                await asyncio.sleep(pause_s)
                pause_s *= 2
            copied = await self._values(keys)
            verdicts = judge(copied, keys, are_known=are_known)
            if all(verdict.agrees for verdict in verdicts.values()):
                break
        copies = tuple(copied.values())
        digests = {key: digest_of(expected(copies, key, is_known=are_known)) for key in keys}
        return PartitionCheck(self.partition.partition, digests, verdicts, self.unread)

    async def _keys(self) -> tuple[str, ...]:
        """Return the saved keys, else keys chosen from all copies: one that a single copy has is looked at as
        well. Copies that cannot be listed are noted in ``unread``."""
        if self.samples.saved is not None:
            return tuple(sorted(self.samples.saved.get(self.partition.partition, ())))
        listed = await asyncio.gather(*(self._listed(url) for url in self.urls.values()))
        self.unread.update(
            {name: why for name, why in zip(self.urls, listed, strict=True) if isinstance(why, str)}
        )
        keys = {key for texts in listed if not isinstance(texts, str) for key in texts}
        return chosen(keys, self.samples.seed, self.samples.count)

    async def _listed(self, url: str) -> Collection[str] | str:
        """The keys of one copy that come into question; why it does not answer."""
        keys: tuple[str, ...] = ()
        after, listed = b"", 0
        try:
            while listed < KEYS_MAX:
                page = await self.client.own_keys(url, after, KEYS_PER_PAGE, CALL_LIMIT_S)
                keys = chosen((*keys, *_texts(page)), self.samples.seed, self.samples.count)
                if len(page) < KEYS_PER_PAGE:
                    break
                after, listed = page[-1], listed + len(page)
        except UNREAD as failed:
            return str(failed)
        return keys

    async def _values(self, keys: Sequence[str]) -> dict[str, Values]:
        raw = [key.encode() for key in keys]

        async def read(url: str) -> Values | str:
            try:
                values = await self.client.own_values(url, raw, CALL_LIMIT_S)
            except UNREAD as failed:
                return str(failed)
            return dict(zip(keys, values, strict=True))

        answers = await asyncio.gather(*map(read, self.urls.values()))
        copied: dict[str, Values] = {}
        for name, answer in zip(self.urls, answers, strict=True):
            if isinstance(answer, str):
                self.unread[name] = answer
            else:
                self.unread.pop(name, None)
                copied[name] = answer
        return copied


def _texts(page: Sequence[bytes]) -> Iterator[str]:
    """Keys of clients are texts; what is none was not put by one."""
    for key in page:
        try:
            yield key.decode()
        except UnicodeDecodeError:
            continue


ANSWER_S = 3.0
"""An election takes less."""
PROBE_PAUSE_S = 0.2
PARTITIONS_MAX = 128
"""Asked at the same time; of others the time limit begins later."""


class LinearizableProbe:
    """A ``ServingProbe`` for groups on etcd: one per process and event loop; ``close`` it at the end."""

    def __init__(self, tls: TlsFiles | None = None, timeout_s: float = ANSWER_S) -> None:
        self._connections = Connections(tls)
        self._timeout_s = timeout_s
        self._room = asyncio.Semaphore(PARTITIONS_MAX)

    async def close(self) -> None:
        await self._connections.close()

    async def serving(self, partition: PartitionId, client_urls: Mapping[str, str]) -> str:
        """See ``ServingProbe``. A member of another group at the same address is no answer."""
        nodes = {url: node for node, url in client_urls.items() if url}
        async with self._room:
            client = PartitionClient(partition, self._connections)
            self._connections.use(partition, nodes)
            reads = [asyncio.create_task(self._answers(client, url)) for url in nodes]
            try:
                for read in asyncio.as_completed(reads):
                    url = await read
                    if url:
                        return nodes[url]
                return ""
            finally:
                for task in reads:
                    task.cancel()
                await asyncio.gather(*reads, return_exceptions=True)
                self._connections.use(partition, ())

    async def _answers(self, client: PartitionClient, url: str) -> str:
        """``url``, or nothing where it gives no answer in time. A group that elects a leader refuses at once,
        and serves a moment later: it is asked again."""
        again = AsyncRetrying(
            retry=retry_if_exception_type((CallFailedError, WrongGroupError)), wait=wait_fixed(PROBE_PAUSE_S)
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                await again(client.revision, url, self._timeout_s)
        except TimeoutError:
            return ""
        return url
