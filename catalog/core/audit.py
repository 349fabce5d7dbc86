"""Audit: the people behind changes, and what is kept of each change."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import Enum

from catalog.core.authorisation import Caller
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.visible import hidden_character

NAME_MAX = 100
REASON_MAX = 500
"""Characters of a reason, whichever way it comes."""


class Channel(Enum):
    """Way that a request came. CLI and console speak REST, and say so."""

    REST = "REST"
    CLI = "CLI"
    CONSOLE = "CONSOLE"
    SQL = "SQL"
    SYSTEM = "SYSTEM"


@dataclass(frozen=True, slots=True)
class Actor:
    """``verified``: the user has logged in, or a proxy that checks names has put this one into its header; else
    it is what the client says. ``address`` is where the request came from, as host. ``reason`` is why it asks,
    by its own account. ``request_id``: of the request that it is; empty: of none.

    ``caller`` is who is authorised for it, once a login has proved that; None where nobody has to log in, and
    for what a server does by itself."""

    name: str = ""
    verified: bool = False
    channel: Channel = Channel.SYSTEM
    address: str = ""
    reason: str = ""
    caller: Caller | None = None
    request_id: str = ""

    @property
    def sender(self) -> Hashable:
        """Equal for all that one user sends."""
        return (self.name, self.address) if self.caller is None else self.caller.principal

    def named(self, stated: str | None) -> Actor:
        """Return the actor with the name that a request states; a verified one is not replaced."""
        if self.verified or not stated:
            return self
        return replace(self, name=stated[:NAME_MAX], verified=False)

    def because(self, reason: str) -> Actor:
        """Return the actor with the reason that a request gives for what it asks; empty: the one that is known
        stays. Raises RefusedError."""
        return replace(self, reason=checked_reason(reason)) if reason else self


NOBODY = Actor()


def checked_reason(text: str) -> str:
    """Raises RefusedError (INVALID_REQUEST) for what is too long, or could forge a line of a log or a table."""
    if len(text) > REASON_MAX:
        message = f"a reason has at most {REASON_MAX} characters, this one has {len(text)}"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    hidden = hidden_character(text)
    if hidden is not None:
        message = f"a reason must be one line of visible text, without {hidden}"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    return text


class Action(Enum):
    """Action that is not a statement of its own; a statement's action is its first words."""

    DRAIN_NODE = "DRAIN NODE"
    UNDRAIN_NODE = "UNDRAIN NODE"
    REMOVE_NODE = "REMOVE NODE"
    CHANGE_LIMITS = "CHANGE LIMITS"
    RESET_PARTITIONS = "RESET PARTITIONS"
    RESTART_PARTITIONS = "RESTART PARTITIONS"
    RESET_LOST_PARTITIONS = "RESET LOST PARTITIONS"
    ACTIVATE_ZONE = "ACTIVATE ZONE"
    DEACTIVATE_ZONE = "DEACTIVATE ZONE"
    PAUSE_OPERATION = "PAUSE OPERATION"
    RESUME_OPERATION = "RESUME OPERATION"
    CANCEL_OPERATION = "CANCEL OPERATION"
    CANCEL_PARTITIONS = "CANCEL PARTITIONS"
    REVERSE_OPERATION = "REVERSE OPERATION"
    FINALISE_OPERATION = "FINALISE OPERATION"
    ADOPT_METASTORE = "ADOPT METASTORE"
    FINALISE_UPGRADE = "FINALISE UPGRADE"
    CHANGE_LOG_LEVEL = "CHANGE LOG LEVEL"
    RESET_LOG_LEVEL = "RESET LOG LEVEL"
    SILENCE_ALERTS = "SILENCE ALERTS"
    UNSILENCE_ALERTS = "UNSILENCE ALERTS"
    CREATE_TOKEN = "CREATE TOKEN"
    REVOKE_TOKEN = "REVOKE TOKEN"
    CREATE_CONSOLE_LINK = "CREATE CONSOLE LINK"
    END_SESSION = "END SESSION"
    RECOVER_ADMINISTRATOR = "RECOVER ADMINISTRATOR"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change that was made. ``subject`` is the zone, table, node or operation; ``details`` the statement,
    or the request as JSON. The catalog's version is the same before and after where the change is not one of
    the catalog."""

    action: str
    subject: str
    actor: Actor
    reason: str = ""
    details: str = ""
    version_before: int = 0
    version_after: int = 0


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Record as it is kept: ``number`` grows with each."""

    number: int
    at_us: int
    entry: AuditEntry


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filter of the records to read; empty: all. Names of actions and subjects are compared without case."""

    action: str = ""
    subject: str = ""
    by: str = ""
