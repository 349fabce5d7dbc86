"""Reads that need no leader: at a learner, or at any replica, of what it has safely; and the safe time they
go by.

A read names what it must see (``ReadPoint``); replicas are asked in turn until one is there. Learners and
voters that do not lead are read by the same code: they differ in what counts as safe
(``PartitionClient.progress``).

The agent beside the leader writes the time into the key ``t`` every 500 ms, in the group's own data. A
replica that has repeated a beat with time T has everything that was acknowledged before the leader's clock
showed T, also when nobody writes anything else.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import structlog
from aetcd import rpc

from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.safe_time import (
    Beat,
    ReadPoint,
    decode_time,
    encode_time,
    next_time_ms,
    revision_to_read,
)
from rebalance.groups.calls.data_client import SAFE_TIME_KEY, Connections, PartitionClient
from rebalance.groups.calls.etcd_api import CallFailedError, FailureKind, answer, get, items_of, put, unchanged
from rebalance.groups.calls.group_guard import GroupGuard, WrongGroupError
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import EndpointSource, ReplicaBehindError, RevisionGoneError

CALL_LIMIT_S = 1.0
POLL = Backoff(0.005, 0.1)
NOW = ReadPoint()
"""Linearizable: the leader is asked for its revision, nothing else of it."""


class ReplicaChoice(Enum):
    LEARNER = "learner"  # learners only
    REPLICA = "replica"  # learners, and voters that do not lead


@dataclass(frozen=True, slots=True)
class ReplicaDatum:
    """``value`` is None for a key that was not there; ``revision`` is the key's, ``read_revision`` the
    group's at which it was read. ``safe_time_ms``: the newest the replica had then, 0 when the group has no
    beats."""

    value: bytes | None
    revision: int
    read_revision: int
    safe_time_ms: int
    client_url: str


@dataclass(slots=True)
class _Pass:
    """Outcome of asking each replica once; ``seen``, the answer of each by URL, is for the error's message.
    ``gone``: one of them has compacted the revision; ``behind``: one lacks it or failed otherwise."""

    seen: dict[str, str] = field(default_factory=dict)
    behind: bool = False
    gone: bool = False


class ReplicaReader:
    """``current_revision`` asks the group's leader, linearizably, within seconds. ``close`` it at the end."""

    def __init__(
        self,
        source: EndpointSource,
        current_revision: Callable[[PartitionId, float], Awaitable[int]],
        tls: TlsFiles | None = None,
    ) -> None:
        self._source = source
        self._current_revision = current_revision
        self._connections = Connections(tls)
        self._random = random.Random()

    async def read(
        self, partition: PartitionId, key: str, point: ReadPoint, choice: ReplicaChoice, time_limit_s: float
    ) -> ReplicaDatum:
        """Waits until a replica has ``point``.

        Raises ReplicaBehindError after the time limit, or when there is no such replica; RevisionGoneError
        for a revision that none of them keeps any more; as ``current_revision`` when the leader did not tell
        its revision.
        """
        deadline, poll = time.monotonic() + time_limit_s, POLL
        if point == NOW:
            point = ReadPoint(revision=await self._current_revision(partition, time_limit_s))
        while True:
            datum, passed = await self._ask_each(partition, key, point, choice, deadline)
            if datum is not None:
                return datum
            if passed.gone and not passed.behind:
                raise RevisionGoneError(
                    f"partition {partition}: revision {point.revision} is compacted; read a newer one"
                )
            if not passed.seen or time.monotonic() >= deadline:
                raise ReplicaBehindError(_complaint(partition, point, choice, passed, time_limit_s))
            poll = poll.failed()
            await asyncio.sleep(poll.delay_s(self._random.random()))

    async def close(self) -> None:
        await self._connections.close()

    async def _ask_each(
        self, partition: PartitionId, key: str, point: ReadPoint, choice: ReplicaChoice, deadline: float
    ) -> tuple[ReplicaDatum | None, _Pass]:
        route = self._source.route(partition)
        mirrors, voters = self._source.learners(partition), route.voters[1:]
        self._connections.use(partition, (*mirrors, *voters))
        replicas = [(url, True) for url in mirrors]
        if choice is ReplicaChoice.REPLICA:
            replicas += [(url, False) for url in voters]
        self._random.shuffle(replicas)
        client, passed = PartitionClient(partition, self._connections), _Pass()
        for url, mirrored in replicas:
            limit_s = min(CALL_LIMIT_S, max(deadline - time.monotonic(), 0.05))
            try:
                progress = await client.progress(url, limit_s, mirrored=mirrored, generation=route.generation)
                at = revision_to_read(point, progress)
                if at is not None:
                    datum = await client.get_at(url, key.encode(), at, limit_s)
                    return ReplicaDatum(datum.value, datum.revision, at, progress.beat.time_ms, url), passed
                passed.behind = True
                passed.seen[url] = f"is at revision {progress.safe_revision}, time {progress.beat.time_ms} ms"
            except (CallFailedError, WrongGroupError) as failed:
                is_gone = isinstance(failed, CallFailedError) and failed.kind is FailureKind.COMPACTED
                passed.gone |= is_gone
                passed.behind |= not is_gone
                passed.seen[url] = str(failed)
        return None, passed


def _complaint(
    partition: PartitionId, point: ReadPoint, choice: ReplicaChoice, passed: _Pass, time_limit_s: float
) -> str:
    if not passed.seen:
        return f"partition {partition} has no {choice.value} to read from"
    awaited = f"time {point.time_ms} ms" if point.time_ms else f"revision {point.revision}"
    answers = "; ".join(f"{url} {text}" for url, text in sorted(passed.seen.items()))
    return f"partition {partition}: no {choice.value} has {awaited} within {time_limit_s:.3g} s: {answers}"


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
        """Beat until cancelled. Each round asks ``led`` (partition -> client URL of the own, leading member)
        and beats all that it names; it is to name only partitions that have learners in stable or pending."""
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
