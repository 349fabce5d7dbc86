"""Calls that the host and its change loop need of a member: in the product etcd answers them, in simulations a
model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import LogPosition
from rebalance.groups.calls.etcd_api import MEMBERSHIP_TIMEOUT_S, EtcdMemberEntry, EtcdStatus
from rebalance.ports.groups import MemberEndpoints, MemberLife


class GroupCalls(Protocol):
    """Asked of the group through its member; each raises CallFailedError with the kind of the failure.
    ``timeout_s``: a call that has no answer by then may have been done all the same."""

    async def status(self) -> EtcdStatus: ...

    async def add_learner(self, peer_url: str, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None: ...

    async def promote(self, member_id: int, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None: ...

    async def remove(self, member_id: int, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None: ...

    async def move_leader(self, member_id: int) -> None: ...

    async def claim_identity(self, identity: bytes, generation: int = 0) -> None: ...


class GroupMemberCalls(Protocol):
    @property
    def api(self) -> GroupCalls:
        """Raises MemberUnavailableError while no process runs."""
        ...

    async def entries(self, *, linearizable: bool) -> tuple[EtcdMemberEntry, ...]:
        """The member list. Raises CallFailedError or MemberUnavailableError."""
        ...


class ReservedMember(Protocol):
    @property
    def endpoints(self) -> MemberEndpoints: ...

    @property
    def generation(self) -> int:
        """Generation of the group that its data belongs to."""
        ...

    @property
    def founding_revision(self) -> int:
        """Revision of the data that it founded its generation's group with; 0 where it did not."""
        ...


class GroupMemberProcess(GroupMemberCalls, Protocol):
    """A member of this node: its process, its data and what it answers."""

    @property
    def reservation(self) -> ReservedMember:
        """Raises MemberUnavailableError when nothing is reserved."""
        ...

    async def start(self, token: str, initial: Mapping[str, str], state: str, generation: int = 0) -> None: ...

    async def found_alone(self, generation: int) -> bool: ...

    async def found_from_mirror(self, generation: int, client_url: str, complete_revision: int) -> bool: ...

    async def log_position(self) -> LogPosition | None: ...

    async def restart(self) -> None: ...

    async def stop(self) -> None: ...

    async def destroy(self) -> None: ...

    async def set_aside(self) -> None: ...

    async def look(self) -> tuple[MemberLife, str, EtcdStatus | None]: ...

    def received_bytes(self) -> int:
        """Bytes so far, plus one, of the copy of a member that runs, joins and has never answered; 0 for any
        other."""
        ...

    async def name_of(self, member_id: int) -> str: ...


class ReservationBook(Protocol):
    """Reservations that a node holds for its members: addresses that stay, and data."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def partitions(self) -> frozenset[PartitionId]: ...

    def get(self, partition: PartitionId) -> ReservedMember | None: ...

    def reserve(self, partition: PartitionId, listed: Collection[str] = ()) -> ReservedMember: ...

    def aside(self) -> Mapping[PartitionId, frozenset[int]]: ...

    def forget_aside(self, partition: PartitionId, generation: int) -> Path | None: ...
