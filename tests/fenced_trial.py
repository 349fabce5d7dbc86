"""A HIGH_AVAILABILITY zone and a STRONG_CONSISTENCY one on the same nodes, with clients at each member of both:
who acknowledged what and when, until when the fenced ones did, and what of it is there afterwards."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from aetcd import rpc

from catalog.core.zone import ZoneId
from rebalance.core.assignments import Assignments
from rebalance.core.isolation import STOP_MS, fence_ms_of, reset_s_min
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.readable import readable
from rebalance.core.records import GroupRecord
from rebalance.core.txn import Get, Txn
from rebalance.groups.data_client import DATUM_PREFIX
from rebalance.groups.etcd_api import open_channel
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.ports.metastore import MetastoreError
from tests.cut_installation import NODES, CutInstallation
from tests.e2e.installation import wait_for
from tests.pinned_puts import Acknowledged, PinnedPuts, outlived, pinned_puts

LEASE_S = 2
RESET_S = reset_s_min(LEASE_S)
FENCE_S = fence_ms_of(RESET_S, LEASE_S) / 1_000
ENVIRONMENT = {"ZONEKEEPER_NODE_LEASE_S": str(LEASE_S)}
OPEN, STRONG = "OPEN_ZONE", "STRONG_ZONE"
"""The one that is founded anew by itself, and the one that never is."""
STOPPED_S = STOP_MS / 1_000
WAIT_S = 120.0
READ_S = 30.0
NANO = 1e9


def create_zones(whole: CutInstallation) -> None:
    """Once an installation."""
    done = whole.zonectl("rebalance", "limits", "--ha-reset", str(RESET_S))
    assert done.returncode == 0, done.stdout + done.stderr
    mode = "CONSISTENCY MODE 'HIGH_AVAILABILITY'"
    whole.execute(f"CREATE ZONE {OPEN} (PARTITIONS 1, REPLICAS 3, {mode})")
    whole.execute(f"CREATE ZONE {STRONG} (PARTITIONS 1, REPLICAS 3)")


@dataclass(frozen=True, slots=True)
class Strike:
    """When it began and was complete: nanoseconds of the clock of ``Acknowledged``."""

    begun: int
    done: int

    def seconds_to(self, instant: int) -> float:
        return (instant - self.done) / NANO


def strike(blow: Callable[[], None]) -> Strike:
    begun = time.monotonic_ns()
    blow()
    return Strike(begun, time.monotonic_ns())


class Side:
    """One of the two zones: its only partition, and who puts there."""

    def __init__(self, whole: CutInstallation, zone: str, partition: PartitionId, puts: PinnedPuts) -> None:
        self._whole = whole
        self._zone = zone
        self.partition = partition
        self.puts = puts

    def urls(self) -> dict[str, str]:
        """Node -> where its member takes clients, of the voters that are shown now."""
        (partition,) = self._whole.partitions(self._zone)
        voters = partition["stable"]["peers"]
        return {each["node"]: each["client_url"] for each in partition["members"] if each["node"] in voters}

    def survivor(self) -> str:
        """A node whose member follows: the others can go on without it at once."""
        (partition,) = self._whole.partitions(self._zone)
        return next(node for node in reversed(NODES) if node != partition["leader"])

    def cause(self) -> str:
        """That the partition names; empty: it is at its target, with a voter on each node."""
        (partition,) = self._whole.partitions(self._zone)
        cause = str(partition["status"]["cause"])
        return cause or ("" if set(partition["stable"]["peers"]) == set(NODES) else "not on all nodes")

    def pids(self) -> frozenset[int]:
        """Of the members' processes, on all nodes."""
        words = ("etcd", f"/members/{self.partition.zone_id}-{self.partition.partition}/")
        return frozenset(process.pid for process in self._whole.processes(*words))

    def acknowledged_until(self, generation: int) -> tuple[list[Acknowledged], list[Acknowledged]]:
        """Puts that groups up to ``generation`` acknowledged, and those of later ones. One is in neither whose
        member changed meanwhile."""
        old, new = [], []
        for put in self.puts.acknowledged:
            if put.generation is not None:
                (old if put.generation <= generation else new).append(put)
        return old, new

    async def answers(self, *nodes: str) -> None:
        """Returns once the members on ``nodes`` (none: all) have each acknowledged a put that began after this
        call."""
        at = await asyncio.to_thread(self.urls)
        urls = [at[node] for node in nodes or NODES]
        self.puts.at(*urls)
        begun, deadline = time.monotonic_ns(), time.monotonic() + WAIT_S
        while {each.endpoint for each in self.puts.since(begun, *urls)} != set(urls):
            assert time.monotonic() < deadline, self.puts.failures
            await asyncio.sleep(0.05)

    def longest_pause_s(self, since: int) -> float:
        """Seconds in which no member acknowledged a put, from ``since`` until now."""
        times = sorted(each.returned for each in self.puts.since(since))
        marks = [since, *times, time.monotonic_ns()]
        return max(later - earlier for earlier, later in itertools.pairwise(marks)) / NANO

    async def data(self, url: str, *, serializable: bool = False) -> dict[str, str]:
        """What the member at ``url`` has, by its leader's word or (``serializable``) by its own."""
        request = rpc.RangeRequest(
            key=DATUM_PREFIX, range_end=DATUM_PREFIX[:-1] + b"0", serializable=serializable
        )
        channel = open_channel(url)
        try:
            reply = await rpc.KVStub(channel).Range(request, timeout=READ_S)
        finally:
            await channel.close()
        return {each.key.removeprefix(DATUM_PREFIX).decode(): each.value.decode() for each in reply.kvs}

    async def missing(self, puts: Iterable[Acknowledged]) -> list[Acknowledged]:
        """Those of ``puts`` until now that are not there: each key is put once in a trial."""
        noted = tuple(puts)
        (url, *_) = (await asyncio.to_thread(self.urls)).values()
        data = await self.data(url)
        return [each for each in noted if data.get(each.key) != each.value]


@dataclass(frozen=True, slots=True)
class Losses:
    """Of a group that was founded anew. Seconds since the strike was complete."""

    last_old_s: float
    reset_s: float
    first_new_s: float
    acknowledged: int
    lost: int
    first_lost_s: float
    last_lost_s: float

    def __str__(self) -> str:
        span = f" of {self.first_lost_s:.2f} to {self.last_lost_s:.2f} s" if self.lost else ""
        return (
            f"the old group acknowledged until {self.last_old_s:.2f} s, the reset came at "
            f"{self.reset_s:.2f} s, the new one acknowledged from {self.first_new_s:.2f} s on; of the old "
            f"one's {self.acknowledged} puts {self.lost}{span} are lost"
        )


class Trial:
    def __init__(self, whole: CutInstallation, opened: Side, strong: Side, metastore: EtcdMetastore) -> None:
        self.whole = whole
        self.open = opened
        self.strong = strong
        self._metastore = metastore
        self._strong_pids = strong.pids()
        assert len(self._strong_pids) == len(NODES)

    async def both_answer(self, *nodes: str) -> None:
        await self.open.answers(*nodes)
        await self.strong.answers(*nodes)

    async def generation(self) -> int:
        """Of the zone that is founded anew. Raises MetastoreError."""
        item = await self._metastore.get(Keyspace().partition(self.open.partition).group)
        record = readable(item, GroupRecord.decode)
        assert record is not None
        return record.generation

    async def reset(self, generation: int, within_s: float = WAIT_S) -> int:
        """When the group of ``generation`` is given up, by the transaction that does: nanoseconds."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            # The metastore may be stopped.
            with suppress(MetastoreError):
                if await self._is_reset(generation):
                    return time.monotonic_ns()
            await asyncio.sleep(0.02)
        raise AssertionError(f"not reset within {within_s} s: {await asyncio.to_thread(self.open.cause)}")

    async def stays(self, generation: int, seconds: float) -> None:
        """The group of ``generation`` is not given up for so long."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            with suppress(MetastoreError):
                assert not await self._is_reset(generation)
            await asyncio.sleep(0.1)

    async def _is_reset(self, generation: int) -> bool:
        keys = Keyspace().partition(self.open.partition)
        result = await self._metastore.commit(Txn((), (Get(keys.pending), Get(keys.group))))
        pending = readable(result.only(0), Assignments.decode)
        group = readable(result.only(1), GroupRecord.decode)
        is_founded = group is not None and group.generation != generation
        return is_founded or (pending is not None and pending.forced)

    async def all_well(self) -> None:
        """Both zones have a voter on each node, and each of them takes puts."""

        def is_well() -> bool:
            return self.whole.is_whole() and not self.open.cause() and not self.strong.cause()

        await asyncio.to_thread(wait_for, "all well", is_well, WAIT_S)
        await self.both_answer()

    def is_one_group_at_a_time(self, blow: Strike, generation: int) -> None:
        """The one of ``generation`` acknowledged nothing after its members' fence, nor beside a later one."""
        assert not outlived(self.open.puts.acknowledged)
        old, _ = self.open.acknowledged_until(generation)
        assert blow.seconds_to(max(put.returned for put in old)) <= FENCE_S + STOPPED_S

    async def losses(self, blow: Strike, reset: int, generation: int, survivor: dict[str, str]) -> Losses:
        """Judges a whole history: ``generation`` is the old group's; ``survivor`` is what the founder's copy
        had before it founded. Called when all is well again."""
        old, new = self.open.acknowledged_until(generation)
        self.is_one_group_at_a_time(blow, generation)
        (url, *_) = (await asyncio.to_thread(self.open.urls)).values()
        data = await self.open.data(url)
        assert {key: data.get(key) for key in survivor} == survivor
        assert not await self.open.missing(new)
        lost = await self.open.missing(old)
        figures = Losses(
            blow.seconds_to(max(each.returned for each in old)),
            blow.seconds_to(reset),
            blow.seconds_to(min(each.returned for each in new)),
            len(old),
            len(lost),
            min((blow.seconds_to(each.returned) for each in lost), default=0.0),
            max((blow.seconds_to(each.returned) for each in lost), default=0.0),
        )
        assert figures.reset_s >= RESET_S, figures
        assert figures.first_new_s > figures.last_old_s, figures
        return figures

    async def strong_is_untouched(self) -> None:
        """The same processes, one group, and every acknowledged put."""
        assert self.strong.pids() == self._strong_pids
        puts = self.strong.puts.acknowledged
        assert {each.generation for each in puts} == {0}
        assert not await self.strong.missing(puts)


@asynccontextmanager
async def trial(whole: CutInstallation) -> AsyncIterator[Trial]:
    """Clients put at each member of both zones for the length of the block."""
    ids = {zone["name"]: ZoneId(zone["zone_id"]) for zone in whole.get("/api/v1/zones")["zones"]}
    metastore = EtcdMetastore(whole.sites.endpoint.split(","), 5.0)
    partitions = {zone: PartitionId(ids[zone], 0) for zone in (OPEN, STRONG)}
    try:
        async with pinned_puts(partitions[OPEN], ()) as opened, pinned_puts(partitions[STRONG], ()) as strong:
            running = Trial(
                whole,
                Side(whole, OPEN, partitions[OPEN], opened),
                Side(whole, STRONG, partitions[STRONG], strong),
                metastore,
            )
            await running.all_well()
            yield running
    finally:
        await metastore.close()
