"""Operators' requests for zones of store servers, over a real etcd, real disks and real connections."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from app.views.store_servers import StoreCopies
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Zone, ZoneId
from rebalance.controllers.ring_mirror import RingReader
from rebalance.controllers.store_requests import StoreRequests
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.data.store_attempts import StoreRefusedError
from rebalance.exchange.core.exchange_states import Phase
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.store.core.exchange_record import ExchangeRecord, decode_exchange
from rebalance.store.core.store_messages import AnswerCode
from tests.fixtures.store_client import LIMIT_S
from tests.fixtures.store_trio import ZONE, StoreTrio, store_trio

LISTS = [("n1", "n2"), ("n2", "n3"), ("n3", "n1")]
BULK = Zone(ZONE, "BULK", len(LISTS), 2, None, ("bulk",))


class Asked:
    """A server's part: its mirror of the keyspace, and what people ask of it."""

    def __init__(self, metastore: EtcdMetastore, keyspace: Keyspace, mirror: KeyspaceMirror) -> None:
        self.ring = RingReader(mirror, keyspace)
        self.requests = StoreRequests(metastore, keyspace, mirror, self.ring, lambda zone_id: False, LIMIT_S)
        self.copies = StoreCopies(self.ring)
        self._mirror = mirror
        self._keyspace = keyspace

    def exchanges(self) -> list[ExchangeRecord]:
        return [decode_exchange(item.value) for item in self._mirror.below(self._keyspace.exchange_log)]

    def causes(self) -> list[Trigger]:
        return [record.cause.trigger for record in self.exchanges()]

    async def until(self, condition: Callable[[], bool]) -> None:
        assert await self._mirror.wait_until(condition, LIMIT_S)

    def lost(self) -> set[int]:
        return {number for number, item in enumerate(self.ring.outcomes(ZONE)) if item.is_lost}


@asynccontextmanager
async def asked(metastore: EtcdMetastore, keyspace: Keyspace) -> AsyncIterator[Asked]:
    mirror = KeyspaceMirror(metastore, keyspace.prefix)
    running = asyncio.create_task(mirror.run())
    try:
        await mirror.loaded()
        made = Asked(metastore, keyspace, mirror)
        await made.until(lambda: len(made.ring.outcomes(ZONE)) == len(LISTS))
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def put_all(trio: StoreTrio, value: bytes) -> None:
    for number in range(len(LISTS)):
        assert (await trio.client.put((ZONE, number), b"key", value)).revision > 0


async def refusal(trio: StoreTrio) -> tuple[AnswerCode, str]:
    """Code and detail of the refusal of a put into partition 0."""
    with pytest.raises(StoreRefusedError) as refused:
        await trio.client.put((ZONE, 0), b"key", b"2")
    return refused.value.code, str(refused.value).rpartition(": ")[2]


@pytest.mark.row("PME-007", "PME-008")
async def test_a_zone_is_deactivated_and_activated(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """PME-008, PME-007: an exchange each. Asked again, nothing is changed."""
    async with (
        store_trio(tmp_path, metastore, keyspace, LISTS) as trio,
        asked(metastore, keyspace) as server,
    ):
        await put_all(trio, b"1")
        request = await server.requests.set_active(BULK, is_active=False)
        assert request.version is not None
        assert request.is_done
        assert await refusal(trio) == (AnswerCode.RESTING, "zone 1 is deactivated")
        again = await server.requests.set_active(BULK, is_active=False)
        assert (again.version, again.is_done) == (None, True)
        # What a server publishes as the last thing before it is killed may get lost.
        await server.until(lambda: Trigger.DEACTIVATE in server.causes())
        # Servers that come back while it rests leave its files as they are.
        await trio.stop("n1")
        await trio.start("n1")
        await trio.until_joined("n1")
        assert await refusal(trio) == (AnswerCode.RESTING, "zone 1 is deactivated")
        assert (await server.requests.set_active(BULK, is_active=True)).is_done
        assert await trio.client.get((ZONE, 0), b"key") == b"1"
        await put_all(trio, b"3")
        await server.until(lambda: Trigger.ACTIVATE in server.causes())
        assert server.causes().count(Trigger.DEACTIVATE) == 1


@pytest.mark.row("PME-094", "PME-095")
async def test_partitions_whose_owners_lost_their_disks_are_reset(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """PME-094: two of three servers go for good, so one partition is lost. PME-095: it is refused, others are
    served. After the reset it serves again, without what only they had."""
    async with (
        store_trio(tmp_path, metastore, keyspace, LISTS) as trio,
        asked(metastore, keyspace) as server,
    ):
        await put_all(trio, b"1")
        with pytest.raises(RefusedError) as refused:
            await server.requests.reset_lost(BULK)
        assert refused.value.kind is ErrorKind.RECOVERY_NOT_NEEDED
        for name in ("n1", "n2"):
            await trio.stop(name)
            await server.until(lambda name=name: name not in server.ring.state.cluster.servers)
            shutil.rmtree(tmp_path / name)
        await server.until(lambda: server.lost() == {0})
        code, text = await refusal(trio)
        assert code is AnswerCode.LOST
        assert text.startswith("partition 0 is lost")
        assert await trio.client.get((ZONE, 1), b"key") == b"1"
        for name in ("n1", "n2"):
            await trio.start(name)
            await trio.until_joined(name)
        assert server.lost() == {0}, "it stays lost until it is reset"
        (reset,) = await server.requests.reset_lost(BULK)
        assert (reset.partition, reset.outcome) == (0, "OWNED")
        assert await trio.client.get((ZONE, 0), b"key") is None
        await put_all(trio, b"3")
        assert await trio.client.get((ZONE, 0), b"key") == b"3"


@pytest.mark.row("PME-094")
async def test_a_lost_partition_serves_again_once_its_last_owner_is_back(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """PME-094: n1 fails, then n2 before n1 is back. n2 has every write that was acknowledged, n1 has not."""
    async with (
        store_trio(tmp_path, metastore, keyspace, LISTS) as trio,
        asked(metastore, keyspace) as server,
    ):
        for name, value in (("n1", b"1"), ("n2", b"2")):
            await put_all(trio, value)
            await trio.stop(name)
            await server.until(lambda name=name: name not in server.ring.state.cluster.servers)
        await server.until(lambda: server.lost() == {0})
        await trio.start("n1")
        await trio.until_joined("n1")
        assert (await refusal(trio))[0] is AnswerCode.LOST
        await trio.start("n2")
        await server.until(lambda: not server.lost())
        assert await trio.client.get((ZONE, 0), b"key") == b"2"
        await put_all(trio, b"3")
        with pytest.raises(RefusedError) as refused:
            await server.requests.reset_lost(BULK)
        assert refused.value.kind is ErrorKind.RECOVERY_NOT_NEEDED


async def test_what_waits_for_a_server_that_never_comes_back_is_given_up_by_name_only(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """All stop, n3 last, with what partitions 1 and 2 took meanwhile. Nothing is lost while it may return."""
    async with (
        store_trio(tmp_path, metastore, keyspace, LISTS) as trio,
        asked(metastore, keyspace) as server,
    ):
        for name, value in (("n1", b"1"), ("n2", b"2"), ("n3", b"3")):
            for number in range(len(LISTS)) if name != "n3" else (1, 2):
                assert (await trio.client.put((ZONE, number), b"key", value)).revision > 0
            await trio.stop(name)
            await server.until(lambda name=name: name not in server.ring.state.cluster.servers)
        for name in ("n1", "n2"):
            await trio.start(name)
            await trio.until_joined(name)
        await server.until(lambda: not server.lost())
        refusals = []
        for names in ((), ("n1", "n3"), ("n3", "n4")):
            with pytest.raises(RefusedError) as refused:
                await server.requests.reset_lost(BULK, names)
            refusals.append((refused.value.kind, refused.value.message.split(". ")[0]))
        assert refusals == [
            (
                ErrorKind.RECOVERY_NOT_NEEDED,
                "no partition of zone BULK is lost; 2 wait for servers that are away: n3",
            ),
            (ErrorKind.LOSS_NOT_CONFIRMED, "n1 takes part, but was confirmed as dead; waited for: n3"),
            (ErrorKind.LOSS_NOT_CONFIRMED, "no partition of zone BULK waits for n4; waited for: n3"),
        ]
        resets = await server.requests.reset_lost(BULK, ("n3",))
        assert [(reset.partition, reset.outcome) for reset in resets] == [(1, "OWNED"), (2, "OWNED")]
        values = [await trio.client.get((ZONE, number), b"key") for number in range(len(LISTS))]
        assert values == [b"2", b"2", b"1"]


@pytest.mark.row("PME-064")
async def test_exchanges_and_copies_are_shown(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """Show one record of each exchange, the server's answer for each copy, and a silent server as silent."""
    async with (
        store_trio(tmp_path, metastore, keyspace, LISTS) as trio,
        asked(metastore, keyspace) as server,
    ):
        await put_all(trio, b"1")
        await server.until(lambda: Trigger.ZONE_START in server.causes())
        (start,) = (item for item in server.exchanges() if item.cause.trigger is Trigger.ZONE_START)
        assert start.cause.zones == (ZONE,)
        assert start.coordinator == server.ring.state.cluster.coordinator
        assert start.version == start.cause.version
        phases = [item.phase for item in start.phases]
        assert phases[0] is Phase.INIT
        assert phases[-2:] == [Phase.COLLECT, Phase.COMMIT]
        assert all(item.ended_ms is not None and item.ended_ms >= item.begun_ms for item in start.phases)
        answers = await server.copies.read()
        assert [item.name for item in answers] == ["n1", "n2", "n3"]
        listed = {
            (copy.partition, item.name): (copy.state, copy.is_primary, copy.position.counter)
            for item in answers
            for copy in item.copies or ()
        }
        assert listed == {
            (number, name): ("OWNING", name == nodes[0], 1)
            for number, nodes in enumerate(LISTS)
            for name in nodes
        }
        await trio.stop("n3")
        silent = [item for item in await server.copies.read() if item.copies is None]
        assert [item.name for item in silent] == ["n3"]
        assert silent[0].reason.startswith("NO_ANSWER: ")


async def test_what_is_no_zone_of_store_servers_is_refused(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with store_trio(tmp_path, metastore, keyspace, LISTS), asked(metastore, keyspace) as server:
        groups = Zone(ZoneId(9), "GROUPS", 1, 1, None, ("default",))
        with pytest.raises(RefusedError) as refused:
            await server.requests.set_active(groups, is_active=False)
        assert refused.value.kind is ErrorKind.ENGINE_UNSUPPORTED
        server.requests.refuse_store(groups, "nothing")
        with pytest.raises(RefusedError) as refused:
            server.requests.refuse_store(BULK, "reset-lost")
        assert refused.value.kind is ErrorKind.ENGINE_UNSUPPORTED
        assert refused.value.message == "the engine store of zone BULK has no groups; accepted: reset-lost"


@pytest.mark.row("PME-063", "PME-106")
async def test_every_server_logs_its_own_and_each_full_map(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """PME-106: for each zone the coordinator and its order, the update sequence, the size and the version.
    PME-063: what each server tells: copies that are filled, version, update sequence and size."""
    with capture_logs() as lines:
        async with store_trio(tmp_path, metastore, keyspace, LISTS) as trio:
            await put_all(trio, b"1")
            cluster = trio.writer.state.cluster
    coordinator = cluster.coordinator
    assert coordinator is not None
    expected = (
        f"zone=1 nodeId={coordinator} nodeOrder={cluster.servers[coordinator]} "
        f"updateSeq=0 size=3 topVer={cluster.born[ZONE]}"
    )
    maps = [line["maps"] for line in lines if line["event"] == "full map"]
    assert maps.count((expected,)) == 3, maps
    told = [line["maps"] for line in lines if line["event"] == "single map"]
    sizes = [sum(name in nodes for nodes in LISTS) for name in cluster.servers]
    # When the zone begins no copy is owned yet.
    begins = [f"zone=1 moving={size} top={cluster.born[ZONE]} updateSeq={size} size={size}" for size in sizes]
    assert sorted(text for texts in told for text in texts if str(cluster.born[ZONE]) in text) == sorted(begins)
