"""Reads of single copies of a store zone's partition, each from its own server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.calls.group_checks import CopyUnreadError
from rebalance.store.core.store_messages import CopyReadAnswer, CopyReadRequest
from rebalance.store.shell.store_channel import StoreUnreachableError
from rebalance.store.shell.store_client import StoreClient

PAGE_BYTES = 256 << 10


class StoreCopyReads:
    """A ``CopyReads`` of one partition. Both raise CopyUnreadError."""

    def __init__(self, client: StoreClient, partition: PartitionId) -> None:
        self._client = client
        self._partition = partition

    async def own_keys(self, url: str, after: bytes, limit: int, timeout_s: float) -> list[bytes]:
        keys: list[bytes] = []
        while len(keys) < limit:
            page = (await self._asked(url, after, timeout_s, PAGE_BYTES)).keys
            if not page:
                break
            keys += page
            after = page[-1]
        return keys[:limit]

    async def own_values(self, url: str, keys: Sequence[bytes], timeout_s: float) -> list[bytes | None]:
        answers = await asyncio.gather(*(self._asked(url, key, timeout_s) for key in keys))
        return [answer.value for answer in answers]

    async def _asked(self, url: str, key: bytes, timeout_s: float, keys_bytes: int = 0) -> CopyReadAnswer:
        zone_id, number = self._partition
        request = CopyReadRequest(0, zone_id, number, key, keys_bytes)
        try:
            return await self._client.read_copy(url, request, timeout_s)
        except StoreUnreachableError as error:
            raise CopyUnreadError(str(error)) from error
