"""One member of a group on this node: its process, its files and what it answers.

Its process starts under the node's fence, and becomes the member only once it is guarded (``start_guarded``).

A member whose store has reached its quota tidies up by itself (``SpaceKeeper``). etcd answers a full store
with an alarm that stays until somebody takes it back, and the whole group refuses puts meanwhile. Most of a
full store is history: compaction forgets it, and defragmentation gives the space back. Each node does so for
its own member, and takes back its own member's alarm only.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from rebalance.core.backoff import Backoff
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import LogPosition
from rebalance.groups.calls.etcd_api import CallFailedError, EtcdApi, EtcdMemberEntry, EtcdStatus
from rebalance.groups.calls.group_guard import lists_itself
from rebalance.groups.copies.founding import Founder
from rebalance.groups.copies.mirror_source import CopyFailedError, SourceLostError
from rebalance.groups.files.etcd_files import StoreNotReadableError, read_log_position, read_store_file
from rebalance.groups.files.etcd_tuning import (
    MEMBER_ENVIRONMENT,
    EtcdTuning,
    InitialCluster,
    bound_log,
    cause_in,
    last_log_line,
    member_command,
)
from rebalance.groups.files.reservations import Reservation, Reservations
from rebalance.groups.files.snapshot_flush import flush_while, size_of
from rebalance.hosting import child
from rebalance.hosting.child import ETCD
from rebalance.ports.fence import MemberGuard, NoGuard, WatchLostError
from rebalance.ports.groups import MemberLife, MemberUnavailableError
from rebalance.ports.metric_rows import Metric


class StartRefusedError(Exception):
    """The message is the reason that the member's record shows."""


async def start_guarded(
    guard: MemberGuard,
    partition: PartitionId,
    command: Sequence[str],
    log_path: Path,
    env: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start a member's process, which does nothing until ``guard`` guards it. Call it after ``guard.refusal``,
    which may take its time. Raises StartRefusedError; no process is left then, or when it is cancelled."""
    held = child.spawn_held(command, log=log_path, inherited=ETCD, env=env)
    try:
        await guard.guard(partition, held.process.pid)
    except WatchLostError as error:
        held.abandon()
        reason = str(error)
        raise StartRefusedError(reason if reason.startswith("FENCED") else Cause.FENCED.text(reason)) from error
    except BaseException:
        held.abandon()
        raise
    held.release()
    return held.process


log = structlog.get_logger(__name__)

ROOM = 0.9
"""The alarm is taken back when less of the quota than this is in use."""
PAUSE_S = 10.0
"""Between two tries: a store that is full of data stays so until somebody gives it a larger quota."""


class SpaceKeeper:
    """Keeper of one member's room for data. Call ``look`` as often as its status is read, and ``stop`` before
    its process ends."""

    def __init__(self, partition: PartitionId, quota_bytes: int) -> None:
        self._partition = partition
        self._quota = quota_bytes
        self._task: asyncio.Task[None] | None = None
        self._not_before = 0.0

    def look(self, api: EtcdApi, status: EtcdStatus) -> str:
        """Begins to tidy up when the member's alarm is raised. Returns why it takes no puts, else empty."""
        if not status.no_space:
            return ""
        running = self._task is not None and not self._task.done()
        if not running and time.monotonic() >= self._not_before:
            self._not_before = time.monotonic() + PAUSE_S
            self._task = asyncio.create_task(self._tidy(api, status.member_id))
        held = f"{status.in_use_bytes / 2**20:.0f} of {self._quota / 2**20:.0f} MiB"
        return Cause.FULL.text(f"{held} are in use, the partition takes no puts")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _tidy(self, api: EtcdApi, member_id: int) -> None:
        try:
            await api.compact()
            await api.defragment()
            status = await api.status()
            if status.in_use_bytes < ROOM * self._quota:
                await api.take_back_alarm(member_id)
                log.warning("full member has room again", partition=str(self._partition))
        except CallFailedError as failed:
            log.warning("full member not tidied up yet", partition=str(self._partition), error=str(failed))


RESTART = Backoff(0.5, 15.0)
STUCK_AFTER_S = 0.6
DISK_FREE_MIN = 8 << 20
"""A member with less than this is said to have ended for want of it."""
APPLIED_AFTER_S = 2.0
FOUNDING_LOOK_S = 0.1
FOUNDING_FAILS = (
    *(MemberUnavailableError, SourceLostError, CopyFailedError, OSError),
    StoreNotReadableError,
)
HEALTHY_AFTER_S = 30.0
"""A process that ran this long starts its back-off anew when it ends."""


@dataclass(eq=False)
class EtcdMember:
    """Call from the event-loop thread only: the process dies with the thread that spawned it."""

    partition: PartitionId
    node: str
    reservations: Reservations
    binary: str
    tuning: EtcdTuning
    starts: asyncio.Semaphore
    flags: Mapping[str, int] = field(default_factory=dict)
    guard: MemberGuard | None = None

    def __post_init__(self) -> None:
        self.errors = 0
        """Number of times in a row that the process ended by itself with an error; a run of more than
        HEALTHY_AFTER_S begins the count anew."""
        self._guard: MemberGuard = self.guard or NoGuard()
        self._fenced = ""
        """Reason why the guard did not let the process start, or ended it; empty: neither."""
        self._process: subprocess.Popen[bytes] | None = None
        self._api: EtcdApi | None = None
        self._exit_code: int | None = None
        self._started_at = 0.0
        self._log_begun = 0
        self._cause = ""
        self._random = random.Random()
        self._restart = RESTART
        self._not_before = 0.0
        self._names: dict[int, str] = {}
        self._unstuck = False
        self._space = SpaceKeeper(self.partition, self.tuning.quota_bytes)
        self._founding: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None

    @property
    def reservation(self) -> Reservation:
        held = self.reservations.get(self.partition)
        if held is None:
            raise MemberUnavailableError(f"no member of {self.partition} is reserved here")
        return held

    @property
    def log_path(self) -> Path:
        return self.reservations.directory(self.partition) / "etcd.log"

    @property
    def api(self) -> EtcdApi:
        """Raises MemberUnavailableError while no process runs."""
        if self._api is None or not self._runs():
            raise MemberUnavailableError(f"the member of {self.partition} is not running")
        return self._api

    async def start(self, token: str, initial: Mapping[str, str], state: str, generation: int = 0) -> None:
        """First start of a reserved member. Repeated with another ``initial`` as long as etcd wrote nothing: a
        member that joins must know exactly the list that its group has."""
        if self._runs() or not self._may_run:
            return
        self.reservations.prepare(self.partition, token, dict(initial), state, generation=generation)
        await self._spawn()

    async def restart(self) -> None:
        has_data = self.reservation.launched and self.reservations.has_log(self.partition)
        if has_data and self._may_run and not self._runs():
            await self._spawn()

    async def found_alone(self, generation: int) -> bool:
        """One step towards being the only member of a group of ``generation``, on the data that is here; True
        once it is. The work goes on behind it (``Founder``). Raises MemberUnavailableError when it has failed;
        a repeat begins anew."""
        # While a founding tidies up no member starts, though all is on disk.
        if self._founding is None:
            if self._is_founded(generation):
                await self.restart()
                return True
            if not self.reservations.has_log(self.partition):
                raise MemberUnavailableError(f"the data of {self.partition} is gone")
        return await self._founded(lambda: self._founder.on_own_data(generation))

    async def found_from_mirror(self, generation: int, client_url: str, complete_revision: int) -> bool:
        """The same for a reserved member, on the data of the node's mirror, whose store answers at
        ``client_url``."""
        if self._founding is None:
            if self._is_founded(generation):
                await self.restart()
                return True
            if self.reservations.has_log(self.partition):
                raise MemberUnavailableError(
                    f"{self.partition} has data of generation {self.reservation.generation} here"
                )
        return await self._founded(lambda: self._founder.on_mirror(generation, client_url, complete_revision))

    def _is_founded(self, generation: int) -> bool:
        self.reservations.settle_founding(self.partition)
        return self.reservation.generation == generation and self.reservations.has_log(self.partition)

    @property
    def _founder(self) -> Founder:
        return Founder(self.partition, self.node, self.reservations, self.binary, self.tuning)

    async def _founded(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Always False: what is on disk says whether it is done."""
        if self._founding is None:
            # In order: what the member knows to be decided is on disk then.
            await self.stop()
            self._founding = asyncio.create_task(begin(), name=f"founding {self.partition}")
        founding = self._founding
        await asyncio.wait((founding,), timeout=FOUNDING_LOOK_S)
        if founding.done() and not founding.cancelled():
            self._founding, error = None, founding.exception()
            if isinstance(error, FOUNDING_FAILS):
                raise MemberUnavailableError(f"founding failed: {error}") from error
            if error is not None:
                raise error
        return False

    async def log_position(self) -> LogPosition | None:
        """Position of the log on disk and, when the process answers, of what it has applied; None: there is no
        log. Without a leader a process applies all that it knows to be decided when it starts, and its store is
        written within a moment: what the log has beyond it changed nothing."""
        orderly = self._runs()
        member = self.reservations.data(self.partition) / "member"
        replay = not orderly or time.monotonic() - self._started_at < APPLIED_AFTER_S
        position = await asyncio.to_thread(_position_on_disk, member, orderly=orderly, replay=replay)
        if position is None or not orderly:
            return position
        try:
            status = await self.api.status()
        except MemberUnavailableError:
            return position
        applied = status.applied_index
        is_exact = applied >= max(position.committed, status.commit_index)
        revision = status.revision if is_exact else max(position.revision, status.revision)
        return LogPosition(max(position.committed, applied), max(position.last, applied), orderly, revision)

    async def stop(self) -> None:
        """Ends a founding that is under way, too."""
        process, self._process = self._process, None
        self._fenced = ""
        tasks = [task for task in (self._flushing, self._founding) if task is not None]
        self._flushing = self._founding = None
        try:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close_api()
        finally:
            # Nobody else knows the process any more, also when the caller is cancelled.
            if process is not None and process.poll() is None:
                await asyncio.to_thread(child.stop, process, self.tuning.stop_grace_s)
            if process is not None:
                self._guard.ended(process.pid)
        self._exit_code = None
        self._not_before = 0.0
        self.errors = 0

    async def destroy(self) -> None:
        await self.stop()
        doomed = self.reservations.forget(self.partition)
        if doomed is not None:
            await asyncio.to_thread(shutil.rmtree, doomed, True)

    async def set_aside(self) -> None:
        await self.stop()
        self.reservations.set_aside(self.partition)

    async def look(self) -> tuple[MemberLife, str, EtcdStatus | None]:
        """The member's life, the reason for it, and its status when it answers."""
        if self._lacks_tls:
            return (
                MemberLife.FAILED,
                Cause.NO_CERTIFICATE.text("it speaks TLS, and its node was given no certificate"),
                None,
            )
        if not self._runs():
            return (*self._life_without_process(), None)
        api = self.api
        try:
            status = await api.status()
        except MemberUnavailableError as failure:
            await self._restart_if_stuck_in_join()
            return MemberLife.STARTING, str(failure), None
        if not self._runs():
            # It was stopped, or it ended, after it had answered.
            return (*self._life_without_process(), None)
        self.reservations.note_log(self.partition)
        self._log_begun = min(self._log_begun, bound_log(self.log_path))
        return MemberLife.RUNNING, self._space.look(api, status), status

    def received_bytes(self) -> int:
        held = self.reservation
        if held.state != "existing" or held.wrote_log or not self._runs():
            return 0
        # One more than there is: nothing has come yet, and it waits.
        return 1 + size_of(self.reservations.data(self.partition) / "member" / "snap")

    async def entries(self, *, linearizable: bool) -> tuple[EtcdMemberEntry, ...]:
        """The member list. Raises CallFailedError or MemberUnavailableError."""
        entries = await self.api.members(linearizable=linearizable)
        self._names = {entry.member_id: entry.name for entry in entries}
        return entries

    async def name_of(self, member_id: int) -> str:
        """Name of a member by id, from the last list seen; empty when it is unknown."""
        if member_id and not self._names.get(member_id):
            try:
                await self.entries(linearizable=False)
            except MemberUnavailableError:
                return ""
        return self._names.get(member_id, "")

    async def _restart_if_stuck_in_join(self) -> None:
        """A member announces itself through raft and serves clients once it has applied that entry. When the
        entry reaches it inside a snapshot, etcd does not notice and serves only after its request timed out
        (7 s and more). The member list on its peer port tells; a restart ends the wait."""
        held, ran_s = self.reservation, time.monotonic() - self._started_at
        if held.wrote_log or held.state != "existing" or ran_s < STUCK_AFTER_S or self._unstuck:
            return
        process = self._process
        peer_url, tls = held.endpoints.peer_url, self.tuning.tls
        if process is None or not await asyncio.to_thread(lists_itself, peer_url, self.node, tls):
            return
        self._unstuck = True
        log.info("member joined by a snapshot, restarted to serve", partition=str(self.partition))
        await self.stop()
        await self._spawn()

    @property
    def _may_run(self) -> bool:
        """True if the process may be started now. While the group is founded the data is not the member's
        yet."""
        is_founding = self._founding is not None and not self._founding.done()
        return not is_founding and not self._lacks_tls and time.monotonic() >= self._not_before

    @property
    def _lacks_tls(self) -> bool:
        return self.reservation.scheme == "https" and self.tuning.tls is None

    def _runs(self) -> bool:
        if self._process is None:
            return False
        code, pid = self._process.poll(), self._process.pid
        if code is None:
            return True
        self._process = None
        self._fenced = self._guard.ended(pid)
        if self._fenced and code == -signal.SIGKILL:
            log.warning("member was ended", partition=str(self.partition), reason=self._fenced)
        else:
            self._note_exit(code)
        return False

    def _note_exit(self, code: int) -> None:
        self._exit_code = code
        self._cause = cause_in(self.log_path, self._log_begun) if code > 0 else ""
        ran_s = time.monotonic() - self._started_at
        self.errors = (0 if ran_s > HEALTHY_AFTER_S else self.errors) + (code > 0)
        self._restart = (RESTART if ran_s > HEALTHY_AFTER_S else self._restart).failed()
        delay_s = self._restart.delay_s(self._random.random())
        self._not_before = time.monotonic() + delay_s
        log.warning(
            "member process ended",
            partition=str(self.partition),
            code=code,
            ran_s=round(ran_s, 1),
            retry_s=round(delay_s, 1),
        )

    def _life_without_process(self) -> tuple[MemberLife, str]:
        held = self.reservation
        failed = self._exit_reason()
        if not self.reservations.has_log(self.partition):
            if held.wrote_log:
                return MemberLife.DATA_LOST, Cause.DATA_LOST.text("the member was started and its log is gone")
            return MemberLife.RESERVED, failed or self._fenced
        if self._exit_code is None:
            return MemberLife.STOPPED, self._fenced
        if self._exit_code == 0:
            # Nobody stopped it: etcd ends with 0 when it learns that the group removed it.
            return MemberLife.REMOVED, "removed by its group"
        return MemberLife.FAILED, failed

    def _exit_reason(self) -> str:
        """Empty for a member that did not fail."""
        code = self._exit_code or 0
        if code < 0:
            # Its log ends in the middle of ordinary work and explains nothing.
            return f"KILLED by signal {-code}"
        if code and shutil.disk_usage(self.reservations.directory(self.partition)).free < DISK_FREE_MIN:
            # Its log is on the same disk and may end in the middle of a line.
            return Cause.DISK_FULL.text(f"the member ended with code {code}, it has no space left to write to")
        if self._cause:
            return self._cause
        return f"EXIT {code}: {last_log_line(self.log_path)}" if code else ""

    async def _spawn(self) -> None:
        held = self.reservation
        command = member_command(
            self.binary,
            self.node,
            self.reservations.data(self.partition),
            held.endpoints,
            InitialCluster(held.initial, held.token, held.state),
            self.tuning,
            self.flags,
        )
        # Not in one of the few places for starts: members that the fence does not concern need them too.
        if reason := await self._guard.refusal(self.partition, self.reservation.generation):
            self._fenced = reason
            return
        async with self.starts:
            self._log_begun = bound_log(self.log_path)
            await self._close_api()
            try:
                self._process = await start_guarded(
                    self._guard, self.partition, command, self.log_path, env=MEMBER_ENVIRONMENT
                )
            except StartRefusedError as refused:
                self._fenced = str(refused)
                return
            self._fenced = ""
            self.tuning.measures.count(Metric.NODE_STARTS)
            if self._exit_code is not None:
                self.tuning.measures.count(Metric.NODE_RESTARTS)
            self._started_at = time.monotonic()
            self._exit_code = None
            self._api = EtcdApi(held.endpoints.client_url, self.tuning.tls)
            self._flush_what_arrives()
            # The start of a process is the expensive part: the next one waits until this one has read its data.
            await asyncio.sleep(0.05)
        log.info(
            "member process started",
            partition=str(self.partition),
            pid=self._process.pid if self._process else 0,
            state=held.state,
            peer_url=held.endpoints.peer_url,
        )

    def _flush_what_arrives(self) -> None:
        """Flush a snapshot that arrives while the member joins: in the ordinary course of things only such a
        member is sent a whole one."""
        held, process = self.reservation, self._process
        if held.state != "existing" or held.wrote_log or process is None:
            return

        def joins() -> bool:
            now = self.reservations.get(self.partition)
            return process.poll() is None and now is not None and not now.wrote_log

        snapshots = self.reservations.data(self.partition) / "member" / "snap"
        self._flushing = asyncio.create_task(flush_while(joins, snapshots))

    async def _close_api(self) -> None:
        await self._space.stop()
        api, self._api = self._api, None
        if api is not None:
            await api.close()


def _position_on_disk(member: Path, *, orderly: bool, replay: bool) -> LogPosition | None:
    """A store that cannot be read leaves the revision unknown."""
    try:
        store = read_store_file(member / "snap" / "db")
    except (StoreNotReadableError, OSError) as error:
        log.warning("a copy does not tell its revision", directory=str(member), error=str(error))
        store = None
    return read_log_position(member / "wal", orderly=orderly, store=store, replay=replay)
