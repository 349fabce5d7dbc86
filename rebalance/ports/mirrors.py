"""Learners: replicas of a partition that a node keeps beside its voters' groups, read-only.

A learner is no member of the group. It is a *mirror*: a store of its own that holds what the group
held at some revision and then repeats each of the group's revisions as one transaction, so that a key has the
same revision here as there. One ``MirrorHost`` per node; a node may hold a mirror and a member of the same
partition for a while, when its role changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rebalance.core.keyspace.keys import PartitionId
from rebalance.ports.groups import MemberLife


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """Status of a node's mirror of one partition.

    ``life``: RESERVED (nothing copied yet), STARTING (the first copy is fetched, or the store starts), RUNNING
    (it may be read), STOPPED, FAILED (``reason`` says why; following goes on being tried).
    """

    life: MemberLife
    client_url: str = ""
    safe_revision: int = 0
    """Revision up to which it may be read: that of the last event of the group that was repeated."""
    safe_time_ms: int = 0
    """Time that the group's leader had written before ``safe_revision``; 0 before the first one."""
    size_bytes: int = 0
    reason: str = ""
    source: str = ""
    """Client URL of the voter that it follows, empty while it follows none."""
    complete_revision: int = 0
    """The last revision of the group that the copy has completely; 0: it has none, or nobody has looked yet."""
    is_silent: bool = False
    """True if no voter has reported anything for a while: a group that has a leader reports the time at
    least."""
    generation: int = 0
    """Generation of the group whose data the copy holds."""


@dataclass(frozen=True, slots=True)
class FollowedGroup:
    """Group that a mirror follows, by its token. ``shared_revision``: up to which a copy of an earlier
    generation than ``generation`` is of this group too."""

    token: str
    generation: int = 0
    shared_revision: int = 0


class MirrorHost(Protocol):
    """The mirrors of one node. Every call is bounded in time; the copying goes on behind it."""

    def open(self, node: str) -> None:
        """Find the mirrors that the node's data directory holds."""
        ...

    def partitions(self) -> frozenset[PartitionId]:
        """Partitions that this node has a mirror of, running or not."""
        ...

    async def follow(self, partition: PartitionId, group: FollowedGroup, sources: tuple[str, ...]) -> None:
        """Keep a mirror of ``partition`` that follows one of ``sources`` (client URLs of its voters).

        Idempotent; new sources take effect without a new copy. A mirror of another group (the
        zone was dropped and the id used again) is removed first. A mirror of the same group in an earlier
        generation goes on where it is not beyond what both lives of the group share; else it answers no read
        from now on and is copied again. Raises NoPlaceError.
        """
        ...

    async def serve(self, partition: PartitionId) -> None:
        """Start the store as it is, whatever its use, so that its own node can read it. It answers later."""
        ...

    async def status(self, partition: PartitionId) -> MirrorStatus | None:
        """Return the mirror's status; None when the node holds no mirror of it."""
        ...

    async def stop(self, partition: PartitionId, *, destroy: bool) -> None:
        """End following and the store; ``destroy`` removes data and ports."""
        ...

    async def close(self) -> None:
        """Stop every mirror in order. Data stays, and the next ``open`` continues from it."""
        ...


class SafeTimes(Protocol):
    """Tells groups the time, so that their mirrors know how far they are when nothing is written."""

    async def run(self, led: Callable[[], Mapping[PartitionId, str]]) -> None:
        """Run until cancelled. ``led``: partitions that this node leads and that have learners, with the client
        URL of its own member."""
        ...

    async def close(self) -> None: ...
