"""The first copy of a mirror: a voter's snapshot, restored into a store of one member.

A snapshot keeps the group's revisions, so the restored store stands at the group's revision at that moment.
Nothing of it counts before the restored directory has its name: a copy that was interrupted is started again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import structlog

from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.copies.mirror_source import MirrorSource
from rebalance.groups.files.etcd_store_file import read_store_file
from rebalance.groups.files.etcd_tuning import bound_log, last_log_line
from rebalance.groups.files.reservations import Reservation, Reservations
from rebalance.hosting import child
from rebalance.hosting.environment import ETCD

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
    book: Reservations,
    tool: Sequence[str],
) -> Reservation:
    """Make ``data`` of the partition's reservation from ``source``; returns the reservation as it is then.

    ``group``, ``generation``: of the group that is copied. ``tool``: the command ``... snapshot restore``.
    Raises SourceLostError, CopyFailedError, OSError (no space).
    """
    directory = book.directory(partition)
    snapshot, draft, tool_log = (directory / name for name in ("copy.snapshot", "data.draft", "restore.log"))
    for doomed in (book.discard_data(partition), draft):
        if doomed is not None:
            await asyncio.to_thread(shutil.rmtree, doomed, True)
    try:
        size = await source.download(snapshot)
        peer_url = book.reserve(partition).endpoints.peer_url
        await restore_snapshot(snapshot, draft, node, peer_url, f"mirror-{group}", tool, tool_log)
        store = await asyncio.to_thread(read_store_file, draft / "member" / "snap" / "db")
        held = book.prepare(
            partition,
            group,
            initial={node: peer_url},
            state="new",
            copy=os.urandom(8).hex(),
            generation=generation,
            copied_revision=store.revision if store is not None else 0,
        )
        draft.rename(book.data(partition))
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
