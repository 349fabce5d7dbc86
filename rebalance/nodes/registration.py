"""A node's entry in the metastore: ``nodes/<name>`` under a lease, kept while the node lives.

The incarnation of the last start is kept in the node's own (locked) data directory: an entry that carries it
is this node's own past, left behind by a process that was killed, and is replaced at once. Any other entry
belongs to somebody who may live: it gets one lease time to disappear.

``HeardTime``, by which an agent judges others, passes only while the agent hears the metastore. A node whose
lease is gone may have been cut off from the metastore together with the agent that looks, and a process that
was frozen has seen nothing at all. So what others have done is measured by renewals of the agent's own lease
that succeeded one soon after the other.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import structlog

from catalog.core.level import LEVEL
from catalog.core.zone import NO_ZONE, ZoneId
from rebalance.core.admission.removed_node import why_removed
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.epoch import FIRST_EPOCH, EpochRecord, LostLife
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read, readable
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Delete, KeyValue, Put, Txn, as_read, unchanged
from rebalance.hosting.directory_owner import ForeignDirectoryError
from rebalance.hosting.private_files import read_note, write_note
from rebalance.metastore.guarded_update import read_together
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.nodes.node_context import NodeStart
from rebalance.nodes.node_fence import FenceDraft, FencePublisher, NodeFence
from rebalance.ports.metastore import LeaseLostError, Metastore, MetastoreError


class HeardTime:
    """A monotonic clock in seconds. Between two renewals that are further apart than ``silence_s`` it stands
    still."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._last_s: float | None = None
        self.now_s = 0.0

    def note(self, at_s: float) -> None:
        """The metastore has answered at ``at_s`` of a clock that never goes back."""
        if self._last_s is not None and at_s - self._last_s <= self._silence_s:
            self.now_s += at_s - self._last_s
        self._last_s = at_s


log = structlog.get_logger(__name__)

RETRY_S = 0.3
NODE_FILE = "node.json"


class NodeNameTakenError(Exception):
    """Error of a start while another living node has this name."""


class NodeRemovedError(ForeignDirectoryError):
    """The directory is of a node that was removed."""


@dataclass(frozen=True, slots=True)
class NodeFile:
    """``node.json`` in the data directory. ``revision``: the metastore was seen at this revision; a store that
    is behind it was restored or replaced, and nothing is destroyed on its word before it is adopted, which
    raises its ``epoch``."""

    incarnation: str = ""
    revision: int = 0
    epoch: int = FIRST_EPOCH

    @classmethod
    def read(cls, path: Path) -> NodeFile:
        return read_note(
            path, lambda note: cls(note["incarnation"], note["revision"], note.get("epoch", FIRST_EPOCH)), cls()
        )


async def cause_of_removal(metastore: Metastore, keyspace: Keyspace, node: str, data_dir: Path) -> str:
    """Return why the directory must not be used; empty: it may, as far as can be told now."""
    try:
        item = await metastore.get(keyspace.removed_node(node))
        check_removal(item, node, data_dir, NodeFile.read(data_dir / NODE_FILE))
    except NodeRemovedError as error:
        return Cause.NODE_REMOVED.text(str(error))
    except RecordNotReadableError as error:
        return Cause.RECORD_NOT_READABLE.text(str(error))
    except MetastoreError as error:
        log.info("nobody knows yet whether the node was removed", error=str(error))
    return ""


def check_removal(item: KeyValue | None, node: str, data_dir: Path, last: NodeFile) -> None:
    """``item``: of the removal; ``last``: when the directory was last in use. One that never was is a new
    node's. Raises NodeRemovedError and RecordNotReadableError."""
    why = why_removed(item, last.epoch, last.revision) if last.incarnation else ""
    if why:
        raise NodeRemovedError(
            f"{data_dir} is the directory that node {node} had before {why}; nothing in it is started, and "
            "what it held is on other nodes: move it away and start the node again, which then joins as a new "
            "one"
        )


@dataclass(eq=False)
class Registration:
    """``register`` once, then ``keep`` until it is cancelled; ``withdraw`` at the end."""

    metastore: Metastore
    keyspace: Keyspace
    start: NodeStart
    heard: HeardTime | None = None
    """Goes on with each renewal of the lease, and so does ``fence``, which is published with the entry."""
    fence: NodeFence | None = None
    held_zone: Callable[[], ZoneId] = lambda: NO_ZONE
    """The highest id of the zones that the node has, or had, something of."""

    def __post_init__(self) -> None:
        node = self.start.node
        self._key = self.keyspace.node(node.name)
        self._epoch_key = self.keyspace.epoch
        self._is_behind = False
        self._node = node
        self._removed_key = self.keyspace.removed_node(node.name)
        self._path = self.start.data_dir / NODE_FILE
        self._ttl_s = self.start.lease_ttl_s
        self.lease = 0
        """0 before the first registration."""
        self._heard = self.heard or HeardTime(self.start.lease_ttl_s)
        self._unreadable = UnreadableLog()
        past = self._saved = self._registered = NodeFile.read(self._path)
        self._past = past.incarnation
        self.revision_floor = past.revision
        self.epoch = past.epoch
        self.incarnation = self.start.incarnation
        self.fence_record: FencePublisher | None = None
        if self.fence is not None:
            self.fence_record = FencePublisher(
                node.name, self.incarnation, self.metastore, self.keyspace, self.fence
            )

    async def register(self) -> None:
        """Waits for the metastore as long as it takes. Raises NodeNameTakenError and NodeRemovedError."""
        deadline = 0.0
        while True:
            now = asyncio.get_running_loop().time()
            try:
                other = await self._try()
            except RecordNotReadableError as error:
                # It may be a living node's: it is neither overwritten nor taken for somebody.
                self._unreadable.waits("registration", error)
                await asyncio.sleep(self._ttl_s / 3)
                continue
            except MetastoreError as error:
                log.warning("metastore does not answer, node not registered", error=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            self._unreadable.goes_on("registration")
            if other is None:
                log.info("node registered", node=self._node.name, incarnation=self.incarnation)
                return
            # A dead process's entry disappears within its lease; one that is renewed belongs to a living node.
            deadline = deadline or now + self._ttl_s + 2.0
            if now >= deadline:
                raise NodeNameTakenError(
                    f"a living node is registered as {self._node.name!r} (incarnation {other.incarnation}, "
                    f"process {other.pid}): choose another name or stop that node"
                )
            await asyncio.sleep(RETRY_S)

    async def keep(self) -> None:
        """Renews the lease; registers again when it was lost. Raises as ``register``.

        A renewal that failed took its time already: the next one must not wait as long as after a success.
        """
        pause_s = self._ttl_s / 3
        while True:
            await asyncio.sleep(pause_s)
            pause_s = self._ttl_s / 3
            sent_ns = self._now_ns()
            try:
                await self.metastore.keep_lease(self.lease, self._ttl_s)
                item = await self._entry()
                if item is not None and self._is_current(item):
                    self._heard.note(asyncio.get_running_loop().time())
                    self._confirmed(sent_ns)
                    self._save()
                    self._unreadable.goes_on("registration")
                    continue
                log.warning("node's entry is gone or too old, registering again", node=self._node.name)
            except RecordNotReadableError as error:
                self._unreadable.waits("registration", error)
                continue
            except LeaseLostError:
                log.warning("node's lease was lost, registering again", node=self._node.name)
            except MetastoreError as error:
                log.warning("node's lease could not be renewed", node=self._node.name, error=str(error))
                pause_s = RETRY_S
                continue
            await self.register()

    async def withdraw(self) -> None:
        """Remove the entry, if the metastore answers; else the lease removes it."""
        with suppress(MetastoreError, RecordNotReadableError):
            item = await self.metastore.get(self._key)
            if item is not None and self._is_ours(item):
                guard = (unchanged(self._key, item.mod_revision),)
                await self.metastore.commit(Txn(guard, (Delete(self._key),)))
        with suppress(MetastoreError):
            if self.lease:
                await self.metastore.revoke_lease(self.lease)

    async def _try(self) -> NodeRecord | None:
        """Register; None when the node is registered now, else the entry that is in the way."""
        removed = await self.metastore.get(self._removed_key)
        check_removal(removed, self._node.name, self.start.data_dir, self._registered)
        item = await self._entry()
        unknown = None
        if item is not None:
            other = readable(item, NodeRecord.decode)
            if other.incarnation not in (self.incarnation, self._past):
                return other
            unknown = other.unknown
        # The lease counts from its grant: it may end soon after the entry is there.
        sent_ns = self._now_ns()
        self.lease = await self.metastore.grant_lease(self._ttl_s)
        record = NodeRecord(
            self._node, self.incarnation, os.getpid(), self.start.etcd, self.held_zone(), unknown=unknown
        ).at_level(LEVEL)
        guard = (as_read(self._key, item), as_read(self._removed_key, removed))
        put = Put(self._key, record.encode(), self.lease)
        draft = await self.fence_record.draft() if self.fence_record is not None else FenceDraft(0)
        result = await self.metastore.commit(Txn((*guard, *draft.guards), (put, *draft.puts)))
        if not result.succeeded:
            raise MetastoreError("the node's entry changed while it was being written")
        if self.fence_record is not None:
            self.fence_record.published(draft)
        self._confirmed(sent_ns)
        self.saw(result.revision)
        self._save()
        # What is seen later, while the lease is lost, may come after a removal.
        self._registered = NodeFile(self.incarnation, result.revision, self.epoch)
        return None

    async def _entry(self) -> KeyValue | None:
        """Read this node's key. A metastore that has less than this node has seen of it went back in time,
        which ``epoch`` says from then on: nothing is written until it is adopted."""
        seen = LostLife(self.epoch, self.revision_floor, self._node.name)
        (item, epoch), revision = await read_together(self.metastore, self._key, self._epoch_key)
        record = read(epoch, EpochRecord.decode) or EpochRecord()
        if isinstance(record, Unreadable):
            return item
        if (record.epoch, revision) < (seen.epoch, seen.revision):
            told = record.told_by(seen)
            if told is not None:
                log.error("the metastore went back in time", revision=revision, seen=seen.revision)
                guard = as_read(self._epoch_key, epoch)
                await self.metastore.commit(Txn((guard,), (Put(self._epoch_key, told.encode()),)))
            self._is_behind = True
        else:
            self._is_behind = record.lost_life is not None
        return item

    def _now_ns(self) -> int:
        return self.fence.now_ns() if self.fence is not None else 0

    def _confirmed(self, sent_ns: int) -> None:
        if self.fence is not None:
            self.fence.confirmed(sent_ns)

    def saw(self, revision: int) -> None:
        """The metastore showed this revision; a lower one later means that it went back in time."""
        self.revision_floor = max(self.revision_floor, revision)

    def adopted(self, epoch: int, revision: int) -> None:
        """The metastore is in ``epoch`` at ``revision``: one that went back and was adopted counts anew."""
        if epoch > self.epoch:
            log.warning("the metastore was adopted", epoch=epoch, revision=revision, seen=self.revision_floor)
            self.epoch, self.revision_floor = epoch, revision
            self._registered = replace(self._registered, epoch=epoch)
            self._save()

    def _save(self) -> None:
        """A disk that is full for now must not end the node: what it knows is saved later then."""
        current = NodeFile(self.incarnation, self.revision_floor, self.epoch)
        if current != self._saved and write_note(self._path, **asdict(current)):
            self._saved = current

    def _is_current(self, item: KeyValue) -> bool:
        """A metastore that went back has an entry from before, which lacks the latest zones."""
        is_reported = readable(item, NodeRecord.decode).highest_zone >= self.held_zone()
        return self._is_ours(item) and (is_reported or not self._is_behind)

    def _is_ours(self, item: KeyValue) -> bool:
        return readable(item, NodeRecord.decode).incarnation == self.incarnation
