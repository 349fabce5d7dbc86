"""A network that loses answers: requests arrive, and what the other side says about them does not come back.

Each connection to a member goes through a relay of this process. After a while it falls mute (the member is
still sent everything, the client hears nothing), and a little later it breaks. So puts are applied without an
acknowledgement, and repeated while other clients go on: what operation ids are for.
"""

from __future__ import annotations

import asyncio
import random
from urllib.parse import urlsplit

from tests.linearizability.rewritten_routing import RewrittenRouting

WELL_S = (0.3, 2.5)
MUTE_S = (0.6, 1.5)
"""Longer than the first attempt of a put waits."""
CHUNK_BYTES = 1 << 16


class LossyNetwork:
    """Relays by the member's URL; ``close`` it."""

    def __init__(self, seed: int) -> None:
        self._chooser = random.Random(f"{seed}/network")
        self._relays: dict[str, asyncio.Server] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self.broken = 0

    async def url_through(self, url: str) -> str:
        """The relay's URL, which stays the same."""
        relay = self._relays.get(url)
        if relay is None:
            relay = await asyncio.start_server(
                lambda reader, writer: self._accept(url, reader, writer), "127.0.0.1", 0
            )
            self._relays[url] = relay
        return f"{urlsplit(url).scheme}://127.0.0.1:{relay.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        for relay in self._relays.values():
            relay.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._relay(url, reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _relay(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        well_s, mute_s = self._chooser.uniform(*WELL_S), self._chooser.uniform(*MUTE_S)
        address = urlsplit(url)
        member: asyncio.StreamWriter | None = None
        try:
            answers, member = await asyncio.open_connection(address.hostname, address.port)
            async with asyncio.TaskGroup() as tasks:
                sent = tasks.create_task(_pump(reader, member))
                heard = tasks.create_task(_pump(answers, writer))
                await asyncio.wait((sent, heard), timeout=well_s, return_when=asyncio.FIRST_COMPLETED)
                heard.cancel()
                await asyncio.wait((sent,), timeout=mute_s)
                sent.cancel()
            self.broken += 1
        except (OSError, ExceptionGroup):
            return  # the member is gone: the client's connection ends as well
        finally:
            for each in (writer, member):
                if each is not None:
                    each.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK_BYTES):
        sink.write(chunk)
        await sink.drain()


class LossyRouting(RewrittenRouting):
    """Gives a client routing maps whose members are behind ``network``; servers are asked as they are."""

    def __init__(self, authority: str, network: LossyNetwork) -> None:
        super().__init__(authority)
        self._network = network

    async def voters(self, urls: list[str]) -> list[str]:
        return [await self._network.url_through(url) for url in urls]
