"""A recovery founds a group anew on one node: on a member's own data, or on what the node's mirror holds.

The store is made ready *unseen*: a process of its own, on ports that were never published. So before the first
client the store has a key with the new generation, the group's newest common revision is known exactly, and an
interrupted founding is begun again: nothing was acknowledged on it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog
from aetcd import rpc

from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.calls.data_client import (
    LEASE_TTL_S,
    MARKER_PREFIX,
    OPERATION_PREFIX,
    marked_revision,
)
from rebalance.groups.calls.etcd_api import (
    GENERATION_KEY,
    CallFailedError,
    EtcdApi,
    answer,
    delete,
    get,
    get_newest,
    items_of,
    open_channel,
    prefix_end,
    put,
)
from rebalance.groups.copies.mirror_source import MirrorSource, restore_snapshot
from rebalance.groups.copies.mirror_store import end_alarms
from rebalance.groups.files.etcd_files import read_learners
from rebalance.groups.files.etcd_tuning import (
    MEMBER_ENVIRONMENT,
    MIRROR_FLAGS,
    EtcdTuning,
    InitialCluster,
    bound_log,
    last_log_line,
    member_command,
)
from rebalance.groups.files.reservations import Reservations
from rebalance.hosting import child
from rebalance.hosting.child import ETCD
from rebalance.hosting.etcd_binary import find_restore
from rebalance.hosting.free_ports import free_block
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import MemberEndpoints, MemberUnavailableError

log = structlog.get_logger(__name__)

READY_LIMIT_S = 120.0
"""A large store is read once when its process starts."""
LOOK_S = 0.05
CALL_TIMEOUT_S = 15.0
KEYS_PER_CHANGE = 5_000


@dataclass(eq=False)
class Founder:
    """Founder of one partition's group on one node. Methods raise MemberUnavailableError, CallFailedError,
    SourceLostError, CopyFailedError, OSError; a repeat comes to the same."""

    partition: PartitionId
    node: str
    reservations: Reservations
    binary: str
    tuning: EtcdTuning

    async def on_own_data(self, generation: int) -> None:
        """The member, which is stopped, becomes the only one of a group of ``generation``. Log entries above
        the commit index that is on disk are dropped. One that was still to vote becomes another member, with
        what its store has: etcd makes no group of a learner's log."""
        store_file = self.reservations.data(self.partition) / "member" / "snap" / "db"
        own_url = self.reservations.reserve(self.partition).endpoints.peer_url
        if own_url in await asyncio.to_thread(read_learners, store_file):
            await self._on_own_store(generation, store_file)
            return
        data, tls = self.reservations.data(self.partition), self.tuning.tls
        async with self._unseen(data, alone=True) as url, _store(url, tls) as store:
            revision = await store.begin(generation)
        self.reservations.note_founding(self.partition, generation, revision)
        log.info("group founded anew", partition=str(self.partition), generation=generation, revision=revision)

    async def _on_own_store(self, generation: int, store_file: Path) -> None:
        partition, reservations = self.partition, self.reservations
        founded = reservations.founded_data(partition, generation)
        await asyncio.to_thread(shutil.rmtree, founded, True)
        draft = await self._restored(store_file, generation, "--skip-hash-check")
        async with self._unseen(draft, alone=False) as url, _store(url, self.tuning.tls) as store:
            revision = await store.begin(generation)
        draft.rename(founded)
        self._note_alone(generation, revision)
        replaced = reservations.settle_founding(partition)
        if replaced is not None:
            await asyncio.to_thread(shutil.rmtree, replaced, True)
        log.info("group founded anew on a joiner", partition=str(partition), generation=generation)

    async def on_mirror(self, generation: int, client_url: str, complete_revision: int) -> None:
        """The reserved member, which has no data, gets that of the mirror whose store answers at ``client_url``
        and is alone in a group of ``generation``. ``complete_revision``: of a mirror that has repeated nothing
        since its first copy. The mirror stays as it is."""
        partition, reservations = self.partition, self.reservations
        snapshot = reservations.directory(partition) / "founding.snapshot"
        try:
            async with MirrorSource(client_url, self.tuning.tls) as source:
                await source.check(partition)
                size = await source.download(snapshot)
            draft = await self._restored(snapshot, generation)
        finally:
            snapshot.unlink(missing_ok=True)
        async with self._unseen(draft, alone=False) as url, _store(url, self.tuning.tls) as store:
            revision = await store.begin(generation, complete_revision)
            await store.renew_marks()
            await store.drop_leases()
        self._note_alone(generation, revision)
        # Etcd may have made the directory once, and written nothing that counts.
        doomed = reservations.discard_data(partition)
        draft.rename(reservations.data(partition))
        if doomed is not None:
            await asyncio.to_thread(shutil.rmtree, doomed, True)
        log.info(
            "group founded anew on a mirror",
            **{"partition": str(partition), "generation": generation, "revision": revision, "bytes": size},
        )

    async def _restored(self, snapshot: Path, generation: int, *flags: str) -> Path:
        """Make data of this member alone, in a group of ``generation``, of a snapshot's file; return its
        directory."""
        directory = self.reservations.directory(self.partition)
        draft, peer_url = directory / "data.draft", self.reservations.reserve(self.partition).endpoints.peer_url
        await asyncio.to_thread(shutil.rmtree, draft, True)
        tool, token = (*find_restore(self.tuning.etcd), *flags), self._token(generation)
        await restore_snapshot(snapshot, draft, self.node, peer_url, token, tool, directory / "restore.log")
        return draft

    def _note_alone(self, generation: int, revision: int) -> None:
        initial = {self.node: self.reservations.reserve(self.partition).endpoints.peer_url}
        start = (self.partition, self._token(generation), initial, "new")
        self.reservations.prepare(*start, generation=generation, founding_revision=revision)

    def _token(self, generation: int) -> str:
        return f"{self.partition.zone_id}-{self.partition.partition}-{generation}"

    @asynccontextmanager
    async def _unseen(self, data: Path, *, alone: bool) -> AsyncIterator[str]:
        """A process on ``data`` that is no member yet; its client URL, once it leads itself. It ends in order,
        so what was written is on disk then."""
        held = self.reservations.reserve(self.partition)
        peer_port, client_port = free_block(2, held.host)
        base = f"{held.scheme}://{held.host}"
        unseen = MemberEndpoints(f"{base}:{peer_port}", f"{base}:{client_port}")
        tool_log = self.reservations.directory(self.partition) / "founding.log"
        cluster = InitialCluster({self.node: unseen.peer_url}, "unseen", "new")
        # A mirror's store may be larger than a member's; a member that is too large tidies up by itself.
        tuning = replace(self.tuning, quota_bytes=4 * self.tuning.quota_bytes)
        command = member_command(
            self.binary, self.node, data, unseen, cluster, tuning, MIRROR_FLAGS, alone=alone
        )
        bound_log(tool_log)
        process = child.spawn(command, log=tool_log, inherited=ETCD, env=MEMBER_ENVIRONMENT)
        try:
            api = EtcdApi(unseen.client_url, self.tuning.tls)
            try:
                async with asyncio.timeout(READY_LIMIT_S):
                    while not await _leads_itself(api):
                        if (code := process.poll()) is not None:
                            raise MemberUnavailableError(f"EXIT {code}: {last_log_line(tool_log)}")
                        await asyncio.sleep(LOOK_S)
            except TimeoutError as error:
                raise MemberUnavailableError(f"no answer within {READY_LIMIT_S:g} s") from error
            finally:
                await api.close()
            yield unseen.client_url
        finally:
            await asyncio.to_thread(child.stop, process, self.tuning.stop_grace_s)


async def _leads_itself(api: EtcdApi) -> bool:
    """True if the member answers, is the only one in its own list, and leads, so that it can write."""
    try:
        members = await api.members(linearizable=True)
        status = await api.status()
    except CallFailedError:
        return False
    return [member.member_id for member in members] == [
        status.member_id
    ] and status.leader_id == status.member_id


@asynccontextmanager
async def _store(url: str, tls: TlsFiles | None) -> AsyncIterator[FoundingStore]:
    channel = open_channel(url, tls, 64 << 20)
    try:
        await end_alarms(channel)
        yield FoundingStore(channel)
    finally:
        await channel.close()


class FoundingStore:
    """The store of a group that has no client yet. Methods raise CallFailedError."""

    def __init__(self, channel: Any) -> None:
        self._kv = rpc.KVStub(channel)
        self._leases = rpc.LeaseStub(channel)

    async def begin(self, generation: int, complete_revision: int = 0) -> int:
        """Write the generation, and take the bookkeeping of a mirror out, in one revision. Returns the last one
        that this store has in common with earlier lives of the group: of a mirror the last that it has repeated
        (``complete_revision`` where it has repeated none), 0 where nobody can tell."""
        reply = await self._txn([get(GENERATION_KEY), get_newest(MARKER_PREFIX)])
        begun, marked = items_of(reply)
        revision = reply.header.revision
        if begun and begun[0].value == b"%d" % generation:
            # An earlier attempt has come this far.
            return int(begun[0].mod_revision) - 1
        if marked:
            complete = marked_revision(marked[0])
            revision = complete if complete == marked[0].mod_revision else 0
        elif complete_revision:
            revision = min(complete_revision, revision)
        end = prefix_end(MARKER_PREFIX)
        await self._txn([put(GENERATION_KEY, b"%d" % generation), delete(MARKER_PREFIX, end)])
        return int(revision)

    async def renew_marks(self) -> None:
        """Marks of puts get a new lease with all of its time. Those that the mirror has repeated have none."""
        after, lease = OPERATION_PREFIX, 0
        while True:
            end = prefix_end(OPERATION_PREFIX)
            page = rpc.RangeRequest(key=after, range_end=end, limit=KEYS_PER_CHANGE, keys_only=True)
            keys = [item.key for item in (await answer(self._kv.Range(page, timeout=CALL_TIMEOUT_S))).kvs]
            if not keys:
                return
            if not lease:
                grant = rpc.LeaseGrantRequest(TTL=LEASE_TTL_S)
                lease = (await answer(self._leases.LeaseGrant(grant, timeout=CALL_TIMEOUT_S))).ID
            await self._txn([put(key, b"", lease) for key in keys])
            after = keys[-1] + b"\0"

    async def drop_leases(self) -> None:
        """Revoke leases without keys: a mirror keeps leases for as long as its group had keys under them."""
        listed = await answer(self._leases.LeaseLeases(rpc.LeaseLeasesRequest(), timeout=CALL_TIMEOUT_S))
        for lease in listed.leases:
            request = rpc.LeaseTimeToLiveRequest(ID=lease.ID, keys=True)
            if not (await answer(self._leases.LeaseTimeToLive(request, timeout=CALL_TIMEOUT_S))).keys:
                revoke = rpc.LeaseRevokeRequest(ID=lease.ID)
                await answer(self._leases.LeaseRevoke(revoke, timeout=CALL_TIMEOUT_S))

    async def _txn(self, operations: Sequence[Any]) -> Any:
        return await answer(self._kv.Txn(rpc.TxnRequest(success=operations), timeout=CALL_TIMEOUT_S))
