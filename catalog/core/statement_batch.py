"""Scripts that wait together become versions of one transaction: which ones, and how each script then stands.

Pure. ``decide`` judges the commands of all scripts in order, each on the catalog that the ones before it leave,
and writes nothing: a refused command is in no transaction. What was decided counts for nothing until the shell
says that the transaction was committed (``keep``), and is decided again on a newer catalog when somebody else
took one of its versions (``discard``). So one that fails fails alone, and nobody is answered for what did not
happen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from catalog.core.audit import NOBODY, Actor
from catalog.core.authorisation import Caller
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.messages import Command
from catalog.core.snapshot import error_for
from catalog.core.versions import CatalogEntry, CatalogSnapshot, Change, Topology
from catalog.core.zone import Origin

Judge = Callable[[CatalogSnapshot, Command, Topology], Change]
"""``apply_command`` and every other check of a change. Raises StatementError."""

Authorise = Callable[[CatalogSnapshot, Command, Caller], CatalogSnapshot]
"""The catalog to judge a command on, which is what the caller may know of. Raises RefusedError."""


def allow_nobody(_snapshot: CatalogSnapshot, command: Command, caller: Caller) -> CatalogSnapshot:
    """Authorise no caller: for a service that was given no rules."""
    message = f"{caller.principal} cannot be authorised here"
    raise RefusedError(ErrorKind.PRIVILEGE_MISSING, message, command.position)


@dataclass(frozen=True, slots=True)
class ExecutedStatement:
    """Result of a command. ``version`` is the catalog's after it, also when the command added none."""

    change: Change
    version: int


@dataclass(frozen=True, slots=True)
class CommandScript:
    """Commands of one client, each a version of its own; ``statement_ids`` (one a command) are unique for ever.

    With ``base_version`` nobody else may have changed the catalog since that version, nor between the commands:
    else the command is refused (CATALOG_VERSION_CONFLICT), and it and those after it change nothing.
    Each is authorised for the actor's caller.
    """

    commands: tuple[Command, ...]
    topology: Topology
    statement_ids: tuple[str, ...]
    actor: Actor = NOBODY
    base_version: int | None = None


@dataclass(frozen=True, slots=True)
class StatementStamp:
    """A statement as history keeps it. The id is unique for ever: it tells an unknown outcome afterwards.

    ``actor`` asked for it. ``origin`` goes along with the zones' intents; None: what follows from the actor."""

    statement_id: str
    text: str
    actor: Actor = NOBODY
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version that is to be committed: ``entries`` (at least one) lead to ``after``, the statement of
    ``stamp`` asked for them."""

    after: CatalogSnapshot
    entries: tuple[CatalogEntry, ...]
    stamp: StatementStamp


@dataclass(slots=True)
class ScriptRun:
    """Progress of a script: ``done`` has happened, and ``error`` ended it.

    ``decided`` and ``refusal`` are not committed yet; ``stamps`` are of its versions in the transaction.
    ``at_once``: commands that are decided in one transaction. ``conflicts``: transactions in a row of which
    somebody else took a version."""

    script: CommandScript
    done: list[ExecutedStatement] = field(default_factory=list)
    error: Exception | None = None
    decided: list[ExecutedStatement] = field(default_factory=list)
    refusal: Exception | None = None
    stamps: list[StatementStamp] = field(default_factory=list)
    at_once: int = sys.maxsize
    conflicts: int = 0

    @property
    def is_over(self) -> bool:
        return self.error is not None or len(self.done) == len(self.script.commands)

    def decide(
        self, committed: CatalogSnapshot, ahead: CatalogSnapshot, judge: Judge, authorise: Authorise
    ) -> Iterator[NewVersion]:
        """The versions of the commands that are left, until one is refused. ``ahead`` is the catalog with what
        the transaction holds so far: while that is ``committed`` itself, what needs no version has happened."""
        script = self.script
        begun = len(self.done)
        for at in range(begun, min(len(script.commands), begun + self.at_once)):
            command, is_sure = script.commands[at], ahead is committed
            caller = script.actor.caller
            try:
                self._check_base(ahead, command)
                # On the grants of the version that the command is decided on.
                known = ahead if caller is None else authorise(ahead, command, caller)
                change = judge(known, command, script.topology)
                change = replace(change, entries=ahead.with_lives(change.entries, script.statement_ids[at]))
            except Exception as failure:
                # A defect that one statement meets is no matter of the others, either.
                error = error_for(caller, ahead.grants, failure)
                if isinstance(error, StatementError):
                    error.statement = at + 1
                if is_sure:
                    self.error = error
                self.refusal = error
                return
            ahead = ahead.after(change.entries)
            executed = ExecutedStatement(change, ahead.version)
            if not change.entries:
                (self.done if is_sure else self.decided).append(executed)
                continue
            self.decided.append(executed)
            self.stamps.append(StatementStamp(script.statement_ids[at], command.source, script.actor))
            yield NewVersion(ahead, change.entries, self.stamps[-1])

    def keep(self) -> None:
        """The transaction was committed."""
        self.done += self.decided
        self.error = self.refusal
        self.discard()

    def discard(self) -> None:
        """The transaction was not committed."""
        self.decided, self.refusal, self.stamps = [], None, []

    def _check_base(self, snapshot: CatalogSnapshot, command: Command) -> None:
        """Raises StoreError."""
        if self.script.base_version is None:
            return
        executed = self.decided or self.done
        expected = executed[-1].version if executed else self.script.base_version
        if snapshot.version != expected:
            message = f"the catalog is at version {snapshot.version}, not {expected} any more"
            raise StoreError(ErrorKind.CATALOG_VERSION_CONFLICT, message, command.position)


def decide(
    base: CatalogSnapshot,
    runs: Iterable[ScriptRun],
    judge: Judge,
    versions_max: int,
    authorise: Authorise = allow_nobody,
) -> list[NewVersion]:
    """The versions of one transaction on ``base``, at most ``versions_max``. Runs behind the last one stay as
    they are, to be decided behind this transaction."""
    versions: list[NewVersion] = []
    ahead = base
    for run in runs:
        for version in run.decide(base, ahead, judge, authorise):
            versions.append(version)
            ahead = version.after
            if len(versions) == versions_max:
                return versions
    return versions


def fair_round(waiting: Sequence[ScriptRun], commands_max: int) -> list[ScriptRun]:
    """Return the scripts that go into the next transaction, in their order, with ``at_once`` set: all users
    share ``commands_max``, whatever each has sent. What was planned on a version goes on alone once it has
    begun, as every other version would end it."""
    for run in waiting:
        if run.script.base_version is not None and run.done:
            run.at_once = commands_max
            return [run]
    left = dict.fromkeys((run.script.actor.sender for run in waiting), 0)
    left = dict.fromkeys(left, max(1, commands_max // max(1, len(left))))
    chosen = []
    for run in waiting:
        sender = run.script.actor.sender
        run.at_once = min(left[sender], len(run.script.commands) - len(run.done))
        left[sender] -= run.at_once
        if run.at_once:
            chosen.append(run)
    return chosen


def settle(runs: Iterable[ScriptRun], *, is_committed: bool) -> None:
    """The transaction was committed, or somebody else took one of its versions."""
    for run in runs:
        if is_committed:
            run.keep()
        else:
            run.discard()
        run.conflicts = 0 if is_committed else run.conflicts + 1


def fail(runs: Sequence[ScriptRun], error: StoreError) -> None:
    """The store failed: runs with a version in the transaction end, at the first statement that has not
    happened; the others are decided again. Where nothing was to be written yet all of them end."""
    waiting = [run for run in runs if not run.is_over]
    for run in [run for run in waiting if run.stamps] or waiting:
        at = len(run.done)
        failure = outcome_unknown(run.stamps[0]) if error.kind is ErrorKind.OUTCOME_UNKNOWN else error
        is_placed = error.kind is not ErrorKind.CATALOG_UNAVAILABLE
        position = run.script.commands[at].position if is_placed else None
        run.error = StoreError(failure.kind, failure.message, position, at + 1)
    settle(runs, is_committed=False)


def outcome_unknown(stamp: StatementStamp) -> StoreError:
    """Return the error of the statement that was to be committed under this stamp."""
    message = (
        "the catalog's database was lost while committing, and cannot be asked whether it did; "
        f"if it did, statement id {stamp.statement_id} is in the catalog's history"
    )
    return StoreError(ErrorKind.OUTCOME_UNKNOWN, message)
