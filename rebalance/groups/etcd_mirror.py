"""Learners on etcd: a mirror is a store of one member, filled from a snapshot and a watch.

``EtcdMirrorHost`` is the ``MirrorHost`` of one node. Each of its mirrors has a ``MirrorFollower``, which
copies, starts the store, and repeats what one of the group's voters tells it. Whatever fails, the next round
starts from what the store itself says: its own revision is the last one that was repeated, and the group's
revisions follow from there. A copy that cannot be continued is thrown away. Protocol and costs:
``rebalance/tech-notes/mirrors.md``.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from rebalance.core.backoff import Backoff
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.safe_time import Beat, decode_time
from rebalance.core.moves.source_revisions import SourceRevision, batches, still_to_repeat
from rebalance.groups.calls.data_client import SAFE_TIME_KEY
from rebalance.groups.copies.mirror_source import (
    AnswerTooLargeError,
    CopyFailedError,
    MirrorSource,
    SourceLostError,
    fetch_copy,
)
from rebalance.groups.copies.mirror_store import CopyUselessError, MirrorStore
from rebalance.groups.files.etcd_files import StoreNotReadableError, read_store_file
from rebalance.groups.files.etcd_tuning import MIRROR_FLAGS, EtcdTuning
from rebalance.groups.files.reservations import Reservations
from rebalance.groups.process.etcd_member import EtcdMember
from rebalance.hosting.background import Background
from rebalance.hosting.etcd_binary import find_etcd, find_restore
from rebalance.ports.groups import MemberLife, MemberUnavailableError, NoPlaceError
from rebalance.ports.mirrors import FollowedGroup, MirrorStatus

log = structlog.get_logger(__name__)

PAUSE_S = 0.1
LOST_PAUSE_MAX_S = 1.0
RETRY = Backoff(2 * PAUSE_S, 10.0)
START_LIMIT_S = 30.0
LOOK_S = 0.05
TAKE_S = 0.5
SILENCE_S = 5.0
"""A source that tells nothing for so long may be cut off from its group: another one is asked."""
FRAGMENTS_SILENCE_S = 60.0
SILENT_AFTER_S = 2.0
"""A group with a leader tells the time every 500 ms."""
ERRORS_MAX = 3
"""A store that ends with an error so often in a row is not worth repairing: there is the group."""
BATCH_REVISIONS = 500
BATCH_BYTES = 2 << 20


@dataclass(eq=False)
class MirrorFollower:
    """Runs from ``start`` to ``stop``. ``sources`` may change at any time; the copy stays.

    A copy that is of no use goes only when a voter of a group with a leader answers: it may be the last one.
    """

    partition: PartitionId
    group: FollowedGroup
    node: str
    member: EtcdMember
    reservations: Reservations
    copies: asyncio.Semaphore
    background: Background

    def __post_init__(self) -> None:
        self.sources: tuple[str, ...] = ()
        self.complete_revision = 0
        """The last revision that the copy has completely; 0 before it was opened."""
        self._useless = False
        self._heard_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._store: MirrorStore | None = None
        self._turn = 0
        self._leases_due = math.inf
        self._revision = 0
        self._beat = Beat()
        self._following = ""
        self._failure = ""
        self._waits_for = ""
        self._random = random.Random()

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._heard_at = asyncio.get_running_loop().time()
            self._task = asyncio.create_task(self._run(), name=f"mirror {self.partition}")

    async def stop(self) -> None:
        """Ends following; the store's process is the caller's to stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._following = ""

    async def status(self) -> MirrorStatus:
        life, reason, size = MemberLife.RESERVED, "", 0
        if self._has_copy():
            life, reason, answer = await self.member.look()
            size = answer.size_bytes if answer else 0
        elif self.sources and self._task is not None:
            life = MemberLife.STARTING
        failure = self._failure or self._ended()
        if failure or life in (MemberLife.REMOVED, MemberLife.DATA_LOST):
            life, reason = MemberLife.FAILED, failure or reason
        if self._useless and life is MemberLife.RUNNING:
            life = MemberLife.STARTING
        readable = life is MemberLife.RUNNING
        return MirrorStatus(
            life=life,
            client_url=self.member.reservation.endpoints.client_url,
            safe_revision=self._revision if readable else 0,
            safe_time_ms=self._beat.time_ms if readable else 0,
            size_bytes=size,
            reason=reason or self._waits_for,
            source=self._following,
            complete_revision=self.complete_revision if self._has_copy() else 0,
            is_silent=asyncio.get_running_loop().time() - self._heard_at > SILENT_AFTER_S,
            generation=self.member.reservation.generation,
        )

    async def _run(self) -> None:
        retry = RETRY
        while True:
            before = self._revision
            try:
                await self._round()
            except SourceLostError as lost:
                self._waits_for = Cause.SOURCE.text(str(lost))
                log.info("source lost", partition=str(self.partition), error=str(lost))
            except CopyUselessError as useless:
                self.complete_revision = max(self.complete_revision, useless.complete_revision)
                await self._throw_away(str(useless))
            except (MemberUnavailableError, CopyFailedError, OSError) as failed:
                self._failure = f"{type(failed).__name__.removesuffix('Error')}: {failed}"
                log.warning("mirror does not go on", partition=str(self.partition), error=str(failed))
                if self.member.errors >= ERRORS_MAX:
                    await self._throw_away(f"the store ended {self.member.errors} times: {failed}")
            except Exception as error:
                self._failure = Cause.BROKEN.text(f"{error!r}")
                self.background.defect("a mirror", error, partition=str(self.partition))
            retry = retry.fresh() if self._revision > before else retry.failed()
            bounded = retry if self._failure else retry.up_to(LOST_PAUSE_MAX_S)
            pause_s = max(bounded.delay_s(self._random.random()), PAUSE_S)
            # A store that runs on must not end leases while it is not followed.
            until_leases_s = self._leases_due - asyncio.get_running_loop().time()
            await asyncio.sleep(min(pause_s, max(until_leases_s, PAUSE_S)))

    async def _round(self) -> None:
        """Goes on for as long as nothing fails; the next round begins where this one ended."""
        try:
            if self._useless or not self._has_copy():
                await self._copy()
            store = await self._open_store()
            while True:
                await self._follow(store, await self._next_source())
        finally:
            self._following = ""
            opened, self._store = self._store, None
            if opened is not None:
                await opened.close()

    def _has_copy(self) -> bool:
        held = self.reservations.get(self.partition)
        return held is not None and held.launched and self.reservations.has_log(self.partition)

    async def _next_source(self) -> str:
        """The sources in turn; waits while there is none. The first one leads and has most to do: it is
        last."""
        self._following = ""
        while not self.sources:
            self._waits_for = Cause.SOURCE.text("no voter is known")
            await self._keep_leases()
            await asyncio.sleep(PAUSE_S)
        self._turn += 1
        return self.sources[self._turn % len(self.sources)]

    async def _copy(self) -> None:
        async with MirrorSource(await self._next_source(), self.member.tuning.tls) as source, self.copies:
            await source.check(self.partition, generation=self.group.generation, led=self._has_copy())
            await self.member.stop()
            self._following = source.client_url
            # Looked for only now: a node without the tool serves its members, and its mirrors say what is
            # missing.
            tool = find_restore(self.member.tuning.etcd)
            self.complete_revision = 0
            token, generation = self.group.token, self.group.generation
            await fetch_copy(self.partition, self.node, token, generation, source, self.reservations, tool)
        self._revision, self._beat, self._useless = 0, Beat(), False

    async def _open_store(self) -> MirrorStore:
        """Start the process, wait until it answers, and see where it stands."""
        self._leases_due = math.inf
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await self._start_process()
        except TimeoutError as error:
            raise MemberUnavailableError(f"the store does not answer after {START_LIMIT_S:g} s") from error
        held = self.member.reservation
        store = self._store = MirrorStore(held.endpoints, held.copy, self.member.tuning.tls)
        await store.prepare()
        self._leases_due = 0.0
        await self._keep_leases()
        position = await store.position()
        self.complete_revision = position.marked or max(held.copied_revision, position.beat.revision)
        self._check_generation(position.revision)
        self._revision, self._beat = position.safe_revision, position.beat
        self._failure = ""
        return store

    def _check_generation(self, revision: int) -> None:
        """Raises CopyUselessError when the copy is of an earlier life of the group, and beyond what the present
        one began with."""
        held = self.member.reservation
        group = self.group
        if (held.token, held.generation) == (group.token, group.generation):
            return
        if held.token != group.token and revision > group.shared_revision:
            raise CopyUselessError(
                f"generation {group.generation} of the group shares {group.shared_revision} revisions with "
                f"generation {held.generation}, which the mirror has up to {revision}"
            )
        self.reservations.note_group(self.partition, group.token, group.generation)

    async def _start_process(self) -> None:
        while True:
            await self.member.restart()
            life, reason, _ = await self.member.look()
            if life is MemberLife.RUNNING:
                return
            if life is not MemberLife.STARTING:
                raise MemberUnavailableError(reason or life.value)
            await asyncio.sleep(LOOK_S)

    async def _follow(self, store: MirrorStore, url: str) -> None:
        """Repeat what ``url`` tells, until it is silent or no source any more."""
        async with MirrorSource(url, self.member.tuning.tls) as source:
            await source.check(self.partition, generation=self.group.generation)
            try:
                await self._follow_watch(store, source, in_fragments=False)
            except AnswerTooLargeError as too_large:
                log.info("the watch goes on in fragments", partition=str(self.partition), cause=str(too_large))
                await self._follow_watch(store, source, in_fragments=True)

    async def _follow_watch(self, store: MirrorStore, source: MirrorSource, *, in_fragments: bool) -> None:
        position, url = (await store.position()).revision, source.client_url
        clock = asyncio.get_running_loop().time
        silence_s = FRAGMENTS_SILENCE_S if in_fragments else SILENCE_S
        # From the mirror's own revision on: what they have in common must be the same.
        async with source.revisions(position, in_fragments=in_fragments) as feed:
            self._following, heard, met = url, clock(), False
            while url in self.sources and clock() < heard + silence_s:
                await self._keep_leases()
                taken = await feed.take(TAKE_S)
                if not taken:
                    continue
                if not met:
                    await self._check_meeting(store, taken[0], position)
                    met = True
                before = position
                position = await self._repeat(store, taken, position)
                heard = clock()
                if position > before:
                    # What a voter without a leader sends again is no news: else each connection would end the
                    # silence for a while.
                    self._heard_at = heard
                if in_fragments and feed.is_whole:
                    return

    async def _repeat(self, store: MirrorStore, taken: Sequence[SourceRevision], position: int) -> int:
        """Returns the revision that the store stands at then."""
        self._waits_for = ""
        lacking = still_to_repeat(position, taken)
        if lacking is None:
            raise CopyUselessError(f"between {position} and {taken[-1].revision} revisions are missing")
        for batch in batches(lacking, BATCH_REVISIONS, BATCH_BYTES):
            await store.apply(batch)
            self._note(batch)
            position = batch[-1].revision
        return position

    async def _check_meeting(self, store: MirrorStore, first: SourceRevision, position: int) -> None:
        """Raises CopyUselessError when the group's history is not the one that was copied."""
        if first.revision != position or not await store.holds(first):
            raise CopyUselessError(
                f"revision {position} of the mirror is not the group's: it told {first.revision}"
            )
        self._revision = position

    def _note(self, batch: Sequence[SourceRevision]) -> None:
        self._revision = self.complete_revision = batch[-1].revision
        for revision in batch:
            for change in revision.changes:
                if change.key == SAFE_TIME_KEY and change.value is not None:
                    self._beat = Beat(decode_time(change.value), revision.revision)

    async def _throw_away(self, reason: str) -> None:
        self._waits_for = Cause.COPIED_AGAIN.text(reason)
        if not self._useless:
            log.warning("mirror is copied again", partition=str(self.partition), reason=reason)
        self._useless = True
        await self.member.stop()
        self._revision, self._beat, self._leases_due = 0, Beat(), math.inf

    async def _keep_leases(self) -> None:
        store, now = self._store, asyncio.get_running_loop().time()
        if store is not None and now >= self._leases_due:
            self._leases_due = now + await store.keep_leases()

    def _ended(self) -> str:
        """Error that ended the mirror's task unexpectedly; the next ``start`` goes on. Empty as long as it
        runs."""
        task = self._task
        if task is None or not task.done() or task.cancelled():
            return ""
        return Cause.BROKEN.text(f"{task.exception()!r}")


COPIES_AT_ONCE = 2


class EtcdMirrorHost:
    """Host of a node's mirrors. ``reservations``: those of mirrors (``EtcdGroupHost.mirror_places``);
    ``mirror_limit``: most mirrors at once; ``background`` counts unexpected errors.
    Call it from the event-loop thread: the stores die with the thread that started them."""

    def __init__(
        self,
        reservations: Reservations,
        *,
        mirror_limit: int = 100,
        tuning: EtcdTuning | None = None,
        background: Background | None = None,
    ) -> None:
        tuning = tuning or EtcdTuning()
        self._background = background or Background(restarts=False)
        self._reservations = reservations
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
        self._reservations.open()

    def partitions(self) -> frozenset[PartitionId]:
        return self._reservations.partitions()

    async def follow(self, partition: PartitionId, group: FollowedGroup, sources: tuple[str, ...]) -> None:
        held, follower = self._reservations.get(partition), self._followers.get(partition)
        known = follower.group.token if follower else held.token if held else ""
        if held is not None and known not in ("", group.token):
            is_earlier = held.generation < group.generation
            may_go_on = is_earlier and await self._reached(partition) <= group.shared_revision
            await self.stop(partition, destroy=not may_go_on)
            follower = None
        if follower is None:
            self._reserve(partition)
            follower = self._followers[partition] = MirrorFollower(
                partition,
                group,
                self._node,
                self._member(partition),
                self._reservations,
                self._copies,
                self._background,
            )
        follower.sources = sources
        follower.start()

    async def serve(self, partition: PartitionId) -> None:
        if self._reservations.get(partition) is not None:
            await self._member(partition).restart()

    async def _reached(self, partition: PartitionId) -> int:
        """A revision that the mirror has for certain; it may have more."""
        follower = self._followers.get(partition)
        if follower is not None and follower.complete_revision:
            return follower.complete_revision
        try:
            file = self._reservations.data(partition) / "member" / "snap" / "db"
            store = await asyncio.to_thread(read_store_file, file)
        except (StoreNotReadableError, OSError):
            return 0
        return store.revision if store is not None else 0

    async def status(self, partition: PartitionId) -> MirrorStatus | None:
        if self._reservations.get(partition) is None:
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
        if self._reservations.get(partition) is None:
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
        self._reservations.close()

    def _reserve(self, partition: PartitionId) -> None:
        held = self._reservations.partitions()
        if partition not in held and len(held) >= self._mirror_limit:
            raise NoPlaceError(Cause.NODE_MEMBER_LIMIT.text(f"{self._mirror_limit} mirrors are held"))
        self._reservations.reserve(partition)

    def _member(self, partition: PartitionId) -> EtcdMember:
        member = self._members.get(partition)
        if member is None:
            member = self._members[partition] = EtcdMember(
                partition,
                self._node,
                self._reservations,
                self._binary,
                self._tuning,
                self._starts,
                MIRROR_FLAGS,
            )
        return member
