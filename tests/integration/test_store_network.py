"""Connections of store servers: hellos, refusals, batches, and connections of servers that are gone."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
import uvloop

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.partition_maps.topology_version import Cluster, TopologyVersion
from rebalance.data.store_attempts import StoreRefusedError
from rebalance.data.zone_router import ZoneRouter
from rebalance.hosting.tls import TlsFiles
from rebalance.store.core.ring_records import RingState
from rebalance.store.core.store_effects import Reply
from rebalance.store.core.store_inputs import (
    ClientGone,
    ClientRequest,
    ServerConnected,
    ServerMessage,
    StoreInput,
)
from rebalance.store.core.store_messages import (
    AnswerCode,
    PeerPing,
    ReadRequest,
    ServerRoom,
    StoreAnswer,
    StoreHello,
)
from rebalance.store.shell.frame_connection import (
    FRAME_BYTES_MAX,
    LENGTH,
    CloseCode,
    StoreRefused,
    WireMessage,
    encode_frame,
)
from rebalance.store.shell.store_client import (
    CLIENT,
    StoreChannel,
    StoreUnreachableError,
    server_url,
)
from rebalance.store.shell.store_network import CLIENTS_MAX, UNKNOWN_MAX, StoreNetwork
from tests.fixtures.scripted_store import Listed
from tests.fixtures.store_client import WireClient, wire_client
from tests.fixtures.tls_files import tls_files

READ = ReadRequest(1, ZoneId(1), 0, b"key")
LIMIT_S = 60.0


def ring_of(**orders: int) -> RingState:
    """Servers with their join orders; an incarnation is the name and the order."""
    cluster = Cluster(TopologyVersion(max(orders.values())), dict(orders))
    return RingState(len(orders), cluster, {name: f"{name}-{order}" for name, order in orders.items()})


class Station:
    """A network with what it has handed in. ``now_ms``: its clock."""

    def __init__(
        self,
        name: str,
        order: int,
        ports: dict[str, int],
        tls: TlsFiles | None = None,
        clients_max: int = CLIENTS_MAX,
    ) -> None:
        self.inputs: list[StoreInput] = []
        self.now_ms = 1_000
        self.hello = StoreHello(name, order, f"{name}-{order}", TopologyVersion(3))
        self._ports = ports
        self._changed = asyncio.Event()
        self.network = StoreNetwork(
            *(lambda: self.hello, self._give, self._address, lambda: self.now_ms, tls), clients_max=clients_max
        )

    async def listen(self) -> None:
        self._ports[self.hello.name] = await self.network.listen("127.0.0.1", 0)

    @property
    def port(self) -> int:
        return self._ports[self.hello.name]

    async def until(self, is_so: Callable[[list[StoreInput]], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_so(self.inputs):
                self._changed.clear()
                await self._changed.wait()

    async def until_given(self, given: StoreInput) -> None:
        await self.until(lambda inputs: given in inputs)

    def _give(self, given: StoreInput) -> None:
        self.inputs.append(given)
        self._changed.set()

    async def _address(self, name: str, incarnation: str) -> tuple[str, int] | None:
        return ("127.0.0.1", self._ports[name]) if name in self._ports else None


@asynccontextmanager
async def stations(
    *names: str, tls: TlsFiles | None = None, clients_max: int = CLIENTS_MAX
) -> AsyncIterator[list[Station]]:
    """Listening, in join order from 1, and unaware of each other."""
    ports: dict[str, int] = {}
    opened = [Station(name, order, ports, tls, clients_max) for order, name in enumerate(names, 1)]
    for station in opened:
        await station.listen()
    try:
        yield opened
    finally:
        for station in opened:
            await station.network.close()


async def closed(client: WireClient) -> list[WireMessage]:
    """Messages that the server sends until it closes the connection."""
    async with asyncio.timeout(LIMIT_S):
        messages: list[WireMessage] = []
        while batch := await client.read():
            messages += batch
        return messages


async def test_two_servers_have_one_connection_and_send_in_order() -> None:
    async with stations("a", "b") as (a, b):
        for station in (a, b):
            station.network.ring_changed(ring_of(a=1, b=2))
        await a.until_given(ServerConnected("b", 2))
        await b.until_given(ServerConnected("a", 1))
        for number in range(100):
            a.network.send("b", 2, ServerRoom(number % 2 == 0))
            b.network.send("a", 1, PeerPing(number % 2 == 0))
        a.network.flush()
        b.network.flush()
        await b.until(lambda inputs: len(inputs) == 101)
        await a.until(lambda inputs: len(inputs) == 101)
        assert b.inputs[1:] == [ServerMessage("a", 1, ServerRoom(number % 2 == 0)) for number in range(100)]
        assert a.inputs[1:] == [ServerMessage("b", 2, PeerPing(number % 2 == 0)) for number in range(100)]


async def test_what_is_sent_to_an_order_that_is_not_connected_is_dropped() -> None:
    async with stations("a", "b") as (a, b):
        for station in (a, b):
            station.network.ring_changed(ring_of(a=1, b=2))
        await a.until_given(ServerConnected("b", 2))
        a.network.send("b", 9, ServerRoom(False))
        a.network.send("c", 2, ServerRoom(False))
        a.network.send("b", 2, ServerRoom(True))
        a.network.flush()
        await b.until_given(ServerMessage("a", 1, ServerRoom(True)))
        assert not any(given == ServerMessage("a", 1, ServerRoom(False)) for given in b.inputs)


async def test_a_younger_server_dials_until_the_older_one_answers() -> None:
    async with stations("b") as (b,):
        ports = {"b": b.port}
        younger = Station("c", 2, ports)
        ports["b"] = 1
        younger.network.ring_changed(ring_of(b=1, c=2))
        b.network.ring_changed(ring_of(b=1, c=2))
        await asyncio.sleep(0.2)
        ports["b"] = b.port
        await younger.until_given(ServerConnected("b", 1))
        await b.until_given(ServerConnected("c", 2))
        await younger.network.close()


async def test_a_lost_connection_is_made_again() -> None:
    async with stations("a", "b") as (a, b):
        for station in (a, b):
            station.network.ring_changed(ring_of(a=1, b=2))
        await a.until_given(ServerConnected("b", 2))
        await b.until_given(ServerConnected("a", 1))
        a.network.disconnect("b", 2)
        await a.until(lambda inputs: inputs.count(ServerConnected("b", 2)) >= 2)
        await b.until(lambda inputs: inputs.count(ServerConnected("a", 1)) >= 2)


async def test_a_removed_incarnation_is_disconnected_and_not_let_in_again() -> None:
    async with stations("a") as (a,), wire_client(a.port) as client:
        a.network.ring_changed(ring_of(a=1, b=2))
        await client.greet(StoreHello("b", 2, "b-2"))
        await a.until_given(ServerConnected("b", 2))
        a.network.ring_changed(ring_of(a=1))
        a.network.disconnect("b", 2)
        (refused,) = await closed(client)
        assert refused.code is CloseCode.REMOVED
        a.network.ring_changed(ring_of(a=1, b=3))
        async with wire_client(a.port) as again:
            await again.greet(StoreHello("b", 2, "b-2"))
            assert again.refusal is not None
            assert again.refusal.code is CloseCode.REMOVED
        async with wire_client(a.port) as other:
            await other.greet(StoreHello("b", 3, "b-2"))
            assert other.refusal is not None
        async with wire_client(a.port) as new:
            await new.greet(StoreHello("b", 3, "b-3"))
            assert new.hello == a.hello


async def test_a_server_whose_join_is_not_heard_of_yet_is_let_in() -> None:
    async with stations("a") as (a,), wire_client(a.port) as client:
        a.network.ring_changed(ring_of(a=1))
        await client.greet(StoreHello("z", 7, "z-7"))
        assert client.hello == a.hello
        await a.until_given(ServerConnected("z", 7))


async def test_whoever_answers_for_another_server_is_refused() -> None:
    async with stations("a", "x") as (a, x):
        younger = Station("c", 9, {"a": x.port})
        younger.network.ring_changed(ring_of(a=1, c=9))
        x.network.ring_changed(ring_of(a=1, c=9))
        await x.until_given(ServerConnected("c", 9))
        await asyncio.sleep(0.1)
        assert younger.inputs == []
        assert ServerConnected("c", 9) not in a.inputs
        await younger.network.close()


async def test_clients_are_answered_and_their_going_is_reported() -> None:
    async with stations("a") as (a,):
        async with wire_client(a.port) as client:
            await client.greet()
            assert client.hello == a.hello
            client.write([READ, replace(READ, request=2)])
            await a.until(lambda inputs: len(inputs) == 2)
            assert a.inputs == [ClientRequest(1, READ), ClientRequest(1, replace(READ, request=2))]
            for number in (1, 2):
                answer = StoreAnswer(number, AnswerCode.DONE, value=b"v")
                a.network.reply(Reply(1, answer, until_ms=2_000, late=AnswerCode.NOT_SERVING))
            a.network.flush()
            assert await client.read() == [StoreAnswer(n, AnswerCode.DONE, value=b"v") for n in (1, 2)]
        await a.until_given(ClientGone(1))


async def test_an_answer_whose_time_is_over_goes_as_late() -> None:
    async with stations("a") as (a,), wire_client(a.port) as client:
        await client.greet()
        client.write([READ])
        await a.until_given(ClientRequest(1, READ))
        done = StoreAnswer(1, AnswerCode.DONE, TopologyVersion(3), b"secret")
        a.network.reply(Reply(1, done, until_ms=1_500, late=AnswerCode.NOT_SERVING))
        a.network.reply(Reply(1, replace(done, request=2), until_ms=1_501, late=AnswerCode.UNKNOWN))
        a.now_ms = 1_500
        a.network.flush()
        assert await client.read() == [
            StoreAnswer(1, AnswerCode.NOT_SERVING, TopologyVersion(3)),
            replace(done, request=2),
        ]


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([encode_frame([READ])], CloseCode.NO_HELLO),
        ([encode_frame([replace(CLIENT, wire_format=2)])], CloseCode.WIRE_FORMAT),
        ([encode_frame([StoreHello("b", 0, "b-0")])], CloseCode.REMOVED),
        ([LENGTH.pack(4) + b"\xc1\xc1\xc1\xc1"], CloseCode.UNREADABLE),
        ([LENGTH.pack(FRAME_BYTES_MAX + 1)], CloseCode.FRAME_TOO_LARGE),
        ([encode_frame([CLIENT]), encode_frame([ServerRoom(True)])], CloseCode.NOT_ALLOWED),
        ([encode_frame([StoreHello("b", 2, "b-2")]), encode_frame([READ])], CloseCode.NOT_ALLOWED),
    ],
)
async def test_what_is_not_allowed_is_refused_by_code(frames: list[bytes], code: CloseCode) -> None:
    async with stations("a") as (a,), wire_client(a.port) as client:
        a.network.ring_changed(ring_of(a=1, b=2))
        for frame in frames:
            client.write_bytes(frame)
        messages = await closed(client)
        assert messages[-1].code is code
        assert messages[-1].accepted


async def test_any_bytes_leave_the_server_as_it_was() -> None:
    chance = random.Random(5)
    async with stations("a") as (a,):
        for number in range(60):
            async with wire_client(a.port) as client:
                if number % 2:
                    await client.greet()
                content = chance.randbytes(chance.randrange(1, 300))
                client.write_bytes(LENGTH.pack(len(content)) + content if number % 3 else content)
        async with wire_client(a.port) as client:
            await client.greet()
            client.write([READ])
            await a.until(lambda inputs: any(isinstance(given, ClientRequest) for given in inputs))


async def test_a_client_whose_certificate_was_of_no_use_dials_once_it_is(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls, own = tls_files(tmp_path / "server", authority), tls_files(tmp_path / "own", authority)
    content = own.key.read_bytes()
    own.key.write_bytes(tls.key.read_bytes())
    async with stations("a", tls=tls) as (a,):
        channel = StoreChannel(server_url("127.0.0.1", a.port, "a", a.hello.incarnation), own)
        with pytest.raises(StoreUnreachableError, match="no certificate with its key"):
            await channel.ask(READ, 5.0)
        own.key.write_bytes(content)
        reading = asyncio.create_task(channel.ask(READ, LIMIT_S))
        await a.until(lambda inputs: any(isinstance(given, ClientRequest) for given in inputs))
        reading.cancel()
        await channel.close()


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_a_reader_that_reads_nothing_is_closed(is_tls: bool, tmp_path: Path) -> None:
    tls = tls_files(tmp_path, trustme.CA()) if is_tls else None
    context = None if tls is None else tls.context()
    async with stations("a", tls=tls) as (a,), wire_client(a.port, context) as client:
        await client.greet()
        client.write([READ])
        await a.until_given(ClientRequest(1, READ))
        answer = StoreAnswer(1, AnswerCode.DONE, value=b"x" * (1 << 20))
        for _ in range(200):
            a.network.reply(Reply(1, answer, until_ms=9_999, late=AnswerCode.UNKNOWN))
            a.network.flush()
            await asyncio.sleep(0)
        await a.until_given(ClientGone(1))


async def test_with_tls_only_those_with_a_certificate_get_in(tmp_path: Path) -> None:
    tls = tls_files(tmp_path, trustme.CA())
    async with stations("a", "b", tls=tls) as (a, b):
        for station in (a, b):
            station.network.ring_changed(ring_of(a=1, b=2))
        await a.until_given(ServerConnected("b", 2))
        await b.until_given(ServerConnected("a", 1))
        async with wire_client(a.port, tls.context()) as client:
            await client.greet()
            assert client.hello == a.hello
        stranger = ssl.create_default_context(cafile=str(tls.ca))
        async with wire_client(a.port, stranger) as client:
            await client.greet()
            assert client.hello is None
        async with wire_client(a.port) as client:
            await client.greet()
            assert client.hello is None
        url = server_url("127.0.0.1", a.port, "a", a.hello.incarnation)
        shipped = ZoneRouter(Listed((url,)), tls=tls)
        reading = asyncio.create_task(shipped.get(PartitionId(ZoneId(1), 0), "key"))
        await a.until(lambda inputs: any(isinstance(given, ClientRequest) for given in inputs))
        reading.cancel()
        await shipped.close()
        plain = ZoneRouter(Listed((url,)), time_limit_s=0.5)
        with pytest.raises(StoreRefusedError):
            await plain.get(PartitionId(ZoneId(1), 0), "key")
        await plain.close()


async def test_over_tls_each_request_and_each_answer_goes_at_once(tmp_path: Path) -> None:
    """None waits for the other side to say something first."""
    tls = tls_files(tmp_path, trustme.CA())
    async with stations("a", tls=tls) as (a,):
        channel = StoreChannel(server_url("127.0.0.1", a.port, "a", a.hello.incarnation), tls)
        asking = []
        for number in range(1, 11):
            request = replace(READ, request=number)
            asking.append(asyncio.create_task(channel.ask(request, LIMIT_S)))
            await a.until_given(ClientRequest(1, request))
        for number, answered in enumerate(asking, 1):
            answer = StoreAnswer(number, AnswerCode.DONE, value=b"v" * number)
            a.network.reply(Reply(1, answer, until_ms=9_999, late=AnswerCode.UNKNOWN))
            a.network.flush()
            assert await answered == answer
        await channel.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_tls", [False, True])
def test_whoever_says_nothing_keeps_nobody_out(
    is_tls: bool, new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """Let clients in past connections that say nothing, also from the address that clients and the other server
    have: the oldest ends for a further one, and a peer that has come in stays. In both event loops, of which
    store servers have the second."""
    tls = tls_files(tmp_path, trustme.CA()) if is_tls else None
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(nobody_is_kept_out(tls))


async def nobody_is_kept_out(tls: TlsFiles | None) -> None:
    context = tls.context() if tls is not None else None
    async with stations("a", "b", tls=tls) as (a, b), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(wire_client(a.port, context))]
        await clients[0].greet()
        silent = [await asyncio.open_connection("127.0.0.1", a.port) for _ in range(3 * UNKNOWN_MAX)]
        for _, writer in silent:
            stack.callback(writer.transport.abort)
        async with asyncio.timeout(LIMIT_S):
            for reader, _ in silent[: 2 * UNKNOWN_MAX]:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
        for station in (a, b):
            station.network.ring_changed(ring_of(a=1, b=2))
        await a.until_given(ServerConnected("b", 2))
        clients.append(await stack.enter_async_context(wire_client(a.port, context)))
        await clients[1].greet()
        for number, client in enumerate(clients, 1):
            assert client.hello == a.hello
            client.write([READ])
            await a.until_given(ClientRequest(number, READ))


async def test_clients_leave_places_for_the_other_servers() -> None:
    """The next client is told, and the other server comes in."""
    async with stations("a", "b", clients_max=5) as (a, b), AsyncExitStack() as stack:
        for _ in range(5):
            client = await stack.enter_async_context(wire_client(a.port))
            await client.greet()
            assert client.hello == a.hello
        another = await stack.enter_async_context(wire_client(a.port))
        await another.greet()
        assert another.refusal == StoreRefused(CloseCode.TOO_MANY_CONNECTIONS, "up to 5 connections of clients")
        for station in (a, b):
            station.network.ring_changed(ring_of(a=1, b=2))
        await a.until_given(ServerConnected("b", 2))
