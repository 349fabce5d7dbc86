"""Probe of the metastore's majority, by the word of its members one by one.

While no leader is elected no lease can end, and all begin anew when one is. A member that refuses connections
is not running; one that runs tells whether it knows a leader. Silence tells nothing: neither does an
unreachable network, nor an error of any other kind.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

import structlog
from aetcd import rpc

from rebalance.hosting.tls import TlsFiles
from rebalance.metastore.etcd import EtcdMetastore

log = structlog.get_logger(__name__)

ASK_S = 1.0
SEE_S = 0.4
OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0))


class Word(Enum):
    """Word of one member."""

    LEADERLESS = "LEADERLESS"  # it refuses the connection, or knows no leader
    LED = "LED"  # it names a leader
    NOTHING = "NOTHING"


def has_no_majority(words: Sequence[Word]) -> bool:
    """``words``: of every member of the list. One that names a leader may be the leader's only follower in
    sight: then the others' word does not count."""
    return Word.LED not in words and words.count(Word.LEADERLESS) > len(words) // 2


class EtcdMajority:
    """A ``MajorityProbe``. The members, and the client URLs that they advertise, are those of the last list
    that was read; before the first there are none, and a majority is never missed. An address where this node
    has never seen a member run says nothing: ``localhost``, which etcd advertises by default, is another
    machine here than there."""

    def __init__(self, metastore: EtcdMetastore, *, tls: TlsFiles | None = None) -> None:
        self._metastore = metastore
        self._tls = tls
        self._members: tuple[tuple[str, ...], ...] = ()
        self._seen: set[str] = set()
        """URLs that a member of the metastore has answered at."""

    async def remember(self) -> None:
        members = await self._metastore.voters()
        if members != self._members:
            log.info("members of the metastore", members=[",".join(urls) for urls in members])
        self._members = members
        # A majority runs now, so enough of them to miss one later are seen.
        unseen = [url for urls in members for url in urls if url not in self._seen]
        await asyncio.gather(*(self._see(url) for url in unseen))

    async def no_majority(self) -> bool:
        words = await asyncio.gather(*(self._word(urls) for urls in self._members))
        return has_no_majority(words)

    async def _word(self, urls: Iterable[str]) -> Word:
        """A member refuses when all of its addresses do."""
        words = await asyncio.gather(*(self._word_at(url) for url in urls))
        for word in (Word.LED, Word.NOTHING):
            if word in words:
                return word
        return Word.LEADERLESS if words else Word.NOTHING

    async def _see(self, url: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SEE_S):
                if await self._word_at(url) is Word.LED:
                    self._seen.add(url)

    async def _word_at(self, url: str) -> Word:
        try:
            parts = urlsplit(url)
            async with asyncio.timeout(ASK_S):
                if await _refuses(parts.hostname or "", parts.port or 0):
                    return Word.LEADERLESS if url in self._seen else Word.NOTHING
                return await self._status(parts.netloc, is_secure=parts.scheme == "https")
        except (OSError, ValueError):
            return Word.NOTHING

    async def _status(self, address: str, *, is_secure: bool) -> Word:
        channel = self._open(address, is_secure=is_secure)
        if channel is None:
            return Word.NOTHING
        try:
            reply = await rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=ASK_S)
        except rpc.AioRpcError as error:
            return Word.LEADERLESS if "no leader" in (error.details() or "") else Word.NOTHING
        finally:
            await channel.close()
        return Word.LED if reply.leader else Word.LEADERLESS

    def _open(self, address: str, *, is_secure: bool) -> Any:
        if not is_secure:
            return rpc.insecure_channel(address, options=OPTIONS)
        if self._tls is None:
            return None
        return rpc.secure_channel(address, self._tls.credentials(), options=OPTIONS)


async def _refuses(host: str, port: int) -> bool:
    """Check that all addresses of ``host`` say that nothing listens there. Raises OSError and TimeoutError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for address in dict.fromkeys(str(entry[4][0]) for entry in addresses):
        try:
            _, writer = await asyncio.open_connection(address, port)
        except ConnectionRefusedError:
            continue
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return False
    return True
