"""Nodes that were taken out for good: what was theirs before is not used again."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.codec import Codec, Record
from rebalance.core.admission.move_admission import utc
from rebalance.core.keyspace.epoch import event_revision
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import KeyValue


@dataclass(frozen=True, slots=True)
class RemovedNode(Record):
    """A node was removed at ``at_ms``, in that ``epoch`` of the metastore. A directory that was in use before
    is of the removed node; one that is newer is of a node that has joined since under the same name."""

    by: str
    reason: str
    at_ms: int
    epoch: int
    verified: bool = False
    """``by`` had logged in."""


RemovedNode.codec = Codec(RemovedNode, omit=("verified",))


def why_removed(item: KeyValue | None, epoch: int, revision: int) -> str:
    """``item``: the key ``removed/<node>``; what is asked about was last in use in ``epoch`` at ``revision``.
    Who removed it, when and why; empty: it was not, or before. Raises RecordNotReadableError."""
    removed = readable(item, RemovedNode.decode)
    if item is None or removed is None:
        return ""
    if event_revision(epoch, revision) >= event_revision(removed.epoch, item.mod_revision):
        return ""
    reason = f": {removed.reason}" if removed.reason else ""
    return f"it was removed for good at {utc(removed.at_ms)} by {removed.by}{reason}"
