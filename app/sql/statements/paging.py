"""Page tokens: opaque to clients, a number to us, bound to what they page through."""

from __future__ import annotations

import base64
import binascii
import hashlib

from catalog.core.errors import ErrorKind, RefusedError

_CHECK_CHARS = 8


def page_token(subject: str, offset: int) -> str:
    text = f"{offset}.{_check(subject)}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def page_offset(subject: str, token: str | None) -> int:
    """Offset at which the page begins; 0 without a token. Raises RefusedError for a token of another list."""
    if token is None:
        return 0
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    offset, _, check = text.partition(".")
    if check != _check(subject) or not (offset.isascii() and offset.isdigit() and len(offset) < 10):
        raise RefusedError(ErrorKind.INVALID_REQUEST, "the page_token is not one that this list has given")
    return int(offset)


def _check(subject: str) -> str:
    return hashlib.sha256(subject.encode()).hexdigest()[:_CHECK_CHARS]
