"""The fence of a node, as those see it who start members, kill them, and ask the metastore's members.

A member of a zone that may be founded anew without its node runs only while the node knows that the metastore
has heard it lately (``rebalance/tech-notes/isolation.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rebalance.core.keyspace.keys import PartitionId


class WatchLostError(Exception):
    """Error where nothing would kill the process at its deadline: it must not become a member."""


class MemberGuard(Protocol):
    """Guard that a group host asks before and after it starts a member's process. Members that the fence does
    not concern are always let through."""

    async def refusal(self, partition: PartitionId, generation: int) -> str:
        """Return why no member with data of ``generation`` may start now; empty: it may. Bounded in time."""
        ...

    async def guard(self, partition: PartitionId, pid: int) -> None:
        """Returns once the process is killed at the node's deadline, whatever becomes of this one. It must not
        serve before. Raises WatchLostError."""
        ...

    def ended(self, pid: int) -> str:
        """The process has ended: the reason where the fence has killed it, else empty."""
        ...


class MemberKiller(Protocol):
    """Kills processes at a deadline. Moments are nanoseconds of the clock that the fence was given."""

    def listen(self, killed: Callable[[tuple[int, ...]], None]) -> None:
        """``killed`` is called with the ids of processes that were killed. It must not raise."""
        ...

    def until(self, deadline_ns: int) -> None:
        """Set the deadline: from ``deadline_ns`` on no guarded process runs. Replaces what was said before."""
        ...

    async def guard(self, pid: int) -> None:
        """Returns once the process is going to be killed at the deadline; at once where that has passed. Raises
        WatchLostError."""
        ...

    def unguard(self, pid: int) -> None:
        """The process has ended, or may run on."""
        ...

    def kill(self) -> None:
        """Kill what is guarded now."""
        ...

    async def run(self) -> None:
        """Run until cancelled; what is guarded stays so afterwards."""
        ...

    async def close(self) -> None:
        """Kills what is still guarded."""
        ...


class MajorityProbe(Protocol):
    """Probe for a majority of the metastore, without which it cannot end a lease."""

    async def remember(self) -> None:
        """Read, while the metastore answers, who its members are. Raises MetastoreError."""
        ...

    async def no_majority(self) -> bool:
        """Asks each of them once, all at the same time. True: a majority refused the connection or said that it
        has no leader, and nobody named one. Bounded in time, and never raises."""
        ...


class NoGuard:
    """A ``MemberGuard`` of a node without a fence."""

    async def refusal(self, _partition: PartitionId, _generation: int) -> str:
        return ""

    async def guard(self, _partition: PartitionId, _pid: int) -> None:
        return None

    def ended(self, _pid: int) -> str:
        return ""
