"""Puts and gets by partition, whatever keeps its copies: the server's routes ask here."""

from __future__ import annotations

import time

from catalog.core.zone import STORE_ENGINE
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.core.moves.safe_time import ReadPoint
from rebalance.data.store_copy_reads import StoreCopyReads
from rebalance.groups.calls.data_client import AppliedWrite, Datum
from rebalance.groups.calls.replica_reads import ReplicaChoice, ReplicaDatum
from rebalance.groups.calls.router import READ_AT_LIMIT_S, TIME_LIMIT_S, Router
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import EndpointSource
from rebalance.store.core.log_records import KeyChange
from rebalance.store.shell.store_client import StoreClient


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
        """From a replica of a group that has ``point``. Raises as ``Router.read_at``."""
        return await self._groups.read_at(partition, key, point, choice, limit_s)

    def is_store(self, partition: PartitionId) -> bool:
        """Whether store servers keep it, as far as is known."""
        return self._source.route(partition).engine == STORE_ENGINE

    def copy_reads(self, partition: PartitionId) -> StoreCopyReads:
        """Reads of single copies, of a store zone."""
        return StoreCopyReads(self._stores, partition)

    async def _engine(self, partition: PartitionId, limit_s: float | None) -> tuple[bool, float]:
        """Whether the partition is a store server's, once anybody has it, and the seconds that are left."""
        left_s = self._time_limit_s if limit_s is None else limit_s
        route = self._source.route(partition)
        if route.voters:
            return route.engine == STORE_ENGINE, left_s
        deadline = time.monotonic() + left_s
        while not route.voters and (left_s := deadline - time.monotonic()) > 0:
            await self._source.wait_for_change(partition, route, left_s)
            route = self._source.route(partition)
        return route.engine == STORE_ENGINE, max(left_s, 0.0)
