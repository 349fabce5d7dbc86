"""The store of one mirror: an etcd of one member that repeats a group's revisions.

Every repeated revision is one transaction that also writes the key ``m/<name of the copy>``, the *marker*. So
the marker's mod_revision is the store's revision, and a transaction that is guarded by it is applied at that
revision or not at all: a repeat, a lost answer or a late request can never apply a revision twice or out of
its place.

Many transactions in a fixed order wait for one call only, as proposals over etcd's peer port. etcd handles
concurrent requests of one connection in any order, so plain calls must wait for one another, and each waits
for the disk. Members of a group forward proposals to their leader in one message of raft (``MsgProp``), whose
entries are appended in their order and written to disk together; members of different versions do so in every
rolling upgrade, so the form does not change. A mirror's store is a group of one: what it is sent here is in
its log before any call that is made afterwards. There is no answer: the call that follows shows what became
of it.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import structlog
from aetcd import rpc

from rebalance.core.moves.safe_time import Beat, decode_time
from rebalance.core.moves.source_revisions import RevisionChange, SourceRevision
from rebalance.groups.calls.data_client import MARKER_PREFIX, SAFE_TIME_KEY, marked_revision
from rebalance.groups.calls.etcd_api import (
    CallFailedError,
    FailureKind,
    answer,
    delete,
    get,
    items_of,
    open_channel,
    put,
    unchanged,
)
from rebalance.hosting.tls import TlsFiles
from rebalance.hosting.tls_handshakes import closed_handshakes
from rebalance.ports.groups import MemberEndpoints

PROPOSAL = 2
"""``MsgProp`` of raftpb.MessageType."""
TIMEOUT_S = 5.0


class ProposalsFailedError(Exception):
    """Proposals were not accepted, or it is not known whether they were; the message says what was answered."""


def encode_proposals(member_id: int, first_id: int, transactions: Sequence[bytes]) -> bytes:
    """A raftpb.Message whose entries are InternalRaftRequests with one encoded TxnRequest each.

    ``first_id``: the requests are numbered from it; nobody waits for these numbers.
    """
    entries = b"".join(
        # Entry: Type EntryNormal, Data.
        _bytes_field(7, _number_field(1, 0) + _bytes_field(4, _internal_request(first_id + index, transaction)))
        for index, transaction in enumerate(transactions)
    )
    # Message: type, to, from, entries.
    return _number_field(1, PROPOSAL) + _number_field(2, member_id) + _number_field(3, member_id) + entries


class RaftProposals:
    """Proposals to the store at ``peer_url``. Identities and version are those that its own status gives."""

    def __init__(
        self, peer_url: str, member_id: int, cluster_id: int, version: str, tls: TlsFiles | None = None
    ) -> None:
        self._url = f"{peer_url}/raft"
        self._member_id = member_id
        self._tls = tls
        self._verify = tls.context() if tls else True
        self._http = self._client()
        self._headers = {
            "Content-Type": "application/protobuf",
            "X-Server-From": f"{member_id:x}",
            "X-Server-Version": version,
            "X-Min-Cluster-Version": "3.0.0",
            "X-Etcd-Cluster-ID": f"{cluster_id:x}",
        }

    async def send(self, transactions: Sequence[bytes]) -> None:
        """Returns once they are in the store's queue, in this order. Raises ProposalsFailedError."""
        body = encode_proposals(self._member_id, random.getrandbits(62), transactions)
        try:
            http = await self._present()
            answer = await http.post(
                self._url, content=body, headers=self._headers, extensions=closed_handshakes()
            )
        except httpx.HTTPError as error:
            raise ProposalsFailedError(f"{self._url}: {type(error).__name__} {error}") from error
        if answer.status_code != httpx.codes.NO_CONTENT:
            raise ProposalsFailedError(f"{self._url}: HTTP {answer.status_code} {answer.text.strip()}")

    async def _present(self) -> httpx.AsyncClient:
        """Another one once another certificate is in force."""
        verify = self._tls.context() if self._tls else True
        if verify is not self._verify:
            before, self._verify = self._http, verify
            self._http = self._client()
            await before.aclose()
        return self._http

    def _client(self) -> httpx.AsyncClient:
        # The environment's proxies are for the outside.
        return httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S, verify=self._verify)

    async def close(self) -> None:
        await self._http.aclose()


def _internal_request(number: int, transaction: bytes) -> bytes:
    """InternalRaftRequest: header.ID, txn."""
    return _bytes_field(100, _number_field(1, number)) + _bytes_field(6, transaction)


def _bytes_field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _number_field(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


log = structlog.get_logger(__name__)

READ_TIMEOUT_S = 5.0
APPLY_TIMEOUT_S = 15.0
LEASES_PAUSE_S = 10.0
COMPARED_KEYS = 64
"""Keys that are compared of the revision at which copy and group meet; more would prove nothing more."""
ANSWER_BYTES_MAX = 64 << 20


class CopyUselessError(Exception):
    """The copy is not what the group was, or the revisions that it lacks are gone: only a new one helps.
    ``complete_revision``: of the group, that it has completely all the same; 0: nobody can tell."""

    def __init__(self, message: str, complete_revision: int = 0) -> None:
        super().__init__(message)
        self.complete_revision = complete_revision


@dataclass(frozen=True, slots=True)
class MirrorPosition:
    """``revision``: of the last repeated revision, or of the copy; ``marked``: the marker's, 0 without one."""

    revision: int
    marked: int
    beat: Beat

    @property
    def safe_revision(self) -> int:
        return max(self.marked, self.beat.revision)


class MirrorStore:
    """Connections to the running store; ``copy`` is the name of its copy. One user; ``close`` it."""

    def __init__(self, endpoints: MemberEndpoints, copy: str, tls: TlsFiles | None = None) -> None:
        self._endpoints = endpoints
        self._tls = tls
        self._marker = MARKER_PREFIX + copy.encode()
        self._channel = open_channel(endpoints.client_url, tls, ANSWER_BYTES_MAX)
        self._kv = rpc.KVStub(self._channel)
        self._proposals: RaftProposals | None = None
        self._marked = 0

    async def close(self) -> None:
        await self._channel.close()
        if self._proposals is not None:
            await self._proposals.close()

    async def prepare(self) -> None:
        """Prepare for proposals and end the store's alarms; call it once after the store's start. An alarm of
        the group's came with the copy; one of its own comes back with the next write if there is still no
        space. Raises CallFailedError."""
        maintenance = rpc.MaintenanceStub(self._channel)
        status = await answer(maintenance.Status(rpc.StatusRequest(), timeout=READ_TIMEOUT_S))
        header = status.header
        self._proposals = RaftProposals(
            self._endpoints.peer_url, header.member_id, header.cluster_id, status.version, self._tls
        )
        await end_alarms(self._channel)

    async def position(self) -> MirrorPosition:
        """Position that the store has reached. Raises CallFailedError; CopyUselessError when something else has
        written."""
        request = rpc.TxnRequest(success=[get(self._marker), get(SAFE_TIME_KEY)])
        reply = await answer(self._kv.Txn(request, timeout=READ_TIMEOUT_S))
        markers, beats = items_of(reply)
        revision = reply.header.revision
        self._marked = markers[0].mod_revision if markers else 0
        repeated = marked_revision(markers[0]) if markers else 0
        if markers and not (revision == self._marked == repeated):
            message = f"the store is at revision {revision}, but {repeated} was the last repeated"
            raise CopyUselessError(message, repeated)
        beat = Beat(decode_time(beats[0].value), beats[0].mod_revision) if beats else Beat()
        return MirrorPosition(revision, self._marked, beat)

    async def holds(self, last: SourceRevision) -> bool:
        """True when the store's newest revision, ``last``, is the group's: same keys, same values."""
        changes = _of_group(last)[:COMPARED_KEYS]
        request = rpc.TxnRequest(success=[get(change.key) for change in changes])
        reply = await answer(self._kv.Txn(request, timeout=READ_TIMEOUT_S))
        for change, items in zip(changes, items_of(reply), strict=True):
            if change.value is None:
                if items:
                    return False
            elif not items or items[0].mod_revision != last.revision or items[0].value != change.value:
                return False
        return True

    async def apply(self, batch: Sequence[SourceRevision]) -> None:
        """Repeat ``batch``, whose first revision follows the store's, each as a transaction of its own.

        Raises CallFailedError: a first part of it may have been repeated, ask ``position``; CopyUselessError
        when the store's revisions are not the group's any more.
        """
        transactions: list[Any] = []
        marked = self._marked
        for revision in batch:
            transactions.append(self._transaction(revision, marked))
            marked = revision.revision
        if len(transactions) > 1:
            await self._send_ahead(transactions[:-1])
        reply = await answer(self._kv.Txn(transactions[-1], timeout=APPLY_TIMEOUT_S))
        last = batch[-1].revision
        if not reply.succeeded:
            raise CallFailedError(FailureKind.OTHER, f"revision {last} is not the next of the store")
        if reply.header.revision != last:
            raise CopyUselessError(f"revision {last} became {reply.header.revision}")
        self._marked = last

    async def keep_leases(self) -> float:
        """Leases came with the copy. The store would end them by itself and delete their keys, in a revision
        that the group never had; so those that have keys are kept, until the group has deleted these.

        Returns the seconds until it must be called again. Raises CallFailedError.
        """
        leases = rpc.LeaseStub(self._channel)
        listed = await answer(leases.LeaseLeases(rpc.LeaseLeasesRequest(), timeout=READ_TIMEOUT_S))
        pause_s = LEASES_PAUSE_S
        for lease in listed.leases:
            request = rpc.LeaseTimeToLiveRequest(ID=lease.ID, keys=True)
            remaining = await answer(leases.LeaseTimeToLive(request, timeout=READ_TIMEOUT_S))
            if remaining.keys:
                await answer(_keep_alive(leases, lease.ID))
                pause_s = min(pause_s, remaining.grantedTTL / 4)
        return pause_s

    async def _send_ahead(self, transactions: Sequence[Any]) -> None:
        """All but the last of a batch; whether they were applied shows with the last one."""
        try:
            if self._proposals is None:
                raise ProposalsFailedError("the store was not prepared")
            await self._proposals.send([transaction.SerializeToString() for transaction in transactions])
        except ProposalsFailedError as failed:
            # The slow way, for a store that takes no proposals; an accepted one makes these do nothing.
            log.warning("revisions are repeated one by one", error=str(failed))
            for transaction in transactions:
                await answer(self._kv.Txn(transaction, timeout=APPLY_TIMEOUT_S))

    def _transaction(self, revision: SourceRevision, marked: int) -> Any:
        operations = [
            delete(change.key) if change.value is None else put(change.key, change.value)
            for change in _of_group(revision)
        ]
        operations.append(put(self._marker, b"%d" % revision.revision))
        return rpc.TxnRequest(compare=[unchanged(self._marker, marked)], success=operations)


async def end_alarms(channel: Any) -> None:
    """Take back all alarms that the store has. Raises CallFailedError."""
    maintenance = rpc.MaintenanceStub(channel)
    alarms = await answer(
        maintenance.Alarm(rpc.AlarmRequest(action=rpc.AlarmRequest.GET), timeout=READ_TIMEOUT_S)
    )
    for alarm in alarms.alarms:
        disarm = rpc.AlarmRequest(
            action=rpc.AlarmRequest.DEACTIVATE, memberID=alarm.memberID, alarm=alarm.alarm
        )
        await answer(maintenance.Alarm(disarm, timeout=READ_TIMEOUT_S))


async def _keep_alive(leases: Any, lease: int) -> None:
    async def requests() -> AsyncIterator[Any]:
        yield rpc.LeaseKeepAliveRequest(ID=lease)

    call = leases.LeaseKeepAlive(requests(), timeout=READ_TIMEOUT_S)
    async for _ in call:
        call.cancel()
        return


def _of_group(revision: SourceRevision) -> tuple[RevisionChange, ...]:
    """Changes of a revision without the marks of another mirror, whose store the group was founded anew on."""
    return tuple(change for change in revision.changes if not change.key.startswith(MARKER_PREFIX))
