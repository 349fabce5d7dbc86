"""Learners on etcd: a mirror is a store of one member, filled from a snapshot and a watch.

``EtcdMirrorHost`` is the ``MirrorHost`` of one node. Protocol and costs: ``rebalance/tech-notes/mirrors.md``.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.files.etcd_store_file import StoreNotReadableError, read_store_file
from rebalance.groups.files.etcd_tuning import MIRROR_FLAGS, EtcdTuning
from rebalance.groups.files.reservations import Reservations
from rebalance.groups.mirrors.mirror_follower import FollowedGroup, MirrorFollower
from rebalance.groups.process.etcd_member import EtcdMember
from rebalance.hosting.background import Background
from rebalance.hosting.etcd_binary import find_etcd
from rebalance.ports.groups import NoPlaceError
from rebalance.ports.mirrors import MirrorStatus

COPIES_AT_ONCE = 2


class EtcdMirrorHost:
    """``book``: where they are kept (``EtcdGroupHost.mirror_places``); ``mirror_limit``: most mirrors at once;
    ``background`` counts what nothing expected.
    Call it from the event-loop thread: the stores die with the thread that started them."""

    def __init__(
        self,
        book: Reservations,
        *,
        mirror_limit: int = 100,
        tuning: EtcdTuning | None = None,
        background: Background | None = None,
    ) -> None:
        tuning = tuning or EtcdTuning()
        self._background = background or Background(restarts=False)
        self._book = book
        self._mirror_limit = mirror_limit
        # The marker's history comes on top of the group's.
        self._tuning = replace(tuning, quota_bytes=2 * tuning.quota_bytes)
        self._starts = asyncio.Semaphore(tuning.starts_at_once)
        self._copies = asyncio.Semaphore(COPIES_AT_ONCE)
        self._followers: dict[PartitionId, MirrorFollower] = {}
        self._members: dict[PartitionId, EtcdMember] = {}
        self._node = ""
        self._binary = ""

    def open(self, node: str) -> None:
        """Raises FileNotFoundError, naming what to install, without etcd."""
        self._node, self._binary = node, (self._tuning.etcd or find_etcd()).path
        self._book.open()

    def partitions(self) -> frozenset[PartitionId]:
        return self._book.partitions()

    async def follow(
        self,
        partition: PartitionId,
        group: str,
        sources: tuple[str, ...],
        *,
        generation: int = 0,
        shared_revision: int = 0,
    ) -> None:
        held, follower = self._book.get(partition), self._followers.get(partition)
        known = follower.group.token if follower else held.token if held else ""
        if held is not None and known not in ("", group):
            may_go_on = held.generation < generation and await self._reached(partition) <= shared_revision
            await self.stop(partition, destroy=not may_go_on)
            follower = None
        if follower is None:
            self._reserve(partition)
            follower = self._followers[partition] = MirrorFollower(
                partition,
                FollowedGroup(group, generation, shared_revision),
                self._node,
                self._member(partition),
                self._book,
                self._copies,
                self._background,
            )
        follower.sources = sources
        follower.start()

    async def serve(self, partition: PartitionId) -> None:
        if self._book.get(partition) is not None:
            await self._member(partition).restart()

    async def _reached(self, partition: PartitionId) -> int:
        """A revision that the mirror has for certain; it may have more."""
        follower = self._followers.get(partition)
        if follower is not None and follower.complete_revision:
            return follower.complete_revision
        try:
            file = self._book.data(partition) / "member" / "snap" / "db"
            store = await asyncio.to_thread(read_store_file, file)
        except (StoreNotReadableError, OSError):
            return 0
        return store.revision if store is not None else 0

    async def status(self, partition: PartitionId) -> MirrorStatus | None:
        if self._book.get(partition) is None:
            return None
        follower = self._followers.get(partition)
        if follower is not None:
            return await follower.status()
        life, reason, _ = await self._member(partition).look()
        held = self._member(partition).reservation
        return MirrorStatus(
            life, held.endpoints.client_url, reason=reason, is_silent=True, generation=held.generation
        )

    async def stop(self, partition: PartitionId, *, destroy: bool) -> None:
        follower = self._followers.pop(partition, None)
        if follower is not None:
            await follower.stop()
        if self._book.get(partition) is None:
            return
        member = self._member(partition)
        if destroy:
            await member.destroy()
            self._members.pop(partition, None)
        else:
            await member.stop()

    async def close(self) -> None:
        await asyncio.gather(*(self.stop(member, destroy=False) for member in list(self._members)))
        self._members.clear()
        self._book.close()

    def _reserve(self, partition: PartitionId) -> None:
        held = self._book.partitions()
        if partition not in held and len(held) >= self._mirror_limit:
            raise NoPlaceError(Cause.NODE_MEMBER_LIMIT.text(f"{self._mirror_limit} mirrors are held"))
        self._book.reserve(partition)

    def _member(self, partition: PartitionId) -> EtcdMember:
        member = self._members.get(partition)
        if member is None:
            member = self._members[partition] = EtcdMember(
                partition, self._node, self._book, self._binary, self._tuning, self._starts, MIRROR_FLAGS
            )
        return member
