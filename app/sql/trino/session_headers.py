"""What the headers of the SQL protocol say of a session, and the properties that a session has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote_plus

from app.sql.statements.results import SessionContext
from catalog.core.audit import checked_reason
from catalog.core.errors import ErrorKind, RefusedError

NO_TRANSACTION = "NONE"
WAIT = "wait"
TIMEOUT = "timeout"
RUN_TIME = "query_max_run_time"
REASON = "reason"
TIMEOUT_S_MAX = 7 * 86_400.0

PROPERTIES = {
    WAIT: "true: a statement that changes a zone ends when its data is where it belongs",
    TIMEOUT: "how long a statement may take, as 30, 30s, 5m or 2h",
    RUN_TIME: "the same, as drivers name what a program sets for one statement",
    REASON: "why: kept with the changes that follow, and shown in audit and operations",
}
_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|)\s*", re.I)


@dataclass(frozen=True, slots=True)
class TrinoSession:
    """``prepared`` maps names to texts: they travel with each request, so the server keeps none."""

    user: str = ""
    catalog: str = "zonekeeper"
    schema: str = "system"
    source: str = ""
    time_zone: str = "UTC"
    transaction_id: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    prepared: dict[str, str] = field(default_factory=dict)

    @property
    def context(self) -> SessionContext:
        return SessionContext(
            self.user,
            self.catalog,
            self.schema,
            self.transaction_id is not None,
            dict(self.properties),
            self.time_zone,
        )

    @property
    def wait(self) -> bool:
        return self.properties.get(WAIT, "false").lower() == "true"

    @property
    def reason(self) -> str:
        """Raises RefusedError."""
        return checked_reason(self.properties.get(REASON, ""))

    @property
    def timeout_s(self) -> float | None:
        """The shorter of both, where both are set. Raises RefusedError."""
        texts = (self.properties.get(name) for name in (TIMEOUT, RUN_TIME))
        return min((seconds(text) for text in texts if text is not None), default=None)


def read_session(headers: Iterable[tuple[str, str]]) -> TrinoSession:
    """Header names in any case; those that may hold several values may also be repeated."""
    fields: dict[str, list[str]] = {}
    for name, value in headers:
        lowered = name.lower()
        if lowered.startswith("x-trino-"):
            fields.setdefault(lowered[len("x-trino-") :], []).append(value)

    def one(name: str, default: str = "") -> str:
        return fields.get(name, [default])[-1].strip() or default

    transaction = one("transaction-id", NO_TRANSACTION)
    return TrinoSession(
        user=one("user"),
        catalog=one("catalog", "zonekeeper"),
        schema=one("schema"),
        source=one("source"),
        time_zone=one("time-zone", "UTC"),
        transaction_id=None if transaction.upper() == NO_TRANSACTION else transaction,
        properties={_property(name): value for name, value in _pairs(fields.get("session", ()))},
        prepared=dict(_pairs(fields.get("prepared-statement", ()))),
    )


def check_property(name: str, value: str) -> None:
    """Raises RefusedError for an unknown property and for a value that it does not take."""
    if name not in PROPERTIES:
        known = ", ".join(sorted(PROPERTIES))
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"there is no session property {name}; known: {known}")
    if name == WAIT and value.lower() not in ("true", "false"):
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"session property wait is true or false, not {value}")
    if name in (TIMEOUT, RUN_TIME):
        seconds(value)
    if name == REASON:
        checked_reason(value)


def seconds(text: str) -> float:
    """A length of time as SQL clients write it. Raises RefusedError."""
    match = _DURATION.fullmatch(text)
    timeout_s = float(match[1]) * _UNITS_S[match[2].lower()] if match else 0.0
    if not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"a timeout is as 30, 30s, 5m or 2h, not {text[:40]}")
    return timeout_s


def _property(name: str) -> str:
    """``zonekeeper.wait`` is ``wait``."""
    return name.lower().rsplit(".", 1)[-1]


def _pairs(values: Iterable[str]) -> Iterable[tuple[str, str]]:
    for value in values:
        for pair in value.split(","):
            name, equals, text = pair.strip().partition("=")
            if equals:
                yield name, _decoded(name, text)


def _decoded(name: str, text: str) -> str:
    """Raises RefusedError (TEXT_NOT_UTF8)."""
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError as error:
        message = f"the value of {name!a} in a header is not UTF-8, percent-encoded"
        raise RefusedError(ErrorKind.TEXT_NOT_UTF8, message) from error
