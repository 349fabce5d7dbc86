"""Safe time: what a group's leader says of the time, in the group's own data.

The agent beside the leader writes the key ``t`` every 500 ms. A replica that has repeated a beat with time T
has everything that was acknowledged before the leader's clock showed T, also when nobody writes anything
else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog
from aetcd import rpc

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.safe_time import Beat, decode_time, encode_time, next_time_ms
from rebalance.groups.calls.data_client import SAFE_TIME_KEY, Connections
from rebalance.groups.calls.etcd_api import CallFailedError, FailureKind, answer
from rebalance.groups.calls.etcd_txn import get, items_of, put, unchanged
from rebalance.groups.calls.group_guard import GroupGuard, WrongGroupError
from rebalance.hosting.tls import TlsFiles

log = structlog.get_logger(__name__)

BEAT_S = 0.5
BEAT_TIMEOUT_S = 1.0


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SafeTimeWriter:
    """Beats of the partitions that one node leads. ``clock`` gives milliseconds since 1970; ``close`` it.

    Safe time never goes back: a new leader whose clock is behind repeats the old leader's time, with a new
    revision, until its own clock is there. Two writers for a moment do no harm: each beat is guarded by the one
    that it follows.
    """

    def __init__(self, clock: Callable[[], int] = wall_clock_ms, tls: TlsFiles | None = None) -> None:
        self._clock = clock
        self._connections = Connections(tls)
        self._last: dict[PartitionId, Beat] = {}

    async def beat(self, partition: PartitionId, client_url: str) -> Beat:
        """Write one beat through the member at ``client_url`` (the leader's, else it costs a forwarding).

        Raises CallFailedError, WrongGroupError; the next beat makes up for one that failed.
        """
        self._connections.use(partition, (client_url,))
        for _ in range(2):
            written = await self._write(partition, client_url, self._last.get(partition, Beat()))
            self._last[partition] = written[0]
            if written[1]:
                return written[0]
        raise CallFailedError(FailureKind.OTHER, "another writer beats at the same time")

    def forget(self, partition: PartitionId) -> None:
        """The partition is not led here any more, or has no learners."""
        self._last.pop(partition, None)
        self._connections.use(partition, ())

    async def run(self, led: Callable[[], Mapping[PartitionId, str]]) -> None:
        """Until it is cancelled: beat what ``led`` names (partition -> client URL of the own, leading member)
        each time it is asked; name only partitions that have learners in stable or pending."""
        while True:
            begun = asyncio.get_running_loop().time()
            urls = dict(led())
            for partition in self._last.keys() - urls.keys():
                self.forget(partition)
            await asyncio.gather(*(self._try_beat(partition, url) for partition, url in urls.items()))
            spent_s = asyncio.get_running_loop().time() - begun
            await asyncio.sleep(max(BEAT_S - spent_s, BEAT_S / 10))

    async def close(self) -> None:
        await self._connections.close()

    async def _try_beat(self, partition: PartitionId, client_url: str) -> None:
        try:
            await self.beat(partition, client_url)
        except (CallFailedError, WrongGroupError) as failed:
            log.debug("no beat", partition=str(partition), error=str(failed))

    async def _write(self, partition: PartitionId, client_url: str, last: Beat) -> tuple[Beat, bool]:
        """The beat that the group has now, and whether it is this one."""
        new_ms, guard = next_time_ms(self._clock(), last), GroupGuard(partition)
        request = rpc.TxnRequest(
            compare=[*guard.compares(), unchanged(SAFE_TIME_KEY, last.revision)],
            success=[put(SAFE_TIME_KEY, encode_time(new_ms))],
            failure=[get(SAFE_TIME_KEY), *guard.reads()],
        )
        stub = rpc.KVStub(self._connections.channel(client_url))
        reply = await answer(stub.Txn(request, timeout=BEAT_TIMEOUT_S))
        if reply.succeeded:
            return Beat(new_ms, reply.header.revision), True
        beats, *identity = items_of(reply)
        guard.check(client_url, *identity)
        return Beat(decode_time(beats[0].value), beats[0].mod_revision) if beats else Beat(), False
