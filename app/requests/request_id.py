"""The id of the request that is being served: in its answer, in every line of the log, and in the audit."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from structlog.contextvars import bound_contextvars

HEADER = "X-Request-Id"
PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
BYTES = 16

_CURRENT: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """Empty outside of requests."""
    return _CURRENT.get()


def request_id_of(values: Sequence[bytes]) -> str:
    """The one that a proxy or client has given, if it is the only one and well-formed; else a new one: what
    stands in a log must not be what a client likes."""
    if len(values) == 1 and re.fullmatch(PATTERN.encode(), values[0]):
        return values[0].decode("ascii")
    return secrets.token_hex(BYTES)


@contextmanager
def requested(request_id: str) -> Iterator[None]:
    """What runs inside the block, in this task or in tasks that it begins, is done for this request."""
    before = _CURRENT.set(request_id)
    try:
        with bound_contextvars(request_id=request_id):
            yield
    finally:
        _CURRENT.reset(before)
