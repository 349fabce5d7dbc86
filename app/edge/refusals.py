"""A refusal as an answer."""

from __future__ import annotations

import json

from app.requests.errors import MEDIA_TYPE, problem
from catalog.core.errors import StatementError

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


def answer(refusal: StatementError) -> Answer:
    """Status, headers and body. The connection ends with it: what else is on the way is not read."""
    body = json.dumps(problem(refusal)).encode()
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    return refusal.kind.http_status, headers, body
