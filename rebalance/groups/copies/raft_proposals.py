"""Many transactions in a fixed order, for one call's wait: proposals over etcd's peer port.

etcd handles concurrent requests of one connection in any order, so plain calls must wait for one another, and
each waits for the disk. Members of a group forward proposals to their leader in one message of raft
(``MsgProp``), whose entries are appended in their order and written to disk together; members of different
versions do so in every rolling upgrade, so the form does not change. A mirror's store is a group of one: what
it is sent here is in its log before any call that is made afterwards. There is no answer: the call that
follows shows what became of it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import httpx

from rebalance.hosting.tls import TlsFiles
from rebalance.hosting.tls_handshakes import closed_handshakes

PROPOSAL = 2
"""``MsgProp`` of raftpb.MessageType."""
TIMEOUT_S = 5.0


class ProposalsFailedError(Exception):
    """Not accepted, or it is not known; the message says what was answered."""


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
    """To the store at ``peer_url``. Identities and version are those that its own status tells."""

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
