"""All connections of a store server: one port for other servers and for clients.

Of two servers the younger dials, so there is one connection between them. Both sides begin with a hello; a
client's has no name.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from rebalance.core.backoff import Backoff
from rebalance.hosting.client_connections import (
    ConnectionPlace,
    ConnectionPlaces,
    GuardedDoor,
    connections_bound,
)
from rebalance.hosting.tls import TlsFiles
from rebalance.store.core.ring_records import RingState
from rebalance.store.core.store_effects import Reply
from rebalance.store.core.store_inputs import (
    ClientGone,
    ClientRequest,
    CopiesAsked,
    ServerConnected,
    ServerMessage,
    StoreInput,
)
from rebalance.store.core.store_messages import (
    WIRE_FORMAT,
    CopiesAnswer,
    CopiesRequest,
    CopyReadAnswer,
    CopyReadRequest,
    ReadRequest,
    StoreAnswer,
    StoreHello,
    StoreMessage,
    WriteRequest,
)
from rebalance.store.shell.frame_connection import (
    CloseCode,
    FrameConnection,
    Outgoing,
    StoreRefused,
    WireMessage,
)

log = structlog.get_logger(__name__)

HELLO_S = 10.0
DIAL_S = 5.0
DIAL_AGAIN = Backoff(0.05, 2.0)
STEADY_S = 5.0
"""Time in seconds after which a lost connection is dialled again as if it were the first."""
CLIENTS_MAX = 1_000
UNKNOWN_MAX = 32
"""Connections of one address that have not said whose they are. Another one ends the oldest: whoever does not
linger, as other servers and clients do not, comes in."""
ALL_UNKNOWN_MAX = 128
HANDSHAKE_S = 10.0

OF_CLIENTS = (
    StoreHello
    | StoreAnswer
    | StoreRefused
    | ReadRequest
    | WriteRequest
    | CopiesRequest
    | CopiesAnswer
    | CopyReadRequest
    | CopyReadAnswer
)
"""Messages that no server sends to another one."""
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PeerId:
    """One incarnation of another server."""

    name: str
    order: int


@dataclass(slots=True)
class _Party:
    """The other side of a connection. ``client`` 0: it is a server, or has not said hello yet. ``dialled``:
    whom this side called."""

    peer: PeerId | None = None
    client: int = 0
    dialled: PeerId | None = None
    deadline: asyncio.TimerHandle | None = None
    place: ConnectionPlace | None = None

    def is_known(self) -> None:
        """Stop its deadline and give back its place among unknown parties."""
        if self.deadline is not None:
            self.deadline.cancel()
        if self.place is not None:
            self.place.give_back()


class StoreNetwork:
    """``hello``: this server's, as of now. ``give``: takes inputs, in order. ``address_of``: where a server of
    that name and incarnation listens; None while that is not known."""

    def __init__(
        self,
        hello: Callable[[], StoreHello],
        give: Callable[[StoreInput], None],
        address_of: Callable[[str, str], Awaitable[Address | None]],
        clock_ms: Callable[[], int],
        tls: TlsFiles | None = None,
        read_copy: Callable[[CopyReadRequest], CopyReadAnswer] | None = None,
        clients_max: int = CLIENTS_MAX,
    ) -> None:
        """``read_copy``: reads the server's own copy; None: nobody may."""
        self._hello = hello
        self._give = give
        self._address_of = address_of
        self._clock_ms = clock_ms
        self._tls = tls
        self._read_copy = read_copy
        self._ring = RingState()
        self._parties: dict[FrameConnection, _Party] = {}
        self._peers: dict[PeerId, FrameConnection] = {}
        self._clients: dict[int, FrameConnection] = {}
        self._dialling: dict[PeerId, asyncio.Task[None]] = {}
        self._unsent: set[FrameConnection] = set()
        self._places = ConnectionPlaces(UNKNOWN_MAX, ALL_UNKNOWN_MAX, newest_first=True)
        # Other servers have descriptors left, however many clients there are.
        self._clients_max = min(clients_max, connections_bound() - ALL_UNKNOWN_MAX)
        self._last_client = 0
        self._server: asyncio.Server | None = None
        self._chance = random.Random()

    async def listen(self, host: str, port: int) -> int:
        """Returns the port, which is another one where 0 was given. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._door, host, port)
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._dialling.values():
            task.cancel()
        await asyncio.gather(*self._dialling.values(), return_exceptions=True)
        for connection in list(self._parties):
            connection.close()

    # What the core asks for

    def send(self, to: str, order: int, message: StoreMessage) -> None:
        """Dropped where there is no connection."""
        connection = self._peers.get(PeerId(to, order))
        if connection is not None:
            connection.send(message)
            self._unsent.add(connection)

    def reply(self, reply: Reply) -> None:
        self.tell(reply.client, reply)

    def tell(self, client: int, message: Outgoing) -> None:
        """A client, if it is still there."""
        connection = self._clients.get(client)
        if connection is not None:
            connection.send(message)
            self._unsent.add(connection)

    def flush(self) -> None:
        """Flush after all effects of a batch of inputs: what goes to one place goes as one."""
        unsent, self._unsent = self._unsent, set()
        for connection in unsent:
            connection.flush()

    def disconnect(self, name: str, order: int) -> None:
        connection = self._peers.get(PeerId(name, order))
        if connection is not None:
            connection.refuse(CloseCode.REMOVED, "a new incarnation: the ring has removed this one")

    def ring_changed(self, ring: RingState) -> None:
        """Dials the older servers, and stops where a server is gone."""
        self._ring = ring
        own = self._hello()
        others = _others(ring, own.name)
        older = {peer for peer in others if peer.order < own.order} if own.order else set()
        for peer in self._dialling.keys() - older:
            self._dialling.pop(peer).cancel()
        for peer in older - self._dialling.keys():
            task = asyncio.get_running_loop().create_task(self._keep_connected(peer))
            self._dialling[peer] = task

    # Connections

    def opened(self, connection: FrameConnection) -> None:
        party = self._parties.setdefault(connection, _Party())
        party.deadline = asyncio.get_running_loop().call_later(
            HELLO_S, connection.refuse, CloseCode.NO_HELLO, f"a hello within {HELLO_S:.0f} s"
        )
        if party.dialled is not None:
            connection.send(self._hello())
            connection.flush()

    def received(self, connection: FrameConnection, messages: Sequence[WireMessage]) -> None:
        party = self._parties.get(connection)
        if party is None:
            return
        if isinstance(messages[-1], StoreRefused):
            log.info("a connection was refused", **_place(party), code=messages[-1].code.value)
            connection.close()
            return
        if party.peer is None and not party.client:
            first, *messages = messages
            if not isinstance(first, StoreHello):
                connection.refuse(CloseCode.NO_HELLO, "a hello as the first message")
                return
            self._greeted(connection, party, first)
        for message in messages:
            if not connection.is_open:
                return
            self._hand_in(connection, party, message)

    def lost(self, connection: FrameConnection) -> None:
        party = self._parties.pop(connection, None)
        self._unsent.discard(connection)
        if party is None:
            return
        party.is_known()
        if party.client:
            del self._clients[party.client]
            self._give(ClientGone(party.client))
        peer = party.peer
        if peer is not None and self._peers.get(peer) is connection:
            del self._peers[peer]

    def _connection(self) -> FrameConnection:
        return FrameConnection(self, self._clock_ms)

    def _door(self) -> GuardedDoor:
        context = None if self._tls is None else self._tls.server_context()
        return GuardedDoor(self._places, self._accepted, context, HANDSHAKE_S)

    def _accepted(self, place: ConnectionPlace) -> FrameConnection:
        connection = self._connection()
        self._parties[connection] = _Party(place=place)
        return connection

    def _greeted(self, connection: FrameConnection, party: _Party, hello: StoreHello) -> None:
        party.is_known()
        if hello.wire_format > WIRE_FORMAT:
            text = f"wire formats up to {WIRE_FORMAT}, not {hello.wire_format}"
            connection.refuse(CloseCode.WIRE_FORMAT, text)
        elif not hello.name and len(self._clients) >= self._clients_max:
            text = f"up to {self._clients_max} connections of clients"
            connection.refuse(CloseCode.TOO_MANY_CONNECTIONS, text)
        elif not hello.name:
            self._last_client += 1
            party.client = self._last_client
            self._clients[party.client] = connection
            self._answer_hello(connection)
        elif party.dialled is not None:
            self._reached(connection, party, party.dialled, hello)
        else:
            self._called(connection, party, hello)

    def _reached(self, connection: FrameConnection, party: _Party, dialled: PeerId, hello: StoreHello) -> None:
        incarnation = self._ring.incarnations.get(dialled.name)
        if hello.name != dialled.name or hello.incarnation != incarnation:
            text = (
                f"server {dialled.name} of incarnation {incarnation}, not {hello.name} of {hello.incarnation}"
            )
            connection.refuse(CloseCode.NOT_FOR_THIS_SERVER, text)
            return
        self._stands(connection, party, dialled)

    def _called(self, connection: FrameConnection, party: _Party, hello: StoreHello) -> None:
        peer = PeerId(hello.name, hello.order)
        servers = self._ring.cluster.servers
        newest = max(servers.values(), default=0)
        is_known = self._ring.incarnations.get(hello.name) == hello.incarnation
        if not hello.order or (
            peer.order <= newest and not (is_known and servers.get(peer.name) == peer.order)
        ):
            text = f"members of the ring: {hello.name} of order {hello.order} was removed, or has not joined"
            connection.refuse(CloseCode.REMOVED, text)
            return
        self._answer_hello(connection)
        self._stands(connection, party, peer)

    def _stands(self, connection: FrameConnection, party: _Party, peer: PeerId) -> None:
        """A second connection is there because the other side has lost the first."""
        before = self._peers.pop(peer, None)
        if before is not None:
            before.close()
        party.peer = peer
        self._peers[peer] = connection
        self._give(ServerConnected(peer.name, peer.order))

    def _answer_hello(self, connection: FrameConnection) -> None:
        connection.send(self._hello())
        connection.flush()

    def _hand_in(self, connection: FrameConnection, party: _Party, message: WireMessage) -> None:
        if party.client:
            if isinstance(message, ReadRequest | WriteRequest):
                self._give(ClientRequest(party.client, message))
            elif isinstance(message, CopyReadRequest) and self._read_copy is not None:
                connection.send(self._read_copy(message))
                connection.flush()
            elif isinstance(message, CopiesRequest):
                self._give(CopiesAsked(party.client, message))
            else:
                connection.refuse(CloseCode.NOT_ALLOWED, "reads and writes, of a client")
        elif party.peer is not None:
            if isinstance(message, OF_CLIENTS):
                connection.refuse(CloseCode.NOT_ALLOWED, "messages of servers, of a server")
            else:
                self._give(ServerMessage(party.peer.name, party.peer.order, message))

    # Dialling

    async def _keep_connected(self, peer: PeerId) -> None:
        loop = asyncio.get_running_loop()
        again = DIAL_AGAIN
        while True:
            since_s = loop.time()
            connection = await self._dialled(peer)
            if connection is not None:
                await connection.ended.wait()
            again = (again if loop.time() - since_s < STEADY_S else again.fresh()).failed()
            await asyncio.sleep(again.delay_s(self._chance.random()))

    async def _dialled(self, peer: PeerId) -> FrameConnection | None:
        address = await self._address_of(peer.name, self._ring.incarnations.get(peer.name, ""))
        if address is None:
            return None
        connection = self._connection()
        self._parties[connection] = _Party(dialled=peer)
        context = None if self._tls is None else self._tls.context()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(DIAL_S):
                await asyncio.get_running_loop().create_connection(lambda: connection, *address, ssl=context)
            return connection
        self._parties.pop(connection, None)
        return None


def _others(ring: RingState, name: str) -> set[PeerId]:
    servers: Mapping[str, int] = ring.cluster.servers
    return {PeerId(other, order) for other, order in servers.items() if other != name}


def _place(party: _Party) -> dict[str, object]:
    """Describe the other side, for logs."""
    peer = party.peer or party.dialled
    return {"client": party.client} if peer is None else {"peer": peer.name, "order": peer.order}
