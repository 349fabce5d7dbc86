"""The API servers of one installation: any of them answers, and the next one is asked when one fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlencode

import httpx

from zonekeeper_client.errors import ClientError, JsonObject, ProblemDocument, refusal
from zonekeeper_client.tls import closed_handshakes, trusting
from zonekeeper_client.version import VERSION, VERSION_FIELD, check_version
from zonekeeper_client.writes import Write


@dataclass(frozen=True, slots=True)
class Pause:
    """``first_s`` at first, twice as long each time, at most ``most_s``."""

    first_s: float
    most_s: float
    whole_s: float = 0.0

    def longer(self) -> Pause:
        return replace(self, whole_s=min(2 * self.whole_s, self.most_s) if self.whole_s else self.first_s)

    @property
    def drawn_s(self) -> float:
        """Half of it to all of it, so that clients which failed together do not come back together."""
        return self.whole_s * random.uniform(0.5, 1.0)


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


def write_request(zone: str, wanted: Write) -> Request:
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


def get_request(zone: str, key: str, options: Mapping[str, str | int]) -> Request:
    """``options``: ``read`` and ``at_revision``, as the route documents them."""
    return Request("GET", _path(zone, f"/kv/{_segment(key)}", options))


def routing_request(zone: str, tag: str | None = None) -> Request:
    """The routing map; status 304 while ``tag`` is still its ETag."""
    return Request("GET", _path(zone, "/routing"), headers={} if tag is None else {"If-None-Match": tag})


def _path(zone: str, rest: str, query: Mapping[str, str | int] | None = None) -> str:
    return f"/api/v1/zones/{_segment(zone)}{rest}" + (f"?{urlencode(query)}" if query else "")


def _segment(text: str) -> str:
    """Dots are escaped too, because ``.`` and ``..`` would be taken for folders."""
    return quote(text, safe="").replace(".", "%2E")


CONNECT_LIMIT_S = 2.0
HUNG_AFTER_S = 5.0
"""Seconds without an answer after which the next of several servers is tried. The request is repeated there, so
only requests that may be repeated are sent through here."""
RETRY = Pause(0.02, 0.5)
SHORTEST_S = 0.5
"""Least time left for a repetition: with less it would be sent, and its answer not awaited."""

UNDONE = frozenset(
    {
        *("WRONG_GENERATION", "PARTITION_FULL", "PARTITION_UNAVAILABLE", "PARTITION_LOST", "OWNERS_AWAITED"),
        *("PARTITION_BUSY", "METASTORE_UNAVAILABLE"),
    }
)
"""Names of errors (5xx) after which nothing was written."""


class ServerFailedError(ClientError):
    """One attempt at one server failed; the same request may be sent again, to another one. ``may_be_done``:
    what it asks for may have been carried out, or may yet be."""

    def __init__(self, message: str, *, may_be_done: bool = False) -> None:
        super().__init__(message)
        self.may_be_done = may_be_done


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a success, or of a 304: then ``body`` is empty and ``is_unchanged``."""

    body: JsonObject
    headers: Mapping[str, str]
    is_unchanged: bool = False


class Servers:
    """Belongs to one event loop; ``close`` it. ``token`` is sent with every request. ``authority`` (PEM) has
    signed the servers' certificates; empty: one that the system trusts. ``transport`` replaces the network in
    tests."""

    def __init__(
        self,
        urls: Sequence[str],
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        token: str = "",
        authority: str = "",
    ) -> None:
        """Raises ValueError, for a token that would be sent without TLS, too."""
        if not urls:
            raise ValueError("a client needs the URL of at least one server")
        self._urls = [url.rstrip("/") for url in urls]
        plain = [url for url in self._urls if not url.startswith("https://")]
        if token and plain:
            raise ValueError(f"a token is sent over HTTPS only, and {plain[0]} is not")
        headers = {"User-Agent": f"zonekeeper-client/{VERSION}"}
        # The environment's proxies are for the outside; a Zonekeeper is on this machine or near.
        self._http = httpx.AsyncClient(
            transport=transport,
            trust_env=False,
            headers=headers | ({"Authorization": f"Bearer {token}"} if token else {}),
            verify=trusting(authority),
        )
        self._turn = 0

    async def close(self) -> None:
        await self._http.aclose()

    async def answered(
        self, request: Request, limit_s: float, failures: list[ServerFailedError] | None = None
    ) -> Answer:
        """Repeated until the time is over. ``failures``: gets those of attempts. Raises RefusedByServerError,
        IncompatibleServerError, or the last ServerFailedError."""
        clock, pause = asyncio.get_running_loop().time, RETRY
        deadline = clock() + limit_s
        while True:
            try:
                return await self.ask(request, max(deadline - clock(), RETRY.first_s))
            except ServerFailedError as failed:
                if failures is not None:
                    failures.append(failed)
                pause = pause.longer()
                if clock() + pause.whole_s > deadline - SHORTEST_S:
                    raise
            await asyncio.sleep(pause.drawn_s)

    async def ask(self, request: Request, limit_s: float) -> Answer:
        """One attempt, at most ``limit_s``, as the server is told.

        Raises ServerFailedError when repeating may help, RefusedByServerError when it cannot, and
        IncompatibleServerError.
        """
        turn = self._turn
        url = self._urls[turn % len(self._urls)]
        whole_s = min(limit_s, HUNG_AFTER_S) if len(self._urls) > 1 else limit_s
        stated = {TIMEOUT_FIELD: f"{min(max(whole_s, 0.001), TIMEOUT_MAX_S):.3f}"}
        try:
            async with asyncio.timeout(whole_s):
                response = await self._http.request(
                    request.method,
                    f"{url}{request.path}",
                    json=request.body,
                    headers={**request.headers, **stated},
                    extensions=closed_handshakes(),
                    timeout=httpx.Timeout(whole_s, connect=min(whole_s, CONNECT_LIMIT_S)),
                )
        except (TimeoutError, httpx.TransportError) as error:
            self._turn_away(turn)
            was_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise ServerFailedError(f"{url}: {error!r}", may_be_done=was_sent) from error
        check_version(response.headers.get(VERSION_FIELD, ""), url)
        body = _json_object(response)
        if response.status_code == httpx.codes.NOT_MODIFIED:
            return Answer({}, response.headers, is_unchanged=True)
        if response.is_success and body is not None:
            return Answer(body, response.headers)
        problem = ProblemDocument.from_body(response.status_code, body or {})
        if response.is_success or response.is_server_error:
            self._turn_away(turn)
            raise ServerFailedError(f"{url}: {problem.headline()}", may_be_done=problem.name not in UNDONE)
        raise refusal(problem)

    def _turn_away(self, turn: int) -> None:
        # Calls that fail together at one server move on by one, not by as many as they are.
        if self._turn == turn:
            self._turn += 1


def _json_object(response: httpx.Response) -> JsonObject | None:
    """None for a body that is none."""
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
