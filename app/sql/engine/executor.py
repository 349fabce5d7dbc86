"""The synchronous catalog behind an asyncio face: it works in threads, and never blocks the event loop. Old
rows of the catalog are deleted here as well, a few at a time.

One thread commits. Scripts that arrive while it works wait together and are committed together, in rounds of
some commands that all users share. Its other work is done for users in turns, as is that of the thread that
reads snapshots. Logins have a thread of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from app.requests.context import current_actor, current_caller
from app.security.administrator import RECOVERED
from app.security.statement_policy import authorise_restored, authorised, visible_catalog
from app.sql.plan.desired_state import CatalogPlan, FileCommand, desired_catalog, plan_changes
from app.sql.plan.forecast import PlannedStatement, judged
from app.sql.plan.member_counts import MemberCounts
from app.sql.statements.results import ScriptError, StatementResult
from app.sql.statements.script_reader import to_the_end
from app.sql.statements.statement_line import next_statement_id
from catalog.core.audit import AuditEntry, AuditFilter, AuditRecord, Channel
from catalog.core.authorisation import Caller, Grants, Principal
from catalog.core.credentials import NO_BASIS, AccessToken, LoginBasis
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.messages import AlterUser, Command, CreateUser, PrincipalCommand
from catalog.core.metastore_mark import AdoptedVersion, CatalogTruth, MetastoreMark
from catalog.core.principal_changes import check_password
from catalog.core.quorum import default_quorum
from catalog.core.retention import Retention, Trimmed
from catalog.core.snapshot import (
    CatalogSnapshot,
    Change,
    Topology,
    ZoneDefaults,
    check_member_limits,
    check_rebalancing,
    data_nodes_of,
    error_for,
)
from catalog.core.statement_batch import CommandScript, ScriptRun, StatementStamp, fair_round
from catalog.core.zone import NO_ZONE, Origin, Zone, ZoneId, ZoneIntent
from catalog.filters.json_path import JSON_PATH
from catalog.ports import HashPassword, OutboxRow, VersionRecord
from catalog.service import VERSIONS_MAX, CatalogService
from catalog.store.catalog_store import CatalogStore
from catalog.store.credential_rows import SqlSessions
from catalog.store.statement_log import SqlStatementLog
from rebalance.hosting.fair_queue import FairThread

HISTORY_PAGE = 10_000
RECOVERIES_MAX = 10
ROUNDS = "rounds"
"""Name of the rounds of commits among the users for whom the catalog's thread works: no user is a text."""

T = TypeVar("T")
_Waiting = tuple[ScriptRun, asyncio.Future[ScriptRun]]


class CatalogExecutor:
    """One server's catalog; implements the relay's ``AsyncOutbox`` and the guard's ``AsyncMarks`` too.

    ``counts`` answers how many members zones need, for the limit of each node. ``hash_password``: without it
    statements that hold a password are refused. ``requires_login``: without a login nothing is changed, except
    by the server itself under a name of its own (``Channel.SYSTEM``). ``requires_reason``: every change needs a
    reason.
    """

    def __init__(
        self,
        url: str,
        defaults: ZoneDefaults,
        counts: MemberCounts,
        hash_password: HashPassword | None = None,
        *,
        requires_login: bool = False,
        requires_reason: bool = False,
    ) -> None:
        self._url = url
        self._requires_login = requires_login
        self.requires_reason = requires_reason
        self._hash_password = hash_password
        self._defaults = defaults
        self._counts = counts
        self.principal_changes = 0
        """Grows when this server has changed users, roles or grants."""
        self._thread = FairThread("catalog")
        self._reader = FairThread("catalog reader")
        self._logins = ThreadPoolExecutor(1, thread_name_prefix="logins")
        self._arrived: deque[_Waiting] = deque()
        self._open: list[_Waiting] = []
        """Scripts that are not over yet; for the thread alone."""
        self._is_round_due = False
        self._history: list[VersionRecord] = []
        self._require_writable: Callable[[], None] = lambda: None
        self._may_rebalance: Callable[[], bool] = lambda: True
        self._held_zone: Callable[[], ZoneId] = lambda: NO_ZONE

    def guard(
        self,
        require_writable: Callable[[], None],
        may_rebalance: Callable[[], bool] = lambda: True,
        held_zone: Callable[[], ZoneId] = lambda: NO_ZONE,
    ) -> None:
        """``require_writable`` raises StoreError while statements may change nothing. ``may_rebalance``:
        whether they may move data; ``held_zone``: as ``CatalogService`` has it. Both are asked in the catalog's
        thread."""
        self._require_writable = require_writable
        self._may_rebalance = may_rebalance
        self._held_zone = held_zone

    async def open(self, on_commit: Callable[[], None]) -> None:
        """``on_commit`` is called in the event loop after each commit. Raises StoreError."""
        loop = asyncio.get_running_loop()
        self._store = await self._call(CatalogStore.open, self._url)

        def committed(_version: int) -> None:
            loop.call_soon_threadsafe(on_commit)

        self._store.on_commit(committed)
        self._service = CatalogService(
            self._store.unit_of_work,
            self._defaults,
            (self._check_limits,),
            authorise=authorised,
            held_zone=lambda: self._held_zone(),
        )

    async def run(
        self, commands: Sequence[Command], topology: Topology, base_version: int | None = None
    ) -> list[StatementResult]:
        """Each command a catalog version of its own; ``base_version``: only if the catalog is at it still. What
        has begun comes to its end, also when the caller is cancelled.

        Raises ScriptError, with the results of the commands before the one that failed, and StoreError while
        nothing may be written."""
        self._require_writable()
        self.require_reason()
        caller = self._caller_of_change()
        if caller is not None and (len(commands) > 1 or isinstance(commands[0], PrincipalCommand)):
            # Nothing of a script happens, and no password is hashed, for whoever may not do all of it.
            await self.authorise(dict(enumerate(commands, start=1)), topology)
        commands = await self._hashed(commands)
        # The ids under which a logged statement commits, and who asks, are known here and not in the thread.
        ids = tuple(next_statement_id() for _ in commands)
        script = CommandScript(tuple(commands), topology, ids, current_actor(), base_version)
        ended: asyncio.Future[ScriptRun] = asyncio.get_running_loop().create_future()
        self._arrived.append((ScriptRun(script), ended))
        self._request_round()
        run = await to_the_end(ended)
        results = [StatementResult.of(n, executed) for n, executed in enumerate(run.done, start=1)]
        if isinstance(run.error, StatementError):
            raise ScriptError(run.error, results) from run.error
        if run.error is not None:
            raise run.error
        return results

    def require_reason(self, stated: str = "") -> None:
        """``stated``: of the change itself, beside what came with the request. Raises RefusedError
        (REASON_REQUIRED)."""
        if self.requires_reason and not (stated or current_actor().reason).strip():
            message = "this installation keeps why each change is made (ZONEKEEPER_REQUIRE_REASON)"
            raise RefusedError(ErrorKind.REASON_REQUIRED, message)

    async def authorise(self, commands: Mapping[int, Command], topology: Topology) -> None:
        """Check that the caller may execute all of a script's commands, by their numbers, on what the ones
        before them make. They are authorised again when they are committed.

        Raises ScriptError (PRIVILEGE_MISSING)."""
        caller = current_caller()
        if caller is not None:
            numbers, snapshot = list(commands), None
            for start in range(0, len(numbers), VERSIONS_MAX):
                part = {n: commands[n] for n in numbers[start : start + VERSIONS_MAX]}
                snapshot = await self._call(self._authorise, part, topology, caller, snapshot)

    async def plan(
        self, commands: Sequence[FileCommand], topology: Topology, *, prune: Sequence[str]
    ) -> CatalogPlan:
        """Plan what DDL files would change in the zones that the caller may see: nothing of it is authorised
        yet. Raises DdlFileError, StoreError."""
        return await self._call(partial(self._plan, commands, topology, current_caller(), prune=prune))

    async def snapshot(self, version: int | None = None) -> CatalogSnapshot:
        """The catalog as committed now, or at a version that exists. Raises StoreError."""
        return await self._reader.run(current_actor().sender, self._service.snapshot, version)

    async def grants(self) -> Grants:
        """Grants as committed now: who may do what. Raises StoreError."""
        return (await _in(self._logins, self._service.snapshot)).grants

    async def restore(self, restored: Callable[[CatalogSnapshot], Zone], text: str, origin: Origin) -> int:
        """A version in which a zone is what ``restored`` makes of the catalog; once for each ``text``.

        ``restored`` runs in the catalog's thread. Raises RefusedError, what it raises, and StoreError.
        """
        self._require_writable()
        self.require_reason(origin.reason)
        caller = self._caller_of_change()
        stamp = StatementStamp(next_statement_id(), text, current_actor().named(origin.by), origin)

        def once(catalog: CatalogSnapshot) -> Zone:
            history = self._read_history(catalog.version)
            done = next((record for record in history if record.statement == text), None)
            if done is not None:
                message = f"{text}: version {done.version} of the catalog has done it already"
                raise RefusedError(ErrorKind.OPERATION_STATE_ILLEGAL, message)
            zone = restored(catalog)
            if caller is not None:
                authorise_restored(catalog, zone, caller)
            return zone

        return await self._call(self._service.restore_zone, once, stamp)

    async def on_log(self, act: Callable[[SqlStatementLog], T]) -> T:
        """One call of the statement log. Raises StoreError."""
        return await self._call(act, self._store.statements)

    async def trim(self, keep: Retention) -> Trimmed:
        """One round of forgetting what is older. Raises StoreError."""
        return await self._call(self._store.retention.trim, keep)

    async def settled(self) -> None:
        """Wait until the thread has done all that it was asked for before, also what no caller waits for."""
        await self._thread.last(lambda: None)

    async def history(self, version: int) -> tuple[VersionRecord, ...]:
        """The statements that led to ``version``, oldest first. Raises StoreError."""
        return await self._call(self._read_history, version)

    async def changes(self, commands: Sequence[Command], topology: Topology) -> tuple[PlannedStatement, ...]:
        """Plan what each command of a script would change after the ones before it, after every check that it
        would meet; nothing is stored.

        Raises the StatementError that the script itself would end with.
        """
        return await self._call(self._changes, commands, topology, current_caller())

    async def unsent(self) -> Sequence[OutboxRow]:
        return await self._call(self._store.outbox.unsent)

    async def mark_sent(self, rows: Sequence[OutboxRow]) -> None:
        await self._call(self._store.outbox.mark_sent, tuple(rows))

    async def truth(self, newest: ZoneIntent | None) -> CatalogTruth:
        return await self._call(self._store.metastore_marks.truth, newest)

    async def raise_level(self, level: int) -> None:
        """Servers below that release level never write this catalog again. Raises StoreError."""
        await self._call(self._store.metastore_marks.raise_level, level)

    async def record_mark(self, mark: MetastoreMark) -> None:
        await self._call(self._store.metastore_marks.record, mark)

    async def adopt(
        self, intents: Sequence[ZoneIntent], mark: MetastoreMark, held: ZoneId = NO_ZONE
    ) -> AdoptedVersion:
        return await self._call(self._store.metastore_marks.adopt, intents, mark, held, current_actor())

    async def record(self, entry: AuditEntry) -> None:
        """A change that is not one of the catalog. Raises StoreError."""
        await self._call(self._store.audit.record, entry)

    async def audit(self, only: AuditFilter, limit: int, below: int | None = None) -> tuple[AuditRecord, ...]:
        """Audit records of who changed what, the newest first. Raises StoreError."""
        return await self._call(self._store.audit.read, only, limit, below)

    async def recoveries(self, since_us: int) -> tuple[AuditRecord, ...]:
        """Audit records of administrators' recoveries, the newest first. Raises StoreError."""
        return await self._call(self._store.audit.of_subject, RECOVERED, since_us, RECOVERIES_MAX)

    async def token(self, digest: str) -> AccessToken | None:
        return await _in(self._logins, self._store.tokens.by_digest, digest)

    async def tokens(self, owner: Principal | None) -> tuple[AccessToken, ...]:
        return await _in(self._logins, self._store.tokens.all, owner)

    async def add_token(self, token: AccessToken, basis: LoginBasis = NO_BASIS) -> None:
        await _in(self._logins, self._store.tokens.add, token, basis)

    async def revoke_token(self, token_id: str, now_us: int) -> None:
        await _in(self._logins, self._store.tokens.revoke, token_id, now_us)

    async def on_sessions(self, act: Callable[[SqlSessions], T]) -> T:
        """One call of the console's sessions. Raises RefusedError and StoreError."""
        return await _in(self._logins, act, self._store.sessions)

    async def close(self) -> None:
        await self._thread.last(self._store.close)
        for thread in (self._thread, self._reader):
            thread.close(wait=True)
        self._logins.shutdown()

    def _caller_of_change(self) -> Caller | None:
        """Raises RefusedError (UNAUTHENTICATED): a task that has lost for whom it works would do everything."""
        actor = current_actor()
        is_server = actor.channel is Channel.SYSTEM and actor.name
        if self._requires_login and actor.caller is None and not is_server:
            raise RefusedError(ErrorKind.UNAUTHENTICATED, "the caller of the change is not logged in")
        return actor.caller

    async def _hashed(self, commands: Sequence[Command]) -> Sequence[Command]:
        """Passwords are made into what is kept of them in threads of their own: that takes long on purpose.
        Raises ScriptError."""
        hashed: list[Command] = []
        for n, command in enumerate(commands, start=1):
            if isinstance(command, CreateUser | AlterUser) and command.password is not None:
                try:
                    secret = command.password
                    check_password(secret, command.name)
                    if self._hash_password is None:
                        message = "this server keeps no passwords"
                        raise RefusedError(ErrorKind.STATEMENT_NOT_SUPPORTED, message, secret.position)
                    kept = await asyncio.to_thread(self._hash_password, secret.text)
                    command = replace(command, password=replace(secret, hashed=kept))
                except RefusedError as error:
                    error.statement = n
                    raise ScriptError(error, ()) from error
            hashed.append(command)
        return hashed

    async def _call(self, function: Callable[..., T], *arguments: object) -> T:
        return await self._thread.run(current_actor().sender, function, *arguments)

    def _request_round(self) -> None:
        """Request a round, from the event loop or from the thread: one more than is needed does nothing."""
        if not self._is_round_due:
            self._is_round_due = True
            self._thread.submit(ROUNDS, self._execute_round)

    def _execute_round(self) -> None:
        """Execute a round, in the thread. Other work of the thread gets its turn between rounds."""
        self._is_round_due = False
        while self._arrived:
            self._open.append(self._arrived.popleft())
        taken = fair_round([run for run, _ in self._open], VERSIONS_MAX)
        if not taken:
            return
        failure: Exception | None = None
        try:
            self._service.execute_round(taken)
        except Exception as error:
            failure = error
        failed = set() if failure is None else set(map(id, taken))
        over = [entry for entry in self._open if entry[0].is_over or id(entry[0]) in failed]
        self._open = [entry for entry in self._open if not (entry[0].is_over or id(entry[0]) in failed)]
        if over:
            over[0][1].get_loop().call_soon_threadsafe(self._answer, over, failure)
        if self._open:
            self._request_round()

    def _answer(self, over: Sequence[_Waiting], failure: Exception | None) -> None:
        """Answer the callers of scripts that are over, in the event loop; a caller that was cancelled twice
        does not wait any more."""
        for run, ended in over:
            self.principal_changes += any(isinstance(one, PrincipalCommand) for one in run.script.commands)
            if ended.done():
                continue
            if failure is not None:
                ended.set_exception(failure)
            else:
                ended.set_result(run)

    def _read_history(self, version: int) -> tuple[VersionRecord, ...]:
        while not self._history or self._history[-1].version < version:
            after = self._history[-1].version if self._history else 0
            page = self._store.history(after, HISTORY_PAGE)
            if not page:
                break
            self._history.extend(page)
        return tuple(record for record in self._history if record.version <= version)

    def _changes(
        self, commands: Sequence[Command], topology: Topology, caller: Caller | None
    ) -> tuple[PlannedStatement, ...]:
        def judge(snapshot: CatalogSnapshot, command: Command, nodes: Topology) -> Change:
            known = snapshot if caller is None else authorised(snapshot, command, caller)
            try:
                return self._service.judge(known, command, nodes)
            except StatementError as error:
                raise error_for(caller, snapshot.grants, error) from None

        return tuple(judged(commands, self._service.snapshot(), topology, judge))

    def _authorise(
        self,
        commands: Mapping[int, Command],
        topology: Topology,
        caller: Caller,
        before: CatalogSnapshot | None,
    ) -> CatalogSnapshot:
        """The catalog behind these commands; ``before``: behind the ones that precede them."""
        snapshot = before or self._service.snapshot()
        for n, command in commands.items():
            try:
                known = authorised(snapshot, command, caller)
            except StatementError as error:
                error.statement = n
                raise ScriptError(error, ()) from error
            # What is wrong with it otherwise is said when its turn comes.
            with suppress(StatementError):
                snapshot = snapshot.after(self._service.judge(known, command, topology).entries)
        return snapshot

    def _plan(
        self,
        commands: Sequence[FileCommand],
        topology: Topology,
        caller: Caller | None,
        *,
        prune: Sequence[str],
    ) -> CatalogPlan:
        live = self._service.snapshot()
        if caller is not None:
            live = visible_catalog(live, caller)
        desired = desired_catalog(commands, live, topology, self._defaults)

        def quorum_of(zone: Zone) -> int:
            nodes = len(data_nodes_of(zone, topology, JSON_PATH))
            return zone.quorum_size or default_quorum(zone.replicas, nodes)

        return plan_changes(live, desired, quorum_of, prune=prune)

    def _check_limits(self, change: Change, snapshot: CatalogSnapshot, topology: Topology) -> None:
        """54000 before anything is stored, rather than members that wait for room for ever."""
        check_rebalancing(change, allowed=self._may_rebalance())
        if change.after is None or not change.entries:
            return
        existing = self._counts.of_others(snapshot.zones, change.after.zone_id, topology)
        check_member_limits(change, topology, existing, self._counts.of_zone(change.after, topology))


async def _in(threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, partial(function, *arguments))


LOOK_EVERY_S = 600.0
BETWEEN_ROUNDS_S = 1.0

log = structlog.get_logger(__name__)


async def trim_catalog(catalog: CatalogExecutor, keep: Retention) -> None:
    """Trim the catalog until cancelled. Several servers may do so side by side: each deletes what the others
    have not deleted yet."""
    while True:
        trimmed = Trimmed()
        try:
            trimmed = await catalog.trim(keep)
        except StoreError as error:
            log.warning("nothing is forgotten while the catalog does not answer", error=str(error))
        if trimmed != Trimmed():
            log.info("forgotten", versions=trimmed.versions, audit_records=trimmed.audit_records)
        await asyncio.sleep(LOOK_EVERY_S if trimmed == Trimmed() else BETWEEN_ROUNDS_S)
