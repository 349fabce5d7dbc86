"""Statements become catalog versions: read, decide, commit; when somebody was faster, again.

Optimistic: nothing is locked between reading and committing. A version can be taken once, so of several
coordinators with the same version in hand one succeeds and the others decide again on what it left: the same
change sent ten times makes one version (I3-002). Statements that wait together are committed together, in one
transaction (``catalog/tech-notes/group-commit.md``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence

from catalog.core.errors import ErrorKind, StoreError
from catalog.core.messages import AlterUser, Command, CreateUser
from catalog.core.snapshot import (
    CatalogSnapshot,
    Change,
    EntryKind,
    Topology,
    ZoneDefaults,
    ZoneEntry,
    apply_command,
)
from catalog.core.statement_batch import (
    Authorise,
    CommandScript,
    ExecutedStatement,
    NewVersion,
    ScriptRun,
    StatementStamp,
    allow_nobody,
    decide,
    fail,
    outcome_unknown,
    settle,
)
from catalog.core.zone import NO_ZONE, Zone, ZoneId
from catalog.filters.json_path import JSON_PATH
from catalog.ports import CommitOutcome, UnitOfWork

ATTEMPTS_MAX = 32
RESOLVE_ATTEMPTS_MAX = 10
RESOLVE_PAUSE_S = 0.5
"""Together 5 s: about what a database needs to come back, or its stand-by to take over."""
VERSIONS_MAX = 64
"""Maximum versions of one transaction: enough for all that wait, and one that must be repeated is repeated
soon."""

ChangeCheck = Callable[[Change, CatalogSnapshot, Topology], None]
"""Refuses (by RefusedError) a change that the catalog would accept, as the limits of the engine do.

Called again on each attempt, with the snapshot that the change is made on."""


class CatalogService:
    """Executes commands. Holds no state of its own: several may work on one catalog.

    Every call blocks on the store; use it from one worker thread at a time.
    """

    def __init__(
        self,
        unit_of_work: UnitOfWork,
        defaults: ZoneDefaults | None = None,
        checks: Sequence[ChangeCheck] = (),
        pause: Callable[[float], None] = time.sleep,
        authorise: Authorise = allow_nobody,
        held_zone: Callable[[], ZoneId] = lambda: NO_ZONE,
    ) -> None:
        """``authorise`` decides for scripts that have a caller. ``held_zone``: the highest id of which nodes
        have something; new zones get higher ones."""
        self._unit_of_work = unit_of_work
        self._defaults = defaults or ZoneDefaults()
        self._checks = tuple(checks)
        self._pause = pause
        self.authorise = authorise
        self._held_zone = held_zone

    def snapshot(self, version: int | None = None) -> CatalogSnapshot:
        return self._unit_of_work.snapshot(version)

    def judge(self, snapshot: CatalogSnapshot, command: Command, topology: Topology) -> Change:
        """Return what a command would change of ``snapshot``, after every check that it would meet; nothing is
        stored.

        Raises StatementError."""
        change = apply_command(snapshot, command, topology, self._defaults, filters=JSON_PATH)
        for check in self._checks:
            check(change, snapshot, topology)
        return change

    def execute(self, commands: Iterable[Command], topology: Topology) -> tuple[ExecutedStatement, ...]:
        """All commands in order, each a version of its own. At an error the effects of earlier ones stay.

        Raises StatementError with the statement's number."""
        commands = tuple(commands)
        script = CommandScript(commands, topology, tuple(uuid.uuid4().hex for _ in commands))
        (run,) = self.execute_together([script])
        if run.error is not None:
            raise run.error
        return tuple(run.done)

    def execute_together(self, scripts: Iterable[CommandScript]) -> list[ScriptRun]:
        """Scripts in their order, up to ``VERSIONS_MAX`` versions in one transaction; each ends with what it
        did and with its own error, and nothing is raised."""
        runs = [ScriptRun(script) for script in scripts]
        while waiting := [run for run in runs if not run.is_over]:
            self.execute_round(waiting)
        return runs

    def execute_round(self, waiting: Sequence[ScriptRun]) -> None:
        """One transaction of runs that are not over, of each up to ``at_once`` commands; nothing is raised."""
        try:
            base = self._unit_of_work.snapshot().above(self._held_zone())
            versions = decide(base, waiting, self._decide, VERSIONS_MAX, self.authorise)
            outcome = CommitOutcome.COMMITTED
            if versions:
                outcome = self._unit_of_work.commit(base, versions)
            if outcome is CommitOutcome.UNKNOWN:
                outcome = self._resolve(base, versions)
        except StoreError as error:
            fail(waiting, error)
            return
        settle(waiting, is_committed=outcome is CommitOutcome.COMMITTED)
        given_up = [run for run in waiting if run.conflicts >= ATTEMPTS_MAX]
        if given_up:
            fail(given_up, self._conflict())

    def restore_zone(self, restored: Callable[[CatalogSnapshot], Zone], stamp: StatementStamp) -> int:
        """A version in which a zone is what ``restored`` makes of the catalog; also when that changes nothing,
        because the stamp's origin asks for a stored target. Returns the version.

        ``restored`` is asked again on each attempt, and refuses by RefusedError.
        """
        for _ in range(ATTEMPTS_MAX):
            base = self._unit_of_work.snapshot()
            entries = (ZoneEntry(EntryKind.WRITTEN, restored(base)),)
            version = NewVersion(base.after(entries), entries, stamp)
            outcome = self._unit_of_work.commit(base, [version])
            if outcome is CommitOutcome.UNKNOWN:
                outcome = self._resolve(base, [version])
            if outcome is CommitOutcome.COMMITTED:
                return version.after.version
        raise self._conflict()

    def _decide(self, snapshot: CatalogSnapshot, command: Command, topology: Topology) -> Change:
        if isinstance(command, CreateUser | AlterUser) and command.password and not command.password.hashed:
            raise ValueError("a password is hashed before its statement is executed")
        return self.judge(snapshot, command, topology)

    def _conflict(self) -> StoreError:
        message = f"other statements took the next version {ATTEMPTS_MAX} times in a row"
        return StoreError(ErrorKind.CATALOG_VERSION_CONFLICT, message)

    def _resolve(self, base: CatalogSnapshot, versions: Sequence[NewVersion]) -> CommitOutcome:
        """Finds out how a commit of unknown outcome ended: COMMITTED or CONFLICT, or raises OUTCOME_UNKNOWN.

        The database may still be working on the lost commit, so its absence proves nothing while the next
        version is free. Then the *same* changes are committed again under the same versions and statement ids:
        whichever of the two comes second is refused by the database. The version is read before the id, so
        that a version that somebody else took is never mistaken for ours that landed in between.
        """
        stamp = versions[0].stamp
        for attempt in range(RESOLVE_ATTEMPTS_MAX):
            if attempt:
                self._pause(RESOLVE_PAUSE_S)
            try:
                newest = self._unit_of_work.snapshot().version
                if self._unit_of_work.version_of(stamp.statement_id) is not None:
                    return CommitOutcome.COMMITTED
                if newest > base.version:
                    return CommitOutcome.CONFLICT
                if self._unit_of_work.commit(base, versions) is CommitOutcome.COMMITTED:
                    return CommitOutcome.COMMITTED
            except StoreError:
                continue
        raise outcome_unknown(stamp)
