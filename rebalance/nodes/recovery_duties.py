"""Duties of a node in a recovery: founding a group anew on its own member, and reporting how far its copy
goes."""

from __future__ import annotations

import asyncio

import structlog

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    GroupRecord,
    LogPosition,
    Stage,
)
from rebalance.core.keyspace.txn import Compare, Delete, Operation, Put, Txn, absent, unchanged
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.ports.groups import MemberLife, MemberStatus, MemberUnavailableError
from rebalance.ports.mirrors import MirrorHost

log = structlog.get_logger(__name__)

LEADERLESS_S = 2.0
"""An election takes less: what lasts longer may be a lost majority."""
LOOK_AGAIN_S = 1.0
WITH_DATA = frozenset((MemberLife.STOPPED, MemberLife.STARTING, MemberLife.RUNNING, MemberLife.FAILED))


class RecoveryDuties:
    """One node's. ``found_*`` return True when the group is written to the metastore as founded."""

    def __init__(self, node: NodeContext, mirrors: MirrorHost) -> None:
        self._node = node
        self._mirrors = mirrors
        self._leaderless: dict[PartitionId, float] = {}
        self._restarted: dict[PartitionId, int] = {}
        self._looked: dict[PartitionId, tuple[float, LogPosition | None]] = {}

    async def found_alone(self, view: NodePartitionView, *, on_mirror: bool = False) -> bool:
        """Pending's generation, on the data of the own member (``GroupHost.found_alone``) or ``on_mirror``.
        Repeated after a crash anywhere it comes to the same: the member's own files say whether it is founded
        already."""
        partition, pending = view.partition, view.pending
        if pending is None:
            return False
        try:
            if not await self._founded(partition, pending.value.forced, on_mirror=on_mirror):
                return False
            (own,) = await self._node.host.configuration(partition, linearizable=True)
            status = await self._node.host.status(partition)
        except MemberUnavailableError as error:
            log.info("group not founded yet", partition=str(partition), error=str(error))
            return False
        if status is None or not status.is_leader:
            return False
        configuration = ConfigurationRecord(
            term=status.term,
            leader=self._node.name,
            stage=Stage.STABLE,
            members={self._node.name: ConfiguredMember(own.member_id, own.role, own.peer_url)},
            size_bytes=view.configuration.value.size_bytes if view.configuration else 0,
            generation=pending.value.forced,
        )
        return await self._write(
            view,
            status.endpoints.peer_url,
            Put(view.keys.configuration, configuration.encode()),
            status.founding_revision,
        )

    async def _founded(self, partition: PartitionId, generation: int, *, on_mirror: bool) -> bool:
        if not on_mirror:
            return await self._node.host.found_alone(partition, generation)
        mirror = await self._mirrors.status(partition)
        if mirror is None or not mirror.complete_revision:
            why = mirror.reason or mirror.life.value if mirror is not None else "there is none"
            raise MemberUnavailableError(f"the mirror has no complete copy: {why}")
        await self._mirrors.serve(partition)
        return await self._node.host.found_from_mirror(
            partition, generation, mirror.client_url, mirror.complete_revision
        )

    async def found_empty(self, view: NodePartitionView, status: MemberStatus) -> bool:
        """Name the reserved member as the group's first one, as no node has a copy; it starts as such. Not
        while a node is back that was not there when that was decided: it may have a copy."""
        gone = view.pending.value.absent if view.pending is not None else ()
        still_gone = tuple(absent(self._node.keyspace.node(name)) for name in gone)
        written = await self._write(
            view, status.endpoints.peer_url, Delete(view.keys.configuration), 0, still_gone
        )
        if not written:
            log.info("group not founded empty", partition=str(view.partition), unless_back=gone)
        return written

    async def noted_again(self, view: NodePartitionView, status: MemberStatus | None) -> bool:
        """Bring the ``group`` key up to the generation that the own member leads; True if it was changed. A
        metastore that was restored from before a reset names an earlier one: clients that go by it are refused,
        and members of the life that was given up would start. Not while a recovery founds another group."""
        group, pending = view.group, view.pending
        if status is None or not status.is_leader or group is None or view.stable is None:
            return False
        if status.generation <= group.value.generation or (pending is not None and pending.value.forced):
            return False
        record = self._record_of(view, status.endpoints.peer_url, status.generation, status.founding_revision)
        guards = (
            unchanged(view.keys.group, group.mod_revision),
            unchanged(view.keys.pending, pending.mod_revision if pending is not None else 0),
        )
        result = await self._node.metastore.commit(Txn(guards, (Put(view.keys.group, record.encode()),)))
        if result.succeeded:
            before = group.value.generation
            log.warning(
                "the metastore named an earlier generation of the group",
                **{"partition": str(view.partition), "generation": status.generation, "before": before},
            )
        return result.succeeded

    def _record_of(
        self, view: NodePartitionView, peer_url: str, generation: int, founding_revision: int
    ) -> GroupRecord:
        token = f"{view.partition.zone_id}-{view.partition.partition}-{generation}"
        engine = self._node.host.engine(view.partition)
        before = view.group.value if view.group is not None else GroupRecord("", {})
        return before.founded_anew(token, {self._node.name: peer_url}, generation, founding_revision, engine)

    async def position(self, partition: PartitionId, status: MemberStatus | None) -> LogPosition | None:
        """Return how far the own copy goes, once its group has had no leader for ``LEADERLESS_S``."""
        if status is None or status.life not in WITH_DATA or status.leader:
            self._leaderless.pop(partition, None)
            self._looked.pop(partition, None)
            return None
        now = asyncio.get_running_loop().time()
        if now - self._leaderless.setdefault(partition, now) < LEADERLESS_S:
            return None
        at, position = self._looked.get(partition, (float("-inf"), None))
        if now - at > LOOK_AGAIN_S:
            position = await self._node.host.log_position(partition)
            self._looked[partition] = now, position
        return position

    async def restarted(self, view: NodePartitionView) -> bool:
        """Stop the member where a restart is asked for, with clean-up its data too; rounds that follow start it
        as ever. The key goes last, so that a node which dies on the way does it again. False: nobody asks, or
        it was done a moment ago."""
        request = view.restarts.get(self._node.name)
        partition = view.partition
        if request is None or self._restarted.get(partition) == request.mod_revision:
            return False
        if partition in self._node.host.partitions():
            await self._node.host.stop(partition, destroy=request.value.cleanup)
        key = self._node.keyspace.restart(partition, self._node.name)
        done: list[Operation] = [Delete(key)]
        if request.value.cleanup:
            done.append(Delete(self._node.keyspace.member(partition, self._node.name)))
        await self._node.metastore.commit(Txn((unchanged(key, request.mod_revision),), tuple(done)))
        self._restarted[partition] = request.mod_revision
        log.info("member restarted by request", partition=str(partition), cleanup=request.value.cleanup)
        return True

    async def _write(
        self,
        view: NodePartitionView,
        peer_url: str,
        configuration: Operation,
        founding_revision: int,
        guards: tuple[Compare, ...] = (),
    ) -> bool:
        """Guarded by pending: a later recovery may have chosen another node."""
        pending = view.pending
        if pending is None:
            return False
        generation = pending.value.forced
        group = self._record_of(view, peer_url, generation, founding_revision)
        guards = (
            *guards,
            unchanged(view.keys.pending, pending.mod_revision),
            unchanged(view.keys.group, view.group.mod_revision if view.group else 0),
        )
        result = await self._node.metastore.commit(
            Txn(guards, (Put(view.keys.group, group.encode()), configuration))
        )
        if result.succeeded:
            log.warning("group founded anew", partition=str(view.partition), generation=generation)
        return result.succeeded
