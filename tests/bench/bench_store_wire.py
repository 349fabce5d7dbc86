"""Cost of a message on its way: processor time of both sides together, for a request and its answer.

Length-prefixed frames as store servers send them, the same over asyncio's streams, and the same bytes as
messages of a gRPC stream. Each batch is answered before the next goes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.store.core.log_records import KeyChange, WriteId
from rebalance.store.core.store_messages import AnswerCode, StoreAnswer, WriteRequest
from rebalance.store.shell.frame_connection import (
    LENGTH,
    FrameConnection,
    WireMessage,
    decode_frame,
    encode_frame,
)
from tests.bench.figures import report

MESSAGES = 20_000
METHOD = "/bench.Store/Talk"
Exchange = Callable[[list[WireMessage]], Awaitable[list[WireMessage]]]


def request_of(number: int) -> WriteRequest:
    change = KeyChange(b"customer-%06d" % number, b"x" * 100)
    return WriteRequest(number, WriteId(f"{number:032x}"), ZoneId(7), number % 64, (change,))


def answers_to(messages: Sequence[WireMessage]) -> list[WireMessage]:
    version = TopologyVersion(5, 1)
    return [
        StoreAnswer(message.request, AnswerCode.DONE, version)
        for message in messages
        if isinstance(message, WriteRequest)
    ]


class Answering:
    """The server's side of a frame connection."""

    def opened(self, connection: FrameConnection) -> None: ...

    def lost(self, connection: FrameConnection) -> None: ...

    def received(self, connection: FrameConnection, messages: Sequence[WireMessage]) -> None:
        for answer in answers_to(messages):
            connection.send(answer)
        connection.flush()


class Asking(Answering):
    """The client's."""

    def __init__(self) -> None:
        self.answers: list[WireMessage] = []
        self.arrived = asyncio.Event()

    def received(self, connection: FrameConnection, messages: Sequence[WireMessage]) -> None:
        self.answers += messages
        self.arrived.set()


@asynccontextmanager
async def frames() -> AsyncIterator[Exchange]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: FrameConnection(Answering(), lambda: 0), "127.0.0.1", 0)
    asking = Asking()
    port = server.sockets[0].getsockname()[1]
    _, connection = await loop.create_connection(lambda: FrameConnection(asking, lambda: 0), "127.0.0.1", port)

    async def exchange(batch: list[WireMessage]) -> list[WireMessage]:
        for message in batch:
            connection.send(message)
        connection.flush()
        while len(asking.answers) < len(batch):
            asking.arrived.clear()
            await asking.arrived.wait()
        answers, asking.answers = asking.answers, []
        return answers

    yield exchange
    connection.close()
    server.close()


@asynccontextmanager
async def streams() -> AsyncIterator[Exchange]:
    async def read(reader: asyncio.StreamReader) -> list[WireMessage]:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return decode_frame(await reader.readexactly(length))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(encode_frame(answers_to(await read(reader))))
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])

    async def exchange(batch: list[WireMessage]) -> list[WireMessage]:
        writer.write(encode_frame(batch))
        return await read(reader)

    yield exchange
    writer.close()
    server.close()


@asynccontextmanager
async def grpc_streams() -> AsyncIterator[Exchange]:
    async def talk(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield encode_frame(answers_to(decode_frame(request[LENGTH.size :])))

    server = grpc.aio.server()
    handlers = {"Talk": grpc.stream_stream_rpc_method_handler(talk)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Store", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(METHOD)()

        async def exchange(batch: list[WireMessage]) -> list[WireMessage]:
            await call.write(encode_frame(batch))
            return decode_frame((await call.read())[LENGTH.size :])

        yield exchange
        call.cancel()
    await server.stop(None)


@pytest.mark.parametrize("way", [frames, streams, grpc_streams])
@pytest.mark.parametrize("together", [1, 16, 64])
async def test_request_and_answer(together: int, way: Any) -> None:
    batches = MESSAGES // together // (10 if together == 1 else 1)
    async with way() as exchange:
        await exchange([request_of(0)])
        seconds = []
        processor = time.process_time()
        for number in range(batches):
            batch: list[WireMessage] = [request_of(number * together + place) for place in range(together)]
            began = time.perf_counter()
            assert len(await exchange(batch)) == together
            seconds.append(time.perf_counter() - began)
        spent = time.process_time() - processor
    note = f"{1e6 * spent / (batches * together):.1f} us of processor time each"
    report(f"{way.__name__}, {together} together", seconds, together, note)
    # What was closed is closed on both sides.
    await asyncio.sleep(0.1)
