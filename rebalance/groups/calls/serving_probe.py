"""Asks the members of a group whether it still serves: one linearizable answer proves a majority."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tenacity import AsyncRetrying, retry_if_exception_type, wait_fixed

from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.calls.data_client import Connections, PartitionClient
from rebalance.groups.calls.etcd_api import CallFailedError
from rebalance.groups.calls.group_guard import WrongGroupError
from rebalance.hosting.tls import TlsFiles

ANSWER_S = 3.0
"""An election takes less."""
PAUSE_S = 0.2
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
            retry=retry_if_exception_type((CallFailedError, WrongGroupError)), wait=wait_fixed(PAUSE_S)
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                await again(client.revision, url, self._timeout_s)
        except TimeoutError:
            return ""
        return url
