"""Texts in paths and queries: any UTF-8 can be the name of a zone or a node, or a key.

Routes match the path as it was sent, percent-encoded, and decode each text by itself: an encoded slash belongs
to the text, another one separates. ``AddressMiddleware`` and the two converters belong together.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote, unquote, unquote_to_bytes

from fastapi import Path
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import problem_response
from catalog.core.errors import ErrorKind, RefusedError
from rebalance.groups.calls.key_text import KEY_CHARS_MAX

_NOT_ESCAPED = "!$&'()*+,;=:@-._~"
"""Characters that are not escaped in a path, besides letters and digits."""
_LONE_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class SegmentConvertor(Convertor[str]):
    """Converter for one part of the path, ``{zone:segment}``."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value, errors="strict")

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


class KeyConvertor(SegmentConvertor):
    """Converter for the rest of the path, ``{key:key}``; slashes may be encoded or not."""

    regex = ".*"


register_url_convertor("segment", SegmentConvertor())
register_url_convertor("key", KeyConvertor())

ZoneName = Annotated[
    str,
    Path(
        min_length=1, description="folded to upper case as in SQL, unless in double quotes", examples=["ORDERS"]
    ),
]
Key = Annotated[str, Path(min_length=1, max_length=KEY_CHARS_MAX, description="UTF-8; slashes may stay")]


class AddressMiddleware:
    """Middleware that gives routes the path as it was sent, in one spelling. It refuses a path or query that is
    not UTF-8: two such texts could become the same one when they are decoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = scope.get("raw_path") or quote(scope["path"]).encode()
        try:
            _check("path", sent)
            _check("query", scope.get("query_string", b""))
        except RefusedError as error:
            await problem_response(error)(scope, receive, send)
            return
        await self._app({**scope, "path": one_spelling(sent)}, receive, send)


def one_spelling(path: bytes) -> str:
    """The path, percent-encoded only where it must be; encoded slashes stay encoded."""
    return "/".join(quote(unquote_to_bytes(part), safe=_NOT_ESCAPED) for part in path.split(b"/"))


def _check(what: str, sent: bytes) -> None:
    """Check that a text is percent-encoded UTF-8. Raises RefusedError (TEXT_NOT_UTF8)."""
    lone = _LONE_PERCENT.search(sent)
    if lone is not None:
        message = f"the {what} has a % without two hexadecimal digits after it; write %25 for a percent sign"
        raise RefusedError(ErrorKind.TEXT_NOT_UTF8, message)
    try:
        unquote_to_bytes(sent).decode()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        message = f"the {what} is not UTF-8: its byte {error.start + 1}, decoded, is %{byte:02X}"
        raise RefusedError(ErrorKind.TEXT_NOT_UTF8, message) from error
