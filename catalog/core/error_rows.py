"""A row of the table of errors (``catalog.core.error_table``), and the types of errors of the SQL protocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ProtocolType(Enum):
    """The types of errors of the Trino client protocol: clients choose an exception class by it."""

    USER_ERROR = "USER_ERROR"
    """The statement or request is to blame."""

    INTERNAL_ERROR = "INTERNAL_ERROR"
    """The service is to blame."""

    INSUFFICIENT_RESOURCES = "INSUFFICIENT_RESOURCES"
    """Good, but there is not enough room."""

    EXTERNAL = "EXTERNAL"
    """Fault of something that the service depends on."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row: ``action`` says to a person what to do about it."""

    code: int
    sqlstate: str
    http_status: int
    title: str
    action: str
    protocol_type: ProtocolType = ProtocolType.USER_ERROR


def no_room(code: int, http_status: int, title: str, action: str) -> ErrorRow:
    """A row for what would be done if others did less."""
    return ErrorRow(code, "53300", http_status, title, action, ProtocolType.INSUFFICIENT_RESOURCES)


def outside(code: int, sqlstate: str, http_status: int, title: str, action: str) -> ErrorRow:
    """A row for what something that the service depends on is to blame for."""
    return ErrorRow(code, sqlstate, http_status, title, action, ProtocolType.EXTERNAL)
