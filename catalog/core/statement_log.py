"""Log of statements that clients sent: their states, and the row as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from catalog.core.authorisation import Caller, Principal
from catalog.core.credentials import is_within, scope_of
from catalog.core.zone import ZoneId

Json = dict[str, Any]

REPEAT_PREFIX = "repeat:"
"""Begins an idempotency key that a server has made up for a client that sends none. It recognises a request
that was sent twice because its answer was lost, and is given up when an answer was read or was an error."""


class StatementState(Enum):
    """The life of a statement. PENDING -> RUNNING -> SUCCEEDED | FAILED | CANCELED -> CLOSED."""

    PENDING = "PENDING"
    """Logged, not begun."""

    RUNNING = "RUNNING"
    """The owner works on it, or has died: the lease tells."""

    SUCCEEDED = "SUCCEEDED"
    """The statement has results."""

    FAILED = "FAILED"
    """The statement has an error, and perhaps results of those before the refused one."""

    CANCELED = "CANCELED"
    """Ended on a client's wish. What had been committed before stays; the error says so."""

    CLOSED = "CLOSED"
    """The client is done with it: no results any more, but its idempotency key still counts."""

    @property
    def is_over(self) -> bool:
        return self not in (StatementState.PENDING, StatementState.RUNNING)


def part_id(statement_id: str, n: int) -> str:
    """Return the id under which the n-th DDL statement of a logged script is in the catalog's history."""
    return f"{statement_id}-{n}"


def key_of_scope(idempotency_key: str | None, scope: str) -> str | None:
    """The key as the log keeps it: what was sent with one scope is no repetition of what was sent with another
    one, or with none."""
    if idempotency_key is None or not scope:
        return idempotency_key
    return f"{idempotency_key}@{sha256(scope.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class NewStatement:
    """A statement as it arrives. ``idempotency_key`` is unique within its principal and protocol. ``principal``
    sent it; None where nobody has to log in. ``scope``: of the token that it was sent with, as ``scope_text``
    writes it; empty: none."""

    statement_id: str
    protocol: str
    sql: str
    sql_hash: str
    idempotency_key: str | None = None
    principal: Principal | None = None
    scope: str = ""


@dataclass(frozen=True, slots=True)
class StatementProgress:
    """Partitions that have arrived, of those that a statement moves."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class LoggedOutcome:
    """End of a statement. ``heads`` are its results without rows; ``pages`` the rows, by result (from 1) and
    page (from 0), as compressed JSON. ``error`` is a problem document."""

    state: StatementState
    heads: tuple[Json, ...] = ()
    pages: tuple[tuple[int, int, bytes], ...] = ()
    error: Json | None = None
    warnings: tuple[Json, ...] = ()
    progress: StatementProgress | None = None


@dataclass(frozen=True, slots=True)
class StatementRow:
    """One row of the log, as read. Times are microseconds since 1970, UTC."""

    statement_id: str
    protocol: str
    state: StatementState
    idempotency_key: str | None = None
    sql_hash: str = ""
    sql: str = ""
    owner: str = ""
    lease_until_us: int = 0
    cancel_requested: bool = False
    created_us: int = 0
    finished_us: int | None = None
    expires_us: int = 0
    heads: tuple[Json, ...] = ()
    error: Json | None = None
    warnings: tuple[Json, ...] = ()
    progress: StatementProgress | None = None
    token: int = 0
    token_answer: Json | None = None
    principal_source: str = ""
    principal_name: str = ""
    principal_version: int = 0
    scope: str = ""

    def is_of(self, principal: Principal) -> bool:
        """Check that this principal sent it."""
        return Principal(self.principal_source, self.principal_name, self.principal_version) == principal

    def is_within(self, caller: Caller) -> bool:
        """Check that it is the caller's, and was sent with no broader scope than the caller has."""
        return self.is_of(caller.principal) and is_within(scope_of(self.scope), caller.scope)

    def is_abandoned(self, now_us: int) -> bool:
        """Check that the lease has ended without an outcome."""
        return not self.state.is_over and self.lease_until_us < now_us


@dataclass(frozen=True, slots=True)
class CommittedStatement:
    """Statement of a script in the catalog's history: ``n`` counts from 1."""

    n: int
    version: int
    zone_id: ZoneId | None
    zone: str | None
