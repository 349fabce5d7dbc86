"""Safe time, and reads at learners and at voters that do not lead, over real groups and mirrors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from aetcd import rpc

from app.bootstrap.server import build_app
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.safe_time import ReadPoint
from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.calls.data_client import Connections, PartitionClient
from rebalance.groups.calls.etcd_api import CallFailedError
from rebalance.groups.calls.group_guard import WrongGroupError
from rebalance.groups.calls.replica_reads import NOW, ReplicaChoice, ReplicaDatum, SafeTimeWriter
from rebalance.ports.groups import MemberLife, ReplicaBehindError, RevisionGoneError
from tests.fixtures.checked_answers import CheckedTransport
from tests.fixtures.group_hosts import P0, P1, Fixed
from tests.fixtures.mirror_process import GROUP
from tests.fixtures.mirror_rig import MirrorRig
from tests.fixtures.partial_services import services_with
from zonekeeper_client import Found, Read, ZoneClient

LEARNER, REPLICA = ReplicaChoice.LEARNER, ReplicaChoice.REPLICA


class Clock:
    """Milliseconds, as a test says."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Readers:
    """A group with a mirror, and a router that knows all of them; the leader comes first."""

    rig: MirrorRig
    source: Fixed
    router: ZoneRouter
    clock: Clock
    beats: SafeTimeWriter
    leader: str

    async def beat(self, now_ms: int) -> int:
        """Returns the group's revision of it."""
        self.clock.now_ms = now_ms
        return (await self.beats.beat(P0, self.rig.url(self.leader))).revision

    async def read(
        self, key: str, point: ReadPoint, choice: ReplicaChoice = LEARNER, limit_s: float = 60.0
    ) -> ReplicaDatum:
        return await self.router.read_at(P0, key, point, choice, limit_s)

    async def until_refused(self, point: ReadPoint, *told: str) -> None:
        """Read until a refusal contains all of these texts: the mirror's last look at its source may have come
        to no answer."""
        async with asyncio.timeout(60):
            while True:
                with pytest.raises(ReplicaBehindError) as behind:
                    await self.read("k", point, limit_s=0.3)
                if all(each in str(behind.value) for each in told):
                    return


OF_THREE = pytest.mark.parametrize("readers", ["abc"], indirect=True, ids=["three voters"])
"""Three voters, for tests in which followers could report otherwise than the leader."""


@pytest.fixture
async def readers(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Readers]:
    """Readers of a group with one voter, or with the voters whose names are the parameter."""
    voters: str = getattr(request, "param", "a")
    rig = MirrorRig(tmp_path, *voters)
    leader = await rig.hosts.found(P0, *voters)
    names = [leader, *(name for name in voters if name != leader)]
    await rig.follow(*names)
    mirror = (await rig.status()).client_url
    source = Fixed(tuple(rig.url(name) for name in names), (mirror,))
    clock = Clock(1_000)
    found = Readers(rig, source, ZoneRouter(source), clock, SafeTimeWriter(clock), leader)
    yield found
    await found.router.close()
    await found.beats.close()
    await rig.close()


@pytest.mark.row("IEP-056", "IEP-057")
async def test_safe_time_comes_with_writes_and_without(readers: Readers) -> None:
    """IEP-056, IEP-057: the learner's safe time advances with data and in an idle group; it is never ahead of
    the events that were delivered."""
    rig = readers.rig
    await readers.router.put(P0, "k", b"1", "one")
    revision = await readers.beat(2_000)
    status = await rig.until(lambda found: found.safe_revision >= revision)
    assert (status.safe_revision, status.safe_time_ms) == (revision, 2_000)
    for idle_ms in (2_500, 3_000, 3_500):
        revision = await readers.beat(idle_ms)
        status = await rig.until(lambda found, at=revision: found.safe_revision >= at)
        assert (status.safe_revision, status.safe_time_ms) == (revision, idle_ms)


@pytest.mark.row("IEP-057")
async def test_the_agent_beats_what_it_leads(readers: Readers) -> None:
    """IEP-057: by itself, until the partition is led here no more; another group's address is no obstacle."""
    led: Mapping[PartitionId, str] = {P0: readers.rig.url(readers.leader), P1: readers.rig.url(readers.leader)}
    rounds = 0

    def asked() -> Mapping[PartitionId, str]:
        nonlocal rounds
        rounds += 1
        return led

    async def until_asked(more: int) -> None:
        wanted = rounds + more
        await readers.rig.until(lambda _: rounds >= wanted)

    task = asyncio.create_task(readers.beats.run(asked))
    await readers.rig.until(lambda found: found.safe_time_ms == 1_000)
    readers.clock.now_ms = 5_000
    await readers.rig.until(lambda found: found.safe_time_ms == 5_000)
    led = {}
    # The round under way may have asked before; it is over when the next one asks.
    await until_asked(1)
    before = await readers.rig.revision(readers.leader)
    await until_asked(3)
    assert await readers.rig.revision(readers.leader) == before
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_safe_time_never_goes_back(readers: Readers) -> None:
    """A new leader's clock is behind: its beats advance the revision and repeat the time."""
    await readers.beat(9_000)
    late = SafeTimeWriter(Clock(4_000))
    first = await late.beat(P0, readers.rig.url(readers.leader))
    again = await late.beat(P0, readers.rig.url(readers.leader))
    assert (first.time_ms, again.time_ms) == (9_000, 9_000)
    assert again.revision == first.revision + 1
    # The old leader does not know of these: it learns, and goes on from them.
    assert await readers.beat(9_500) == again.revision + 1
    with pytest.raises(WrongGroupError):
        await late.beat(P1, readers.rig.url(readers.leader))
    member = readers.rig.hosts.hosts[readers.leader]
    await member.stop(P0, destroy=False)
    with pytest.raises(CallFailedError):
        await late.beat(P0, readers.rig.url(readers.leader))
    await late.close()


@OF_THREE
@pytest.mark.row("IEP-058")
async def test_a_read_at_a_time_waits_for_it(readers: Readers) -> None:
    """IEP-058: not answered before safe time is there, however much was written; then with all that was
    acknowledged before."""
    await readers.beat(2_000)
    await readers.router.put(P0, "k", b"early", "one")
    reading = asyncio.create_task(readers.read("k", ReadPoint(time_ms=3_000)))
    for number in range(20):
        await readers.router.put(P0, "other", b"%d" % number, f"other-{number}")
    await readers.beat(2_999)
    await readers.rig.caught_up(readers.leader)
    await asyncio.sleep(0.3)
    assert not reading.done()
    await readers.router.put(P0, "k", b"in time", "two")
    revision = await readers.beat(3_000)
    await readers.router.put(P0, "k", b"too late", "three")
    found = await reading
    assert (found.value, found.read_revision, found.safe_time_ms) == (b"in time", revision, 3_000)
    assert found.client_url == readers.source.mirrors[0]


@pytest.mark.row("IEP-058")
async def test_a_read_ends_with_its_time_limit_and_says_why(readers: Readers) -> None:
    """IEP-058: what was wanted, from whom, and where each of them is."""
    revision = await readers.beat(2_000)
    await readers.rig.until(lambda found: found.safe_revision >= revision)
    mirror = readers.source.mirrors[0]
    await readers.until_refused(
        ReadPoint(revision=revision + 7),
        f"no learner has revision {revision + 7} within 0.3 s",
        f"{mirror} is at revision {revision}, time 2000 ms",
    )
    with pytest.raises(ReplicaBehindError, match="no learner has time 2001 ms"):
        await readers.read("k", ReadPoint(time_ms=2_001), limit_s=0.3)
    readers.source.mirrors = ()
    with pytest.raises(ReplicaBehindError, match="3/0 has no learner to read from"):
        await readers.read("k", ReadPoint(revision=1))
    readers.source.mirrors = ("http://127.0.0.1:9",)
    await readers.until_refused(ReadPoint(revision=1), "UNAVAILABLE")


@OF_THREE
async def test_a_linearizable_read_sees_what_was_acknowledged(readers: Readers) -> None:
    """Read at the learner, at once after each put, what was acknowledged, also for a key that is not there. The
    beats make a new copy readable when nothing else is written."""
    led = {P0: readers.rig.url(readers.leader)}
    beating = asyncio.create_task(readers.beats.run(lambda: led))
    assert (await readers.read("k", NOW)).value is None
    for number in range(60):
        await readers.router.put(P0, "k", b"%d" % number, f"n-{number}")
        assert (await readers.read("k", NOW)).value == b"%d" % number
    assert (await readers.read("absent", NOW)).value is None
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)


@OF_THREE
@pytest.mark.row("IEP-055", "IEP-058")
async def test_voters_and_learners_are_read_by_the_same_code(readers: Readers) -> None:
    """IEP-055, IEP-058: the same points give the same answers at learners and at voters that do not lead."""
    await readers.router.put(P0, "k", b"old", "one")
    old = await readers.beat(2_000)
    await readers.router.put(P0, "k", b"new", "two")
    new = await readers.beat(3_000)
    points = {ReadPoint(revision=old): b"old", ReadPoint(revision=new): b"new", NOW: b"new"}
    points[ReadPoint(time_ms=2_500)] = b"new"
    mirrors, voters = readers.source.mirrors, readers.source.urls
    answered = set()
    for readers.source.mirrors in (mirrors, ()):
        for point, value in points.items():
            for _ in range(4):
                found = await readers.read("k", point, REPLICA)
                assert found.value == value
                answered.add(found.client_url)
    assert set(voters[1:]) <= answered
    assert voters[0] not in answered


async def test_a_compacted_revision_is_refused_at_once(readers: Readers) -> None:
    """Waiting would not bring it back."""
    await readers.router.put(P0, "k", b"1", "one")
    await readers.beat(2_000)
    last = await readers.rig.caught_up(readers.leader)
    mirror = readers.rig.kv(readers.source.mirrors[0])
    await mirror.Compact(rpc.CompactionRequest(revision=last))
    with pytest.raises(RevisionGoneError, match=f"revision {last - 1} is compacted"):
        await readers.read("k", ReadPoint(revision=last - 1))
    assert (await readers.read("k", ReadPoint(revision=last))).value == b"1"


async def test_a_store_that_went_on_by_itself_is_not_safe_there(readers: Readers) -> None:
    """Refuse reads of what a mirror's store has beyond the revisions that it repeated."""
    await readers.router.put(P0, "k", b"true", "one")
    await readers.beat(2_000)
    last = await readers.rig.caught_up(readers.leader)
    await readers.rig.mirrors.follow(P0, GROUP, ())
    await readers.rig.until(lambda found: found.source == "")
    mirror = readers.source.mirrors[0]
    await readers.rig.kv(mirror).Put(rpc.PutRequest(key=b"d/k", value=b"foreign"))
    with pytest.raises(ReplicaBehindError):
        await readers.read("k", ReadPoint(revision=last + 1), limit_s=0.3)
    assert (await readers.read("k", ReadPoint(revision=last))).value == b"true"
    await readers.rig.until(lambda found: found.life is MemberLife.RUNNING)


async def test_no_key_of_a_client_is_an_internal_one(readers: Readers) -> None:
    """Safe time, identity and marks are beside the data: a client's keys of these names are others."""
    await readers.beat(2_000)
    # What a copy brings along is safe up to its newest beat; what is written from now on is told one by one.
    await readers.rig.caught_up(readers.leader)
    for key in ("t", "g", "m/", "o/one"):
        assert (await readers.router.get(P0, key)).value is None
        await readers.router.put(P0, key, b"mine", f"put-{key}")
        assert (await readers.read(key, NOW)).value == b"mine"
    await readers.beat(3_000)
    client = PartitionClient(P0, connections := Connections())
    progress = await client.progress(readers.rig.url(readers.leader), 30.0, mirrored=False)
    assert progress.beat.time_ms == 3_000
    await connections.close()


class OneZone:
    """Zones as the route needs them besides the router: one zone of one partition, and a keyspace that was
    read."""

    is_loaded = True

    async def find(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, zone_id=P0.zone_id, partitions=1)


@pytest.fixture
async def api(readers: Readers) -> AsyncIterator[CheckedTransport]:
    """The REST API over the group's router."""
    router = ZoneRouter(readers.source)
    yield CheckedTransport(build_app(services_with(router=router, zones=OneZone(), mirror=OneZone())))
    await router.close()


@pytest.fixture
async def http(api: CheckedTransport) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=api, base_url="http://api/api/v1") as client:
        yield client


@OF_THREE
@pytest.mark.row("IEP-055", "IEP-058")
async def test_the_api_reads_at_learners(readers: Readers, http: httpx.AsyncClient) -> None:
    """IEP-055, IEP-058: linearizable, at a revision, at a time; each answer says as of when, and from whom."""
    path = "/zones/ORDERS/kv/k"
    await readers.router.put(P0, "k", b"old", "one")
    old = await readers.beat(2_000)
    await http.put(path, json={"value": "new"})
    new = await readers.beat(3_000)
    leader = (await http.get(path)).json()
    assert leader == {"zone": "ORDERS", "key": "k", "partition": 0, "value": "new", "revision": new - 1}
    learner = (await http.get(path, params={"read": "learner"})).json()
    assert learner == {
        **leader,
        "read_revision": new,
        "safe_time": "1970-01-01T00:00:03.000+00:00",
        "replica": readers.source.mirrors[0],
    }
    older = (await http.get(path, params={"read": "replica", "at_revision": old})).json()
    assert (older["value"], older["revision"], older["read_revision"]) == ("old", old - 1, old)
    timed = {"read": "learner", "at_time": "1970-01-01T01:00:02.500+01:00"}
    assert (await http.get(path, params=timed)).json()["read_revision"] == new


@OF_THREE
@pytest.mark.row("IEP-008")
async def test_a_client_reads_at_a_learner_what_it_has_put(readers: Readers, api: CheckedTransport) -> None:
    """IEP-008: of each moment, and though no voter answers any more."""
    async with ZoneClient(["http://api"], transport=api) as client:
        put = [await client.put("ORDERS", "k", value) for value in ("old", "new")]
        await readers.beat(2_000)
        now = await client.get("ORDERS", "k", read=Read.LEARNER)
        assert now == Found("new", put[1].revision, 0)
        for name in "abc":
            await readers.rig.hosts.hosts[name].stop(P0, destroy=False)
        for stored, value in zip(put, ("old", "new"), strict=True):
            found = await client.get("ORDERS", "k", read=Read.LEARNER, at_revision=stored.revision)
            assert found == Found(value, stored.revision, 0)


@pytest.mark.row("IEP-058")
async def test_the_api_says_what_is_wrong_with_a_read(readers: Readers, http: httpx.AsyncClient) -> None:
    """IEP-058: an end of waiting has a name of its own; what does not go together is refused."""
    path = "/zones/ORDERS/kv/k"

    async def refused(**params: str | int) -> tuple[int, str, str]:
        answer = await http.get(path, params=params)
        return answer.status_code, answer.json()["name"], answer.json()["detail"]

    await readers.beat(2_000)
    last = await readers.rig.caught_up(readers.leader)
    status, name, detail = await refused(read="learner", at_time="1970-01-01T00:00:09Z")
    assert (status, name) == (504, "REPLICA_BEHIND")
    # What is left of the 5 s once the zone has been looked up, rounded.
    assert re.search(r"no learner has time 9000 ms within (5|4\.\d{1,2}) s: ", detail), detail
    await readers.rig.kv(readers.source.mirrors[0]).Compact(rpc.CompactionRequest(revision=last))
    assert (await refused(read="learner", at_revision=last - 1))[:2] == (410, "REVISION_GONE")
    assert (await refused(read="learner", at_revision=last))[:2] == (404, "KEY_NOT_FOUND")
    for params in (
        {"at_revision": last},
        {"at_time": "1970-01-01T00:00:09Z"},
        {"read": "follower"},
        {"read": "learner", "at_revision": 0},
        {"read": "learner", "at_revision": 3, "at_time": "1970-01-01T00:00:09Z"},
        {"read": "learner", "at_time": "1970-01-01T00:00:09"},
        {"read": "learner", "at_time": "1969-01-01T00:00:00Z"},
        {"read": "learner", "at_time": "yesterday"},
    ):
        status, name, detail = await refused(**params)
        assert (status, name) == (400, "INVALID_REQUEST"), params
        assert "at_" in detail or "read" in detail
