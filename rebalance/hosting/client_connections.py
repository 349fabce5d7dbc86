"""Connections from clients to a listener of ours, from their first byte on: what an address may have of it.

Before anything is read, the address takes a place (``ConnectionPlaces``, shared by all listeners); then a TLS
handshake has its turn and a time; only then the connection's own protocol has it (``GuardedDoor``). Addresses
count together that one client can have (``network_of``).

The event loop's work for unknown users is limited to a share of its time, and their addresses have turns
(``StrangerShare``). Each piece of work is charged with what it took of the processor, and with what it has
the loop do later (handshakes, answers). While more is spent than the share comes to, further pieces wait in a
``FairQueue``. So a stranger who is alone waits for nobody, many wait for each other, and a user who has
logged in waits for none.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache, partial
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any, cast

import structlog

from rebalance.hosting.fair_queue import FairQueue

IPV6_PREFIX = 64


@lru_cache(maxsize=4_096)
def network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv6 address has its whole network of 64 bits. An IPv4
    address written as one of IPv6 is that IPv4 address; what is no address stands for itself."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(ip, IPv6Address):
        return str(ip)
    return str(ip.ipv4_mapped or IPv6Network((ip, IPV6_PREFIX), strict=False))


FILES_KEPT = 256
"""Descriptors for what a process opens itself: files, its metastore, other servers."""

UNLIMITED = 1 << 20


@dataclass(eq=False)
class ConnectionPlace:
    """Place of one connection. ``give_way`` ends it where another one needs the place. ``is_counted``: not
    where its address is exempt."""

    places: ConnectionPlaces
    network: str
    give_way: Callable[[], None]
    _: KW_ONLY
    is_counted: bool

    def give_back(self) -> None:
        """Give the place back once the connection has ended, or is counted elsewhere; more often is the
        same."""
        self.places.free(self)


@dataclass(eq=False)
class ConnectionPlaces:
    """Places of at most ``of_address_max`` connections from one address; a further one is refused or, with
    ``newest_first``, the oldest gives way to it. At most ``all_max`` together: then the oldest of whoever has
    the most gives way. An address that ``is_exempt`` is not counted."""

    of_address_max: int
    all_max: int
    _: KW_ONLY
    newest_first: bool = False
    is_exempt: Callable[[str], bool] = lambda address: False

    def __post_init__(self) -> None:
        self._taken: dict[str, dict[ConnectionPlace, None]] = {}
        self._count = 0

    @property
    def open(self) -> int:
        """Connections that are counted now."""
        return self._count

    def take(self, address: str, give_way: Callable[[], None]) -> ConnectionPlace | None:
        """Take a place for a connection that begins. None: the address has as many as it may."""
        is_counted = not self.is_exempt(address)
        place = ConnectionPlace(self, network_of(address), give_way, is_counted=is_counted)
        if not is_counted:
            return place
        same = self._taken.get(place.network, {})
        fullest: dict[ConnectionPlace, None] = {}
        if len(same) >= self.of_address_max:
            fullest = same
        elif self._count >= self.all_max:
            fullest = max(self._taken.values(), key=len)
        if fullest:
            if len(fullest) <= len(same) and not self.newest_first:
                return None
            self._end_oldest(fullest)
        self._taken.setdefault(place.network, {})[place] = None
        self._count += 1
        return place

    def free(self, place: ConnectionPlace) -> None:
        same = self._taken.get(place.network, {})
        if place in same:
            del same[place]
            self._count -= 1
            if not same:
                del self._taken[place.network]

    def _end_oldest(self, places: dict[ConnectionPlace, None]) -> None:
        oldest = next(iter(places))
        self.free(oldest)
        oldest.give_way()


def connections_bound() -> int:
    """Return how many connections this process can have, by its limit of descriptors: those that it needs
    itself are left."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if files == resource.RLIM_INFINITY else max(files - FILES_KEPT, files // 2)


SHARE = 0.25
"""Share of the time that passes."""
SAVED_S = 0.02
"""Maximum saved time in seconds: also the longest that the loop works for strangers at once."""
HANDSHAKE_S = 0.001
REQUEST_S = 0.001
"""Cost in seconds of an answer to a stranger, behind the parser: with its handshake, a connection takes 2.2
ms."""


Act = Callable[[], None]
_LET_IN: ContextVar[Act | None] = ContextVar("what lets a connection in", default=None)


def let_in() -> None:
    """Note that the sender on the connection that this runs for has logged in."""
    act = _LET_IN.get()
    if act is not None:
        act()


@contextmanager
def knocking(act: Act) -> Iterator[None]:
    """Run the block for a connection that ``act`` lets in."""
    before = _LET_IN.set(act)
    try:
        yield
    finally:
        _LET_IN.reset(before)


class StrangerTurn:
    """A piece of work that waits until it ``is_over``: it has begun, or nobody wants it any more."""

    def __init__(self, act: Act, later_s: float) -> None:
        self._act: Act | None = act
        self.later_s = later_s

    @property
    def is_over(self) -> bool:
        return self._act is None

    def forget(self) -> None:
        self._act = None

    def take(self) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()


@dataclass(eq=False)
class StrangerShare:
    """Strangers' share of one event loop. ``clock`` and ``processor``: seconds."""

    clock: Callable[[], float] = time.monotonic
    processor: Callable[[], float] = time.thread_time

    def __post_init__(self) -> None:
        self._credit_s = SAVED_S
        self._at_s = self.clock()
        self._queue: FairQueue[StrangerTurn] = FairQueue()
        self._is_working = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Pieces of work, those that nobody wants any more too."""
        return len(self._queue)

    def ask(self, address: str, act: Act, later_s: float = 0.0) -> StrangerTurn:
        """``act`` runs at once, or when its turn comes. ``later_s``: what follows from it, in seconds of the
        processor."""
        turn = StrangerTurn(act, later_s)
        self._queue.put(network_of(address), turn)
        if self._timer is None and not self._is_working:
            self._work()
        return turn

    def _work(self) -> None:
        self._timer = None
        self._is_working = True
        now_s = self.clock()
        self._credit_s = min(SAVED_S, self._credit_s + SHARE * (now_s - self._at_s))
        self._at_s = now_s
        try:
            while self._credit_s > 0.0 and self._next():
                pass
        finally:
            self._is_working = False
            if self._queue:
                wait_s = max(0.0, -self._credit_s) / SHARE
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._work)

    def _next(self) -> bool:
        begun_s = self.processor()
        taken = self._queue.take()
        if taken is None:
            return False
        network, turn = taken
        cost_s = 0.0 if turn.is_over else turn.later_s
        try:
            turn.take()
        finally:
            cost_s += self.processor() - begun_s
            self._credit_s -= cost_s
            self._queue.spent(network, cost_s)
        return True


log = structlog.get_logger(__name__)

SHUTDOWN_S = 5.0
"""Time in seconds for the other side's part of the end of a TLS connection."""

Make = Callable[[ConnectionPlace], asyncio.Protocol]
"""The protocol of a connection, which gives the place back."""


@dataclass(eq=False)
class GuardedDoor(asyncio.Protocol):
    """Protocol before a server's own, for the handshake; what arrives before that is done is kept: a client may
    send its request along with its end. ``tls`` None: there is none. ``strangers`` None: handshakes wait for
    nothing."""

    places: ConnectionPlaces
    make: Make
    tls: ssl.SSLContext | None
    handshake_s: float
    strangers: StrangerShare | None = None

    def __post_init__(self) -> None:
        self._turn: StrangerTurn | None = None
        self._place: ConnectionPlace | None = None
        self._arrived: list[bytes] = []
        self._is_over = False
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none of asyncio's classes.
        stream = cast(asyncio.Transport, transport)
        address = _address_of(stream)
        place = self.places.take(address, stream.abort)
        if place is None:
            stream.abort()
        elif self.tls is None:
            self._hand_over(stream, place)
        else:
            # Nothing is read before TLS has the transport; uvloop pauses none that does not read yet.
            stream.pause_reading()
            self._place = place
            begin = partial(self._begin, stream, self.tls, place, address)
            if self.strangers is None or not place.is_counted:
                begin()
            else:
                self._turn = self.strangers.ask(address, begin, HANDSHAKE_S)

    def data_received(self, data: bytes) -> None:
        self._arrived.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        if self._turn is not None:
            self._turn.forget()
        if self._shaking is None and self._place is not None:
            self._place.give_back()

    def _begin(
        self, transport: asyncio.Transport, tls: ssl.SSLContext, place: ConnectionPlace, address: str
    ) -> None:
        self._shaking = asyncio.create_task(self._shake(transport, tls, place, address))

    async def _shake(
        self, transport: asyncio.Transport, tls: ssl.SSLContext, place: ConnectionPlace, address: str
    ) -> None:
        loop = asyncio.get_running_loop()
        secure: asyncio.Transport | None = None
        try:
            started = loop.create_task(
                loop.start_tls(
                    transport,
                    self,
                    tls,
                    server_side=True,
                    ssl_handshake_timeout=self.handshake_s,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
            )
            await asyncio.sleep(0)
            early, self._arrived = b"".join(self._arrived), []
            if early:
                # After TLS has heard of its connection, and before more is read.
                loop.call_soon(_feed, transport.get_protocol(), early)
            secure = await started
        except (OSError, RuntimeError, asyncio.CancelledError) as error:
            # Among them TimeoutError, what is no TLS, and uvloop's RuntimeError of a transport that has closed.
            log.info("no TLS connection", address=address, reason=str(error))
        if secure is None or self._is_over:
            place.give_back()
            transport.abort()
            return
        self._hand_over(secure, place)

    def _hand_over(self, transport: asyncio.Transport, place: ConnectionPlace) -> None:
        try:
            protocol = self.make(place)
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            for data in self._arrived:
                protocol.data_received(data)
        except Exception:
            # Nobody is told of the end of a connection that has closed before it began.
            place.give_back()
            transport.abort()
            raise


def _feed(tls: Any, data: bytes) -> None:
    """``tls``: a BufferedProtocol."""
    while data:
        buffer = tls.get_buffer(len(data))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        tls.buffer_updated(size)
        data = data[size:]


def _address_of(transport: asyncio.Transport) -> str:
    """Empty: it has gone already, or has none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
