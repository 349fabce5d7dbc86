"""The client's requests of the REST API, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from zonekeeper_client.writes import Write

TIMEOUT_FIELD = "Zonekeeper-Timeout"
"""Header: seconds that the caller waits."""
TIMEOUT_MAX_S = 60.0
ABANDONS_FIELD = "Zonekeeper-Abandons"
"""Header: operation ids of earlier writes of the key that the caller gives up."""


@dataclass(frozen=True, slots=True)
class Request:
    """``path`` is escaped and has the query."""

    method: str
    path: str
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


def write(zone: str, wanted: Write) -> Request:
    """Repeating it with the same operation id changes nothing more."""
    query = {} if wanted.if_revision is None else {"if_revision": str(wanted.if_revision)}
    query |= {"if_absent": "true"} if wanted.if_absent else {}
    headers = {"Idempotency-Key": wanted.operation}
    if wanted.abandons:
        headers[ABANDONS_FIELD] = " ".join(wanted.abandons)
    path = _path(zone, f"/kv/{_segment(wanted.key)}", query)
    if wanted.value is None:
        return Request("DELETE", path, headers=headers)
    return Request("PUT", path, {"value": wanted.value}, headers)


def get(zone: str, key: str, options: Mapping[str, str | int]) -> Request:
    """``options``: ``read`` and ``at_revision``, as the route documents them."""
    return Request("GET", _path(zone, f"/kv/{_segment(key)}", options))


def routing(zone: str, tag: str | None = None) -> Request:
    """The routing map; status 304 while ``tag`` is still its ETag."""
    return Request("GET", _path(zone, "/routing"), headers={} if tag is None else {"If-None-Match": tag})


def _path(zone: str, rest: str, query: Mapping[str, str | int] | None = None) -> str:
    return f"/api/v1/zones/{_segment(zone)}{rest}" + (f"?{urlencode(query)}" if query else "")


def _segment(text: str) -> str:
    """Dots are escaped too, because ``.`` and ``..`` would be taken for folders."""
    return quote(text, safe="").replace(".", "%2E")
