"""R8: puts and gets carry the generation of the group that the routing map names; members of another one refuse
them. With real members."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aetcd import rpc

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import GroupRecord
from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.calls.data_client import Connections, PartitionClient
from rebalance.groups.calls.etcd_api import GENERATION_KEY, IDENTITY_KEY, open_channel
from rebalance.groups.calls.group_guard import WrongGenerationError
from rebalance.nodes.partition_view import MirroredEndpoints
from rebalance.ports.groups import GenerationRefusedError, MemberUnavailableError, OutcomeUnknownError, Route
from tests.fixtures.group_hosts import P0, Fixed, Hosts
from tests.fixtures.learner_founding import force, kill
from tests.fixtures.learner_founding import group as group_of
from tests.fixtures.node_cluster import NodeCluster, node_cluster
from tests.fixtures.puts import is_applied_once

P7 = PartitionId(ZoneId(7), 0)
LATER = 7
REFUSED_S = 1.0
"""Time limit of puts and gets that are to be refused."""


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[Hosts]:
    running = Hosts(tmp_path)
    running.open("a")
    yield running
    await running.close()


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def url_of(hosts: Hosts) -> str:
    endpoints = hosts.hosts["a"].endpoints(P0)
    assert endpoints is not None
    return endpoints.client_url


async def found_anew(hosts: Hosts, generation: int) -> None:
    """Found the group again on the member's own data, as a recovery does; it keeps its address."""
    async with asyncio.timeout(90):
        while True:
            try:
                if await hosts.hosts["a"].found_alone(P0, generation):
                    break
            except MemberUnavailableError:
                await asyncio.sleep(0.05)
    assert await hosts.leader(P0) == "a"


@asynccontextmanager
async def router_of(source: Fixed, time_limit_s: float = 60.0) -> AsyncIterator[ZoneRouter]:
    router = ZoneRouter(source, time_limit_s=time_limit_s)
    try:
        yield router
    finally:
        await router.close()


@asynccontextmanager
async def store_of(hosts: Hosts) -> AsyncIterator[Any]:
    channel = open_channel(url_of(hosts))
    try:
        yield channel
    finally:
        await channel.close()


async def item(channel: Any, key: bytes) -> Any:
    """None where there is no such key."""
    items = (await rpc.KVStub(channel).Range(rpc.RangeRequest(key=key), timeout=30.0)).kvs
    return items[0] if items else None


async def refusal(call: Callable[[], Awaitable[object]]) -> GenerationRefusedError:
    """Refusal that the call ends with; a call without any answer, as on a slow machine, is made again."""
    async with asyncio.timeout(120):
        while True:
            try:
                answer = await call()
            except GenerationRefusedError as refused:
                return refused
            except OutcomeUnknownError:
                continue
            raise AssertionError(f"not refused: {answer}")


async def check_refused(hosts: Hosts, expected: int, answered: int) -> None:
    """Check that a client which expects ``expected`` writes and reads nothing, leaves no lease behind, and gets
    both generations in the refusal."""
    async with store_of(hosts) as channel:
        leases = rpc.LeaseStub(channel)
        before = len((await leases.LeaseLeases(rpc.LeaseLeasesRequest())).leases)
        source = Fixed((url_of(hosts),), generation=expected)
        async with router_of(source, REFUSED_S) as router:
            for call in (
                partial(router.put, P0, "refused", b"1", f"op-{expected}"),
                partial(router.get, P0, "k"),
                partial(router.revision, P0),
            ):
                refused = await refusal(call)
                assert (refused.code, refused.expected, refused.answered) == (40001, expected, answered)
                assert "WRONG_GENERATION" in str(refused)
        assert source.doubts
        assert await item(channel, b"d/refused") is None
        assert len((await leases.LeaseLeases(rpc.LeaseLeasesRequest())).leases) <= before


async def test_each_life_of_a_group_refuses_what_is_meant_for_another_one(hosts: Hosts) -> None:
    """The first life refuses the clients of the second one, and the second one those of the first one, at the
    same address."""
    await hosts.found(P0, "a")
    url = url_of(hosts)
    async with router_of(Fixed((url,))) as router:
        await router.put(P0, "k", b"first", "op-k")
    await check_refused(hosts, expected=LATER, answered=0)
    await found_anew(hosts, LATER)
    await check_refused(hosts, expected=0, answered=LATER)
    await check_refused(hosts, expected=LATER + 1, answered=LATER)
    async with router_of(Fixed((url,), generation=LATER)) as router:
        assert (await router.get(P0, "k")).value == b"first"
        await router.put(P0, "k", b"second", "op-second")
        assert (await router.put(P0, "k", b"never", "op-k")).repeated, "the mark of the first life is known"
    async with router_of(Fixed((url,), generation=None)) as router:
        assert (await router.get(P0, "k")).value == b"second", "a map that names no generation"


async def test_a_put_goes_on_with_the_route_that_comes_after_a_refusal(hosts: Hosts) -> None:
    """The map is asked for once, and the same put is applied once, by the life that the new map names."""
    await hosts.found(P0, "a")
    await found_anew(hosts, LATER)

    class Refreshed(Fixed):
        def doubt(self, partition: PartitionId) -> None:
            super().doubt(partition)
            self.generation = LATER

    source = Refreshed((url_of(hosts),))
    async with router_of(source) as router:
        result = await router.put(P0, "k", b"1", "op-k")
        # A slow machine may need further attempts, the first of which may have been applied.
        assert (result.attempts, source.doubts) == (2, 1) or result.attempts > 2
        assert is_applied_once(result)
        source.generation = 0
        assert (await router.get(P0, "k")).value == b"1"


async def test_a_full_store_acknowledges_no_mark_of_another_life(hosts: Hosts) -> None:
    """The put that reaches the quota is answered with an error and looks for its mark: in its own life only."""
    await hosts.found(P0, "a")
    url = url_of(hosts)
    async with router_of(Fixed((url,))) as router:
        await router.put(P0, "k", b"1", "op-k")
    await found_anew(hosts, LATER)
    client = PartitionClient(P0, connections := Connections())
    assert not (await client.put(url, b"other", b"1", "with a lease", 30.0, LATER)).repeated
    async with store_of(hosts) as channel:
        maintenance = rpc.MaintenanceStub(channel)
        status = await maintenance.Status(rpc.StatusRequest())
        alarm = rpc.AlarmRequest(
            action=rpc.AlarmRequest.ACTIVATE, memberID=status.header.member_id, alarm=rpc.NOSPACE
        )
        await maintenance.Alarm(alarm)
    assert not (await client.put(url, b"k", b"1", "op-k", 30.0, LATER)).repeated, "of its own life"
    with pytest.raises(WrongGenerationError):
        await client.put(url, b"k", b"1", "op-k", 30.0, 0)
    await connections.close()


@pytest.mark.thorough("test_an_empty_group_has_its_generation_as_soon_as_it_has_its_name")
@pytest.mark.parametrize("written", [None, b"3"])
async def test_a_group_that_an_earlier_build_has_founded_gets_its_generation(
    hosts: Hosts, written: bytes | None
) -> None:
    """Write a missing generation, or one of an earlier reset, into a store that an earlier build founded: the
    leader's node does so, once."""
    await hosts.found(P0, "a")
    await found_anew(hosts, LATER)
    async with store_of(hosts) as channel:
        kv = rpc.KVStub(channel)
        if written is None:
            await kv.DeleteRange(rpc.DeleteRangeRequest(key=GENERATION_KEY))
        else:
            await kv.Put(rpc.PutRequest(key=GENERATION_KEY, value=written))
    await check_refused(hosts, expected=LATER, answered=int(written or 0))
    host = hosts.hosts["a"]
    for _ in range(2):
        await host.stop(P0, destroy=False)
        await host.restart(P0)
        await hosts.leader(P0)
    async with router_of(Fixed((url_of(hosts),), generation=LATER)) as router:
        await router.put(P0, "k", b"1", "op-k")
    async with store_of(hosts) as channel:
        stored = await item(channel, GENERATION_KEY)
        assert (stored.value, stored.version) == (b"%d" % LATER, 1 if written is None else 3)
    await check_refused(hosts, expected=0, answered=LATER)


async def test_an_empty_group_has_its_generation_as_soon_as_it_has_its_name(hosts: Hosts) -> None:
    """One revision: there is no moment at which it takes puts that are meant for its first life."""
    host = hosts.hosts["a"]
    peer_url = (await host.reserve(P0)).peer_url
    await host.bootstrap(P0, GroupRecord("token", {"a": peer_url}, LATER))
    await hosts.leader(P0)
    async with store_of(hosts) as channel:
        identity, generation = await item(channel, IDENTITY_KEY), await item(channel, GENERATION_KEY)
        assert generation.value == b"%d" % LATER
        assert generation.create_revision == identity.create_revision
    await check_refused(hosts, expected=0, answered=LATER)


async def test_a_metastore_that_was_restored_from_before_a_reset_learns_of_it(cluster: NodeCluster) -> None:
    """Restore a ``group`` key that names the first life: puts are refused until the leader's node has brought
    it up to date."""
    cluster.start("n1")
    await cluster.write_stable(P7, "n1")
    await cluster.until(lambda: cluster.settled(P7, "n1"))
    key, first = cluster.keyspace.partition(P7).group, group_of(cluster)
    generation = await force(cluster, "n1")
    await cluster.until(lambda: cluster.settled(P7, "n1") and group_of(cluster).generation == generation)
    founding = group_of(cluster).founding_revision
    await cluster.put(key, first.encode())
    await cluster.router.put(P7, "k", b"1", "op-k", limit_s=60)
    assert (group_of(cluster).generation, group_of(cluster).founding_revision) == (generation, founding)
    await cluster.until(lambda: cluster.settled(P7, "n1"))


class HeldMap:
    """The map as it was, until ``refresh``."""

    def __init__(self, source: MirroredEndpoints) -> None:
        self._source = source
        self.held = source.route(P7)
        self.doubts = 0

    def refresh(self) -> None:
        self.held = self._source.route(P7)

    def route(self, partition: PartitionId) -> Route:
        return self.held

    def learners(self, partition: PartitionId) -> tuple[str, ...]:
        return ()

    async def wait_for_change(self, partition: PartitionId, seen: Route, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)

    def doubt(self, partition: PartitionId) -> None:
        self.doubts += 1


class Stream:
    """Puts one key after the other. ``acknowledged``: by the generation that the map named then; ``refused``:
    how many were answered by another generation last (members that are gone leave it open whether they took it
    before)."""

    def __init__(self, source: HeldMap) -> None:
        self._source = source
        self._router = ZoneRouter(source, time_limit_s=REFUSED_S)
        self._numbers = itertools.count()
        self.acknowledged: dict[int | None, list[str]] = {}
        self.refused = 0

    async def run(self) -> None:
        """Write keys one after another until cancelled, noting each acknowledged key under the generation it
        named."""
        while True:
            key, named = f"key-{next(self._numbers):06d}", self._source.held.generation
            try:
                await self._router.put(P7, key, key.encode(), f"op-{key}")
                self.acknowledged.setdefault(named, []).append(key)
            except (OutcomeUnknownError, GenerationRefusedError) as failed:
                self.refused += "WRONG_GENERATION" in str(failed)
            await asyncio.sleep(0.004)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        await self._router.close()


@pytest.mark.thorough("test_each_life_of_a_group_refuses_what_is_meant_for_another_one")
async def test_a_reset_during_puts_of_a_client_with_an_old_map(cluster: NodeCluster) -> None:
    """The survivor founds the group anew at its old address while a client writes there by the old map: no put
    is acknowledged by a life of the group that the map does not name. With the new map the puts go on."""
    names = ("n1", "n2", "n3")
    cluster.start(*names)
    await cluster.write_stable(P7, *names)
    await cluster.until(lambda: cluster.settled(P7, *names))
    source = HeldMap(MirroredEndpoints(cluster.mirrors))
    assert source.held.generation == 0
    stream = Stream(source)
    async with stream.running():
        await cluster.until(lambda: len(stream.acknowledged.get(0, ())) > 50)
        await kill(cluster, "n2", "n3")
        generation = await force(cluster, "n1", Assignments(("n1",)))
        await cluster.until(lambda: cluster.stable(P7) == {"n1"} and not cluster.has_pending(P7))
        await cluster.until(lambda: stream.refused > 2)
    assert source.doubts
    record = cluster.record(P7, "n1")
    assert record is not None
    assert record.client_url in source.held.voters, "the address is the old one"

    source.refresh()
    assert source.held == Route((record.client_url,), generation)
    async with stream.running():
        await cluster.until(lambda: len(stream.acknowledged.get(generation, ())) > 20)
    await stream.close()
    founding, revisions = group_of(cluster).founding_revision, {}
    for named, keys in stream.acknowledged.items():
        data = [await cluster.router.get(P7, key) for key in keys]
        revisions[named] = [datum.revision for datum in data if datum.value is not None]
    assert founding
    assert max(revisions[0]) <= founding < min(revisions[generation])
    assert len(revisions[generation]) == len(stream.acknowledged[generation])
