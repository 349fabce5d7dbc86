"""One member of a group over gRPC: the calls that moving and watching a group needs, each with a time limit.

First the parts of a transaction of etcd's, and what its reads have found. Errors come back as
``CallFailedError`` with a kind: most of what a group says during a change is a normal answer ("unhealthy
cluster" for up to 5 s, "Peer URLs already exists" after a repeated add), and only the kind decides what to
do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aetcd import rpc

from rebalance.hosting.background import cancellation_kept
from rebalance.hosting.tls import TlsFiles
from rebalance.hosting.tls_channel import TlsChannel
from rebalance.ports.groups import MemberUnavailableError


def get(key: bytes, *, serializable: bool = False, keys_only: bool = False) -> Any:
    wanted = rpc.RangeRequest(key=key, serializable=serializable, keys_only=keys_only)
    return rpc.RequestOp(request_range=wanted)


def get_newest(prefix: bytes, *, serializable: bool = False) -> Any:
    """The key with ``prefix`` that was written last."""
    newest = rpc.RangeRequest(
        key=prefix,
        range_end=prefix_end(prefix),
        sort_target=rpc.RangeRequest.MOD,
        sort_order=rpc.RangeRequest.DESCEND,
        limit=1,
        serializable=serializable,
    )
    return rpc.RequestOp(request_range=newest)


def put(key: bytes, value: bytes, lease: int = 0) -> Any:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes, range_end: bytes = b"") -> Any:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key, range_end=range_end))


def put_if_absent(key: bytes, value: bytes, lease: int) -> Any:
    """A transaction of its own within another one."""
    inner = rpc.TxnRequest(compare=[absent(key)], success=[put(key, value, lease)])
    return rpc.RequestOp(request_txn=inner)


def absent(key: bytes) -> Any:
    return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=0)


def has_value(key: bytes, value: bytes) -> Any:
    return rpc.Compare(key=key, target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL, value=value)


def unchanged(key: bytes, revision: int) -> Any:
    """Written last at ``revision``; 0: it is absent."""
    return rpc.Compare(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=revision)


def items_of(reply: Any) -> list[Any]:
    """Key-value items that each of the reply's reads returned, in the order of the reads."""
    return [response.response_range.kvs for response in reply.responses]


def prefix_end(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes((prefix[-1] + 1,))


CALL_TIMEOUT_S = 2.0
MEMBERSHIP_TIMEOUT_S = 5.0
TIDY_TIMEOUT_S = 60.0
"""A gigabyte is defragmented in some seconds, on a slow disk."""

CHANNEL_OPTIONS = (
    # Against a frozen server; each call's own time limit comes first. No pings while no call is under way: etcd
    # does not permit them without a stream.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # A member that is restarted must be found again at once, not after the default backoff of up to 120 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Also the time limit of one attempt to connect: too short, and a busy member is never reached.
    ("grpc.min_reconnect_backoff_ms", 2_000),
)


class FailureKind(Enum):
    NO_ANSWER = "NO_ANSWER"  # unreachable, stopped or too slow: what was asked may have been done
    NO_LEADER = "NO_LEADER"
    NOT_LEADER = "NOT_LEADER"
    UNHEALTHY = "UNHEALTHY"  # members must have been connected for 5 s
    NOT_ENOUGH_STARTED = "NOT_ENOUGH_STARTED"
    NOT_IN_SYNC = "NOT_IN_SYNC"
    ALREADY_DONE = "ALREADY_DONE"  # a repeated call finds its own effect: read the list again
    LEARNER_SLOT_TAKEN = "LEARNER_SLOT_TAKEN"
    LEASE_NOT_FOUND = "LEASE_NOT_FOUND"
    TOO_LARGE = "TOO_LARGE"
    NO_SPACE = "NO_SPACE"  # a member's store is full: the group takes no puts
    COMPACTED = "COMPACTED"  # the revision is not kept any more
    OTHER = "OTHER"


REFUSALS = frozenset(
    {
        *(FailureKind.NOT_LEADER, FailureKind.UNHEALTHY, FailureKind.NOT_ENOUGH_STARTED),
        *(FailureKind.NOT_IN_SYNC, FailureKind.ALREADY_DONE, FailureKind.LEARNER_SLOT_TAKEN),
    }
)
"""Failures of a membership call that leave nothing on its way; after any other kind its outcome is not
known."""

UNANSWERED = frozenset({FailureKind.NO_ANSWER, FailureKind.NO_LEADER})


class CallFailedError(MemberUnavailableError):
    """No usable answer to one call; ``kind`` says what came instead."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


_BY_MESSAGE = (
    ("unhealthy cluster", FailureKind.UNHEALTHY),
    ("not enough started members", FailureKind.NOT_ENOUGH_STARTED),
    ("in sync with leader", FailureKind.NOT_IN_SYNC),
    ("can only promote a learner", FailureKind.ALREADY_DONE),
    ("already exist", FailureKind.ALREADY_DONE),
    ("member not found", FailureKind.ALREADY_DONE),
    ("too many learner", FailureKind.LEARNER_SLOT_TAKEN),
    ("not leader", FailureKind.NOT_LEADER),
    ("no leader", FailureKind.NO_LEADER),
    ("leader changed", FailureKind.NO_LEADER),
    ("lease not found", FailureKind.LEASE_NOT_FOUND),
    ("required revision has been compacted", FailureKind.COMPACTED),
    ("request is too large", FailureKind.TOO_LARGE),
    ("larger than max", FailureKind.TOO_LARGE),
    ("database space exceeded", FailureKind.NO_SPACE),
)


def classify(error: Any) -> CallFailedError:
    """A gRPC error as a kind. What no rule knows is NO_ANSWER when the transport or the server failed."""
    message = f"{error.code().name}: {error.details()}"
    for text, kind in _BY_MESSAGE:
        if text in message:
            return CallFailedError(kind, message)
    transient = (
        rpc.StatusCode.UNAVAILABLE,
        rpc.StatusCode.DEADLINE_EXCEEDED,
        rpc.StatusCode.CANCELLED,
        rpc.StatusCode.UNKNOWN,
    )
    return CallFailedError(FailureKind.NO_ANSWER if error.code() in transient else FailureKind.OTHER, message)


@dataclass(frozen=True, slots=True)
class EtcdMemberEntry:
    """An entry of etcd's member list; ``name`` is empty until the member has joined once."""

    member_id: int
    name: str
    peer_url: str
    is_learner: bool
    client_url: str = ""
    """Empty until the member has joined once."""


@dataclass(frozen=True, slots=True)
class EtcdStatus:
    member_id: int
    leader_id: int
    term: int
    applied_index: int
    size_bytes: int
    is_learner: bool
    in_use_bytes: int = 0
    """Part of ``size_bytes`` that defragmentation would not give back."""
    no_space: bool = False
    """A member's alarm is raised: the group takes no puts."""
    commit_index: int = 0
    """The last log entry that this member knows to be committed."""
    revision: int = 0
    """Revision of the member's store, which has applied ``applied_index``."""
    cluster_id: int = 0


def open_channel(client_url: str, tls: TlsFiles | None = None, answer_bytes_max: int = 4 << 20) -> Any:
    """Open a channel to ``http://host:port`` or, with ``tls``, to ``https://host:port``. Raises CallFailedError
    when the member speaks TLS and this process was given no certificate."""
    options = (*CHANNEL_OPTIONS, ("grpc.max_receive_message_length", answer_bytes_max))
    scheme, _, address = client_url.partition("://")
    if scheme != "https":
        return rpc.insecure_channel(address, options=options)
    if tls is None:
        message = f"{client_url} speaks TLS: this process needs ZONEKEEPER_TLS_CA, _CERTIFICATE and _KEY"
        raise CallFailedError(FailureKind.OTHER, message)
    return TlsChannel(address, tls, options)


class EtcdApi:
    """Calls to the member at ``client_url``. Belongs to one event loop; ``close`` it."""

    def __init__(self, client_url: str, tls: TlsFiles | None = None) -> None:
        self._channel = open_channel(client_url, tls)
        self._kv = rpc.KVStub(self._channel)
        self._cluster = rpc.ClusterStub(self._channel)
        self._maintenance = rpc.MaintenanceStub(self._channel)

    async def close(self) -> None:
        await self._channel.close()

    async def status(self, timeout_s: float = 1.0) -> EtcdStatus:
        reply = await answer(self._maintenance.Status(rpc.StatusRequest(), timeout=timeout_s))
        return EtcdStatus(
            reply.header.member_id,
            reply.leader,
            reply.raftTerm,
            reply.raftAppliedIndex,
            reply.dbSize,
            reply.isLearner,
            reply.dbSizeInUse,
            any("NOSPACE" in error for error in reply.errors),
            reply.raftIndex,
            reply.header.revision,
            reply.header.cluster_id,
        )

    async def members(self, *, linearizable: bool) -> tuple[EtcdMemberEntry, ...]:
        """etcd 3.4 answers from the member's own applied state: a linearizable read before makes that state
        at least as new as everything committed so far."""
        if linearizable:
            await answer(self._kv.Range(_BARRIER, timeout=CALL_TIMEOUT_S))
        reply = await answer(self._cluster.MemberList(rpc.MemberListRequest(), timeout=CALL_TIMEOUT_S))
        return tuple(
            EtcdMemberEntry(
                member.ID, member.name, member.peerURLs[0], member.isLearner, next(iter(member.clientURLs), "")
            )
            for member in reply.members
        )

    async def add_learner(self, peer_url: str, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None:
        request = rpc.MemberAddRequest(peerURLs=[peer_url], isLearner=True)
        await answer(self._cluster.MemberAdd(request, timeout=timeout_s))

    async def promote(self, member_id: int, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None:
        request = rpc.MemberPromoteRequest(ID=member_id)
        await answer(self._cluster.MemberPromote(request, timeout=timeout_s))

    async def remove(self, member_id: int, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None:
        request = rpc.MemberRemoveRequest(ID=member_id)
        await answer(self._cluster.MemberRemove(request, timeout=timeout_s))

    async def move_leader(self, member_id: int) -> None:
        request = rpc.MoveLeaderRequest(targetID=member_id)
        await answer(self._maintenance.MoveLeader(request, timeout=MEMBERSHIP_TIMEOUT_S))

    async def compact(self) -> None:
        """Forget the history before now; a repeat does nothing."""
        read = await answer(self._kv.Range(_BARRIER, timeout=CALL_TIMEOUT_S))
        request = rpc.CompactionRequest(revision=read.header.revision, physical=True)
        try:
            await answer(self._kv.Compact(request, timeout=TIDY_TIMEOUT_S))
        except CallFailedError as failed:
            if "has been compacted" not in str(failed):
                raise

    async def defragment(self) -> None:
        """Give space back to the disk. The member answers nothing meanwhile."""
        await answer(self._maintenance.Defragment(rpc.DefragmentRequest(), timeout=TIDY_TIMEOUT_S))

    async def take_back_alarm(self, member_id: int) -> None:
        request = rpc.AlarmRequest(action=rpc.AlarmRequest.DEACTIVATE, memberID=member_id, alarm=rpc.NOSPACE)
        await answer(self._maintenance.Alarm(request, timeout=CALL_TIMEOUT_S))

    async def claim_identity(self, identity: bytes, generation: int = 0) -> None:
        """Write the group's name, and with it the generation, into its own store, once; every put and get is
        guarded by them. A store that has its name and an earlier generation, or none, was founded by a build
        that did not write it (or is a backup of one): it gets the generation as well. 0 is never written."""
        written = [put(IDENTITY_KEY, identity)]
        if generation:
            written.append(put(GENERATION_KEY, b"%d" % generation))
        request = rpc.TxnRequest(compare=[absent(IDENTITY_KEY)], success=written, failure=[get(GENERATION_KEY)])
        reply = await answer(self._kv.Txn(request, timeout=CALL_TIMEOUT_S))
        if reply.succeeded or not generation:
            return
        (generations,) = items_of(reply)
        if generation_in(generations) < generation:
            guard = unchanged(GENERATION_KEY, generations[0].mod_revision if generations else 0)
            request = rpc.TxnRequest(compare=[guard], success=[put(GENERATION_KEY, b"%d" % generation)])
            await answer(self._kv.Txn(request, timeout=CALL_TIMEOUT_S))


IDENTITY_KEY = b"g"
"""Holds ``<zone id>/<partition>``: a client that follows an outdated address to a port that now belongs to
another group is refused there, instead of writing into it."""
GENERATION_KEY = b"f"
"""Holds the generation of a group that a recovery has founded, from before its first client on: so the stores
of two lives of a group differ from there on, whatever clients write. In its first life a group has no such
key."""
_BARRIER = rpc.RangeRequest(key=IDENTITY_KEY, keys_only=True)
"""A linearizable read of next to nothing."""


def generation_in(items: Sequence[Any]) -> int:
    """``items``: of a read of GENERATION_KEY; without one the group is in its first life."""
    return int(items[0].value) if items else 0


async def answer(call: Awaitable[Any]) -> Any:
    """The call's reply. Raises CallFailedError, also when somebody else closes the channel meanwhile: gRPC
    tells that as a cancellation, which would end a task that nobody has cancelled."""
    try:
        with cancellation_kept():
            return await call
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise CallFailedError(FailureKind.NO_ANSWER, "the connection was closed") from error
    except rpc.AioRpcError as error:
        raise classify(error) from error
