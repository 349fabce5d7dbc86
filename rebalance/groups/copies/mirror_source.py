"""A voter as a mirror sees it: its revisions from one on, and its snapshot, which the first copy is restored
from.

A snapshot keeps the group's revisions, so the restored store of one member stands at the group's revision at
that moment. Nothing of it counts before the restored directory has its name: a copy that was interrupted is
started again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import structlog
from aetcd import rpc

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.source_revisions import RevisionChange, SourceRevision, join_events
from rebalance.groups.calls.etcd_api import (
    GENERATION_KEY,
    IDENTITY_KEY,
    CallFailedError,
    FailureKind,
    answer,
    classify,
    generation_in,
    get,
    items_of,
    open_channel,
)
from rebalance.groups.calls.group_guard import group_identity
from rebalance.groups.copies.mirror_store import ANSWER_BYTES_MAX, CopyUselessError
from rebalance.groups.files.etcd_files import read_store_file
from rebalance.groups.files.etcd_tuning import bound_log, last_log_line
from rebalance.groups.files.reservations import Reservation, Reservations
from rebalance.hosting import child
from rebalance.hosting.background import cancellation_kept
from rebalance.hosting.child import ETCD
from rebalance.hosting.tls import TlsFiles

EVERYTHING = b"\0"
"""Key, and range end, that stand for all keys when both are given."""
READ_AHEAD_BYTES = 8 << 20
CALL_TIMEOUT_S = 2.0
CHUNK_TIMEOUT_S = 15.0


class SourceLostError(Exception):
    """This voter does not answer, or is not of the group any more; another one may."""


class AnswerTooLargeError(SourceLostError):
    """An answer of the watch is larger than ANSWER_BYTES_MAX: it must be asked for in fragments."""


class MirrorSource:
    """One voter, by its client URL. ``async with`` closes the connection."""

    def __init__(self, client_url: str, tls: TlsFiles | None = None) -> None:
        """Raises CallFailedError for a voter that speaks TLS when there is no certificate."""
        self.client_url = client_url
        self._channel = open_channel(client_url, tls, ANSWER_BYTES_MAX)

    async def __aenter__(self) -> MirrorSource:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def check(self, partition: PartitionId, *, generation: int | None = None, led: bool = False) -> None:
        """Raises SourceLostError when the address belongs to another group by now, or to nobody, or to a later
        life of the group than ``generation``; with ``led`` also when the group has no leader that a majority
        confirms."""
        reads = [get(key, serializable=not led) for key in (IDENTITY_KEY, GENERATION_KEY)]
        try:
            request = rpc.TxnRequest(success=reads)
            reply = await answer(rpc.KVStub(self._channel).Txn(request, timeout=CALL_TIMEOUT_S))
        except CallFailedError as failed:
            raise SourceLostError(f"{self.client_url}: {failed}") from failed
        identities, generations = items_of(reply)
        identity = group_identity(partition)
        name = identities[0].value if identities else b""
        if name != identity:
            raise SourceLostError(f"{self.client_url} is {name.decode()!r}, not {identity.decode()!r}")
        founded = generation_in(generations)
        if generation is not None and founded > generation:
            raise SourceLostError(f"{self.client_url} is of generation {founded}, after {generation}")

    async def download(self, path: Path) -> int:
        """Write the voter's whole store to ``path``, followed by its hash; returns the bytes.

        Raises SourceLostError, also for a stream that stands still; OSError when it cannot be written.
        """
        call = rpc.MaintenanceStub(self._channel).Snapshot(rpc.SnapshotRequest())
        loop, written = asyncio.get_running_loop(), 0
        try:
            with cancellation_kept(), _created(path) as stream:
                async with asyncio.timeout(CHUNK_TIMEOUT_S) as limit:
                    async for chunk in call:
                        await asyncio.to_thread(stream.write, chunk.blob)
                        written += len(chunk.blob)
                        limit.reschedule(loop.time() + CHUNK_TIMEOUT_S)
            return written
        except rpc.AioRpcError as error:
            raise SourceLostError(f"{self.client_url}: {classify(error)}") from error
        except TimeoutError as error:
            raise SourceLostError(f"{self.client_url}: no bytes for {CHUNK_TIMEOUT_S:g} s") from error
        finally:
            call.cancel()

    def revisions(self, start: int, *, in_fragments: bool = False) -> RevisionFeed:
        """Everything from revision ``start`` on; a voter that is behind it delivers nothing until it is
        there."""
        return RevisionFeed(self.client_url, self._channel, start, in_fragments)


class RevisionFeed:
    """A watch that is read ahead of its consumer, up to READ_AHEAD_BYTES. ``async with`` ends it.

    Whole answers are the rule, though one holds up to a thousand revisions: etcd cuts fragments in a time that
    is quadratic in their events (measured: 10 s for the end of a lease with 20,000 keys).
    """

    def __init__(self, client_url: str, channel: Any, start: int, in_fragments: bool) -> None:
        self.is_whole = True
        """The newest answer came in one piece."""
        self._in_fragments = in_fragments
        self._client_url = client_url
        self._channel = channel
        self._start = start
        self._ready: list[SourceRevision] = []
        self._size = 0
        self._changed = asyncio.Condition()
        self._ended: Exception | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RevisionFeed:
        self._reader = asyncio.create_task(self._read(), name=f"watch {self._client_url}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def take(self, timeout_s: float) -> tuple[SourceRevision, ...]:
        """Take the revisions that have come since, in order; empty when none came within ``timeout_s``.

        Raises SourceLostError when the stream broke, CopyUselessError when ``start`` is compacted.
        """
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: bool(self._ready) or self._ended is not None)
                taken, self._ready, self._size = tuple(self._ready), [], 0
                self._changed.notify_all()
        except TimeoutError:
            return ()
        if not taken and self._ended is not None:
            raise self._ended
        return taken

    async def _read(self) -> None:
        try:
            with cancellation_kept():
                await self._watch()
            ended: Exception = SourceLostError(f"{self._client_url}: the watch ended")
        except rpc.AioRpcError as error:
            failed = classify(error)
            is_large = failed.kind is FailureKind.TOO_LARGE
            lost = AnswerTooLargeError if is_large else SourceLostError
            ended = lost(f"{self._client_url}: {failed}")
        except (SourceLostError, CopyUselessError) as error:
            ended = error
        async with self._changed:
            self._ended = ended
            self._changed.notify_all()

    async def _watch(self) -> None:
        closing = asyncio.Event()

        async def requests() -> AsyncIterator[Any]:
            create = rpc.WatchCreateRequest(
                key=EVERYTHING,
                range_end=EVERYTHING,
                start_revision=self._start,
                fragment=self._in_fragments,
            )
            yield rpc.WatchRequest(create_request=create)
            # The stream lives as long as the request side does.
            await closing.wait()

        call = rpc.WatchStub(self._channel).Watch(requests())
        begun: SourceRevision | None = None
        try:
            async for reply in call:
                if reply.compact_revision:
                    raise CopyUselessError(
                        f"{self._client_url} keeps history from revision {reply.compact_revision} on, "
                        f"{self._start} is wanted"
                    )
                if reply.canceled:
                    raise SourceLostError(f"{self._client_url}: watch cancelled: {reply.cancel_reason}")
                events = [(event.kv.mod_revision, _change(event)) for event in reply.events]
                self.is_whole = begun is None and not reply.fragment
                complete, begun = join_events(begun, events, continued=reply.fragment)
                await self._deliver(complete)
        finally:
            closing.set()
            call.cancel()

    async def _deliver(self, complete: tuple[SourceRevision, ...]) -> None:
        if not complete:
            return
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < READ_AHEAD_BYTES)
            self._ready.extend(complete)
            self._size += sum(revision.size_bytes for revision in complete)
            self._changed.notify_all()


def _created(path: Path) -> BinaryIO:
    """Opened in the loop: a thread's file would be lost when its waiter is cancelled."""
    return path.open("wb")


def _change(event: Any) -> RevisionChange:
    return RevisionChange(event.kv.key, None if event.type == event.DELETE else event.kv.value)


log = structlog.get_logger(__name__)

POLL_S = 0.02


class CopyFailedError(Exception):
    """The snapshot was fetched and could not be restored, or was not whole; the message is the tool's."""


async def fetch_copy(
    partition: PartitionId,
    node: str,
    group: str,
    generation: int,
    source: MirrorSource,
    reservations: Reservations,
    tool: Sequence[str],
) -> Reservation:
    """Make ``data`` of the partition's reservation from ``source``; returns the reservation as it is then.

    ``group``, ``generation``: of the group that is copied. ``tool``: the command ``... snapshot restore``.
    Raises SourceLostError, CopyFailedError, OSError (no space).
    """
    directory = reservations.directory(partition)
    snapshot, draft, tool_log = (directory / name for name in ("copy.snapshot", "data.draft", "restore.log"))
    for doomed in (reservations.discard_data(partition), draft):
        if doomed is not None:
            await asyncio.to_thread(shutil.rmtree, doomed, True)
    try:
        size = await source.download(snapshot)
        peer_url = reservations.reserve(partition).endpoints.peer_url
        await restore_snapshot(snapshot, draft, node, peer_url, f"mirror-{group}", tool, tool_log)
        store = await asyncio.to_thread(read_store_file, draft / "member" / "snap" / "db")
        held = reservations.prepare(
            partition,
            group,
            initial={node: peer_url},
            state="new",
            copy=os.urandom(8).hex(),
            generation=generation,
            copied_revision=store.revision if store is not None else 0,
        )
        draft.rename(reservations.data(partition))
    finally:
        snapshot.unlink(missing_ok=True)
        await asyncio.to_thread(shutil.rmtree, draft, True)
    log.info("copied", partition=str(partition), source=source.client_url, bytes=size)
    return held


async def restore_snapshot(
    snapshot: Path, data: Path, node: str, peer_url: str, token: str, tool: Sequence[str], tool_log: Path
) -> None:
    """Make ``data``, a store of the one member ``node``, of a snapshot's file: revisions stay. Raises
    CopyFailedError with the tool's last words."""
    arguments = {
        "name": node,
        "data-dir": data,
        "initial-cluster": f"{node}={peer_url}",
        "initial-advertise-peer-urls": peer_url,
        "initial-cluster-token": token,
    }
    command = [*tool, str(snapshot), *(f"--{name}={value}" for name, value in arguments.items())]
    bound_log(tool_log)
    code = await _finished(child.spawn(command, log=tool_log, inherited=ETCD, env={"ETCDCTL_API": "3"}))
    if code != 0:
        raise CopyFailedError(f"RESTORE {code}: {last_log_line(tool_log)}")


async def _finished(process: subprocess.Popen[bytes]) -> int:
    """The exit code; a process that is not waited for any more is killed."""
    try:
        while (code := process.poll()) is None:
            await asyncio.sleep(POLL_S)
        return code
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
