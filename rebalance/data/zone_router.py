"""Puts and gets by partition, whatever keeps its copies: the server's routes ask here.

Single copies of a store zone's partition are read each from its own server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from catalog.core.zone import STORE_ENGINE
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.core.moves.safe_time import ReadPoint
from rebalance.groups.calls.data_client import AppliedWrite, Datum
from rebalance.groups.calls.group_checks import CopyUnreadError
from rebalance.groups.calls.replica_reads import ReplicaChoice, ReplicaDatum
from rebalance.groups.calls.router import READ_AT_LIMIT_S, TIME_LIMIT_S, Router
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import EndpointSource
from rebalance.store.core.log_records import KeyChange
from rebalance.store.core.store_messages import CopyReadAnswer, CopyReadRequest
from rebalance.store.shell.store_client import StoreClient, StoreUnreachableError

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


class ZoneRouter:
    """One per process and event loop; ``close`` it. ``source`` says of each route which engine it is of;
    ``tls``: for members and servers that ask for a certificate."""

    def __init__(
        self, source: EndpointSource, *, time_limit_s: float = TIME_LIMIT_S, tls: TlsFiles | None = None
    ) -> None:
        self._source = source
        self._time_limit_s = time_limit_s
        self._groups = Router(source, time_limit_s=time_limit_s, tls=tls)
        self._stores = StoreClient(source, time_limit_s=time_limit_s, tls=tls)

    async def close(self) -> None:
        await self._groups.close()
        await self._stores.close()

    async def put(
        self,
        partition: PartitionId,
        key: str,
        value: bytes | None,
        operation_id: str,
        *,
        limit_s: float | None = None,
        terms: WriteTerms = ANY,
    ) -> AppliedWrite:
        """``value`` None deletes the key. The revision in a store zone counts the partition's writes. Raises as
        ``Router.put`` and ``StoreClient.write``."""
        is_store, left_s = await self._engine(partition, limit_s)
        if not is_store:
            put = await self._groups.put(partition, key, value, operation_id, limit_s=left_s, terms=terms)
            return AppliedWrite(put.revision, put.repeated)
        change = KeyChange(key.encode(), value)
        answer = await self._stores.write(partition, (change,), operation_id, limit_s=left_s, terms=terms)
        return AppliedWrite(answer.position.counter if answer.position is not None else 0, answer.repeated)

    async def get(self, partition: PartitionId, key: str, *, limit_s: float | None = None) -> Datum:
        """Linearizable. The revision in a store zone counts the partition's writes. Raises as ``Router.get``
        and ``StoreClient.read``."""
        is_store, left_s = await self._engine(partition, limit_s)
        if not is_store:
            return await self._groups.get(partition, key, limit_s=left_s)
        answer = await self._stores.read(partition, key.encode(), limit_s=left_s)
        position = answer.position
        return Datum(answer.value, position.counter if position is not None and answer.value is not None else 0)

    async def read_at(
        self,
        partition: PartitionId,
        key: str,
        point: ReadPoint,
        choice: ReplicaChoice,
        limit_s: float = READ_AT_LIMIT_S,
    ) -> ReplicaDatum:
        """Read ``key`` from a replica that has ``point``, of a partition that is a group. Raises as
        ``Router.read_at``."""
        return await self._groups.read_at(partition, key, point, choice, limit_s)

    def is_store(self, partition: PartitionId) -> bool:
        """True if store servers keep the partition, as far as is known."""
        return self._source.route(partition).engine == STORE_ENGINE

    def copy_reads(self, partition: PartitionId) -> StoreCopyReads:
        """Reads of single copies, of a store zone."""
        return StoreCopyReads(self._stores, partition)

    async def _engine(self, partition: PartitionId, limit_s: float | None) -> tuple[bool, float]:
        """Wait until the partition has voters, at most for its time; return whether they are store servers, and
        the seconds that are left."""
        left_s = self._time_limit_s if limit_s is None else limit_s
        route = self._source.route(partition)
        if route.voters:
            return route.engine == STORE_ENGINE, left_s
        deadline = time.monotonic() + left_s
        while not route.voters and (left_s := deadline - time.monotonic()) > 0:
            await self._source.wait_for_change(partition, route, left_s)
            route = self._source.route(partition)
        return route.engine == STORE_ENGINE, max(left_s, 0.0)
