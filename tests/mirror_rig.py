"""Groups of real etcd members and mirrors of them on one machine, and writers who keep a group busy."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from aetcd import rpc

from rebalance.core.assignments import Assignments
from rebalance.groups.data_client import MARKER_PREFIX
from rebalance.groups.etcd_api import open_channel
from rebalance.groups.etcd_mirror import EtcdMirrorHost
from rebalance.groups.mirror_source import MirrorSource
from rebalance.hosting.child import spawn
from rebalance.hosting.etcd_binary import find_etcd, find_restore
from rebalance.ports.groups import MemberLife
from rebalance.ports.mirrors import MirrorStatus
from tests.group_hosts import P0, TUNING, WAIT_S, Hosts, etcd_processes
from tests.mirror_process import GROUP
from tests.ports import free_block

ALL = b"\0"
Contents = dict[bytes, tuple[bytes, int, int, int]]
"""Key -> value, create revision, mod revision, version."""


class RestoredStore:
    """A store of one member out of another's snapshot: the same history up to there, and then its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        peer, client = free_block(2)
        self._peer_url, self.client_url = f"http://127.0.0.1:{peer}", f"http://127.0.0.1:{client}"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, source_url: str) -> None:
        """Returns when it answers."""
        self._directory.mkdir()
        snapshot, data = self._directory / "snapshot", self._directory / "data"
        async with MirrorSource(source_url) as source:
            await source.download(snapshot)
        own = ["--name=r", f"--data-dir={data}", f"--initial-cluster=r={self._peer_url}"]
        own.append(f"--initial-advertise-peer-urls={self._peer_url}")
        log = self._directory / "log"
        assert spawn([*find_restore(), str(snapshot), *own], log=log).wait() == 0
        clients = [f"--{which}-client-urls={self.client_url}" for which in ("listen", "advertise")]
        command = [find_etcd().path, *own, *clients, f"--listen-peer-urls={self._peer_url}"]
        self._process = spawn(command, log=log)
        channel = open_channel(self.client_url)
        await rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"g"), timeout=60, wait_for_ready=True)
        await channel.close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class MirrorRig:
    """``hosts`` are the group's; the mirror host is that of the node ``m``."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.hosts = Hosts(directory)
        for name in (*names, "m"):
            self.hosts.open(name)
        self._channels: dict[str, Any] = {}
        self.directory = directory / "m" / "mirrors" / "3-0"
        self.mirrors = self.open_mirrors()

    def open_mirrors(self) -> EtcdMirrorHost:
        mirrors = EtcdMirrorHost(self.hosts.hosts["m"].mirror_places(), tuning=TUNING)
        mirrors.open("m")
        return mirrors

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        await self.mirrors.close()
        await self.hosts.close()

    def url(self, name: str) -> str:
        found = self.hosts.hosts[name].endpoints(P0)
        assert found is not None
        return found.client_url

    def kv(self, url: str) -> Any:
        return rpc.KVStub(self.channel(url))

    def channel(self, url: str) -> Any:
        if url not in self._channels:
            self._channels[url] = open_channel(url, answer_bytes_max=64 << 20)
        return self._channels[url]

    async def follow(self, *names: str) -> None:
        await self.mirrors.follow(P0, GROUP, tuple(self.url(name) for name in names))

    async def status(self) -> MirrorStatus:
        found = await self.mirrors.status(P0)
        assert found is not None
        return found

    async def until(self, wanted: Callable[[MirrorStatus], bool], timeout_s: float = WAIT_S) -> MirrorStatus:
        deadline = time.monotonic() + timeout_s
        while not wanted(status := await self.status()):
            assert time.monotonic() < deadline, status
            await asyncio.sleep(0.02)
        return status

    async def revision(self, name: str) -> int:
        return int((await self.kv(self.url(name)).Range(rpc.RangeRequest(key=b"g"))).header.revision)

    async def caught_up(self, name: str) -> int:
        """Waits until the mirror has all that the group of ``name`` has now; returns the revision."""
        revision = await self.revision(name)
        await self.until(lambda found: found.life is MemberLife.RUNNING and found.safe_revision >= revision)
        return revision

    async def contents(self, url: str, revision: int) -> Contents:
        request = rpc.RangeRequest(key=ALL, range_end=ALL, revision=revision)
        reply = await self.kv(url).Range(request)
        return {
            each.key: (each.value, each.create_revision, each.mod_revision, each.version)
            for each in reply.kvs
            if not each.key.startswith(MARKER_PREFIX)
        }

    async def check_equal(self, name: str, oldest: int = 1, samples: int = 12) -> None:
        """The same keys, values and revisions at the newest revision and at some older ones from ``oldest``
        on."""
        newest = await self.caught_up(name)
        mirror = (await self.status()).client_url
        revisions = {newest, oldest, *(random.Random(newest).randint(oldest, newest) for _ in range(samples))}
        for revision in sorted(revisions):
            theirs, ours = await self.contents(self.url(name), revision), await self.contents(mirror, revision)
            assert ours == theirs, revision
        reached = (await self.kv(mirror).Range(rpc.RangeRequest(key=b"g"))).header.revision
        assert newest <= reached <= await self.revision(name)

    def process(self) -> psutil.Process:
        """The mirror's etcd."""
        (found,) = self.processes()
        return found

    def processes(self) -> list[psutil.Process]:
        return etcd_processes(self.directory)

    def kill(self) -> None:
        for each in self.processes():
            each.send_signal(signal.SIGKILL)

    async def restart_voter(self, name: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while (await self.hosts.status(name, P0)).life is not MemberLife.RUNNING:
            assert time.monotonic() < deadline
            await self.hosts.hosts[name].restart(P0)
            await asyncio.sleep(0.05)

    async def move(self, target: Assignments) -> None:
        """Until the group has these peers; a refusal is a normal answer, as after a change of leader."""
        deadline = time.monotonic() + 2 * WAIT_S
        while time.monotonic() < deadline:
            leader = await self.hosts.leader(P0)
            host, term = self.hosts.hosts[leader], (await self.hosts.status(leader, P0)).term
            urls = {name: each.endpoints(P0) for name, each in self.hosts.hosts.items()}
            peers = {name: found.peer_url for name, found in urls.items() if found}
            await host.change_peers_and_learners(P0, term, 5, target, peers)
            await asyncio.sleep(0.5)
            if ("applied", target, term, 5) in self.hosts.events:
                return
        raise AssertionError(f"the group never was {target}: {self.hosts.events}")

    async def put(self, name: str, key: bytes, value: bytes) -> int:
        reply = await self.kv(self.url(name)).Put(rpc.PutRequest(key=key, value=value))
        return int(reply.header.revision)

    @asynccontextmanager
    async def writers(self, *names: str, count: int = 4, pause_s: float = 0.002) -> AsyncIterator[None]:
        """Puts, deletes and transactions of many keys, at any of the members, until the block ends."""
        ended = asyncio.Event()

        async def write(number: int) -> None:
            chooser = random.Random(number)
            while not ended.is_set():
                stub = self.kv(self.url(chooser.choice(names)))
                try:
                    await stub.Txn(_some_change(chooser), timeout=2.0)
                except rpc.AioRpcError:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(pause_s)

        tasks = [asyncio.create_task(write(number)) for number in range(count)]
        try:
            yield
        finally:
            ended.set()
            await asyncio.gather(*tasks)


def _some_change(chooser: random.Random) -> Any:
    """One to six different keys, put or deleted."""
    keys = chooser.sample(range(40), chooser.choice((1, 1, 2, 6)))
    operations = []
    for key in (b"d/%d" % number for number in keys):
        if chooser.random() < 0.3:
            operations.append(rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key)))
        else:
            value = chooser.randbytes(chooser.choice((0, 10, 2_000)))
            operations.append(rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value)))
    return rpc.TxnRequest(success=operations)
