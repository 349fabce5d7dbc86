"""Statements become catalog versions: read, decide, commit one version; when somebody was faster, again.

Optimistic: nothing is locked between reading and committing. A version can be taken once, so of several
coordinators with the same version in hand one succeeds and the others decide again on what it left: the same
change sent ten times makes one version (I3-002).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from catalog.core.errors import ErrorKind, StatementError, StoreError
from catalog.core.messages import Command, Position
from catalog.core.node_filter import NodeFilters
from catalog.core.snapshot import (
    CatalogEntry,
    CatalogSnapshot,
    Change,
    EntryKind,
    Topology,
    ZoneDefaults,
    ZoneEntry,
    apply_command,
)
from catalog.core.zone import Origin, Zone
from catalog.filters.json_path import JSON_PATH
from catalog.ports import CommitOutcome, StatementStamp, UnitOfWork

ATTEMPTS_MAX = 32
RESOLVE_ATTEMPTS_MAX = 10
RESOLVE_PAUSE_S = 0.5
"""Together 5 s: about what a database needs to come back, or its stand-by to take over."""

ChangeCheck = Callable[[Change, CatalogSnapshot, Topology], None]
"""Refuses (by RefusedError) a change that the catalog would accept, as the limits of the engine do.

Called again on each attempt, with the snapshot that the change is made on."""


@dataclass(frozen=True, slots=True)
class ExecutedStatement:
    """What a command did. ``version`` is the catalog's after it, also when the command added none."""

    change: Change
    version: int


class CatalogService:
    """Executes commands. Holds no state of its own: several may work on one catalog.

    Every call blocks on the store; use it from one worker thread at a time.
    """

    def __init__(
        self,
        unit_of_work: UnitOfWork,
        defaults: ZoneDefaults | None = None,
        attempts_max: int = ATTEMPTS_MAX,
        new_statement_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        pause: Callable[[float], None] = time.sleep,
        filters: NodeFilters = JSON_PATH,
        origin: Callable[[], Origin | None] = lambda: None,
    ) -> None:
        """``origin`` tells who asks for the statement that is about to be committed."""
        self._unit_of_work = unit_of_work
        self._defaults = defaults or ZoneDefaults()
        self._attempts_max = attempts_max
        self._new_statement_id = new_statement_id
        self._pause = pause
        self._filters = filters
        self._origin = origin

    def snapshot(self, version: int | None = None) -> CatalogSnapshot:
        return self._unit_of_work.snapshot(version)

    def execute(
        self, commands: Sequence[Command], topology: Topology, checks: Sequence[ChangeCheck] = ()
    ) -> tuple[ExecutedStatement, ...]:
        """All commands in order, each a version of its own. At an error the effects of earlier ones stay."""
        return tuple(self.execute_each(commands, topology, checks))

    def execute_each(
        self,
        commands: Sequence[Command],
        topology: Topology,
        checks: Sequence[ChangeCheck] = (),
        base_version: int | None = None,
    ) -> Iterator[ExecutedStatement]:
        """As ``execute``, one at a time: what was yielded has happened. Errors carry the statement's number.

        With ``base_version`` nobody else may have changed the catalog since that version, nor between the
        commands: else StoreError (CATALOG_VERSION_CONFLICT), and that command changed nothing.
        """
        expected = base_version
        for number, command in enumerate(commands, start=1):
            try:
                executed = self._execute_one(command, topology, checks, expected)
            except StatementError as error:
                error.statement = number
                raise
            expected = None if expected is None else executed.version
            yield executed

    def _execute_one(
        self, command: Command, topology: Topology, checks: Sequence[ChangeCheck], expected: int | None
    ) -> ExecutedStatement:
        stamp = StatementStamp(self._new_statement_id(), command.source, self._origin())
        for _ in range(self._attempts_max):
            snapshot = self._unit_of_work.snapshot()
            if expected is not None and snapshot.version != expected:
                message = f"the catalog is at version {snapshot.version}, not {expected} any more"
                raise StoreError(ErrorKind.CATALOG_VERSION_CONFLICT, message, command.position)
            change = apply_command(snapshot, command, topology, self._defaults, filters=self._filters)
            for check in checks:
                check(change, snapshot, topology)
            if not change.entries:
                return ExecutedStatement(change, snapshot.version)
            if self._commit(snapshot, change.entries, stamp, command.position):
                return ExecutedStatement(change, snapshot.version + 1)
        raise self._conflict(command.position)

    def restore_zone(self, restored: Callable[[CatalogSnapshot], Zone], text: str, origin: Origin) -> int:
        """A version in which a zone is what ``restored`` makes of the catalog; also when that changes nothing,
        because ``origin`` asks for a stored target. Returns the version.

        ``restored`` is asked again on each attempt, and refuses by RefusedError.
        """
        stamp = StatementStamp(self._new_statement_id(), text, origin)
        for _ in range(self._attempts_max):
            snapshot = self._unit_of_work.snapshot()
            entries = (ZoneEntry(EntryKind.WRITTEN, restored(snapshot)),)
            if self._commit(snapshot, entries, stamp, None):
                return snapshot.version + 1
        raise self._conflict(None)

    def _conflict(self, position: Position | None) -> StoreError:
        message = f"other statements took the next version {self._attempts_max} times in a row"
        return StoreError(ErrorKind.CATALOG_VERSION_CONFLICT, message, position)

    def _commit(
        self,
        base: CatalogSnapshot,
        entries: tuple[CatalogEntry, ...],
        stamp: StatementStamp,
        position: Position | None,
    ) -> bool:
        """False: somebody else took the version. Raises StoreError (OUTCOME_UNKNOWN)."""
        outcome = self._unit_of_work.commit(base, entries, stamp)
        if outcome is CommitOutcome.UNKNOWN:
            outcome = self._resolve(base, entries, stamp, position)
        return outcome is CommitOutcome.COMMITTED

    def _resolve(
        self,
        base: CatalogSnapshot,
        entries: tuple[CatalogEntry, ...],
        stamp: StatementStamp,
        position: Position | None,
    ) -> CommitOutcome:
        """Finds out how a commit of unknown outcome ended: COMMITTED or CONFLICT, or raises OUTCOME_UNKNOWN.

        The database may still be working on the lost commit, so its absence proves nothing while the next
        version is free. Then the *same* change is committed again under the same version and statement id:
        whichever of the two comes second is refused by the database. The version is read before the id, so
        that a version that somebody else took is never mistaken for ours that landed in between.
        """
        for attempt in range(RESOLVE_ATTEMPTS_MAX):
            if attempt:
                self._pause(RESOLVE_PAUSE_S)
            try:
                newest = self._unit_of_work.snapshot().version
                if self._unit_of_work.version_of(stamp.statement_id) is not None:
                    return CommitOutcome.COMMITTED
                if newest > base.version:
                    return CommitOutcome.CONFLICT
                if self._unit_of_work.commit(base, entries, stamp) is CommitOutcome.COMMITTED:
                    return CommitOutcome.COMMITTED
            except StoreError:
                continue
        message = (
            "the catalog's database was lost while committing, and cannot be asked whether it did; "
            f"if it did, statement id {stamp.statement_id} is in the catalog's history"
        )
        raise StoreError(ErrorKind.OUTCOME_UNKNOWN, message, position)
