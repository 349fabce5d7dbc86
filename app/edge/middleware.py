"""The outermost ASGI application: every request and every socket passes here, whatever route it is for."""

from __future__ import annotations

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.deferred_body import DeferredBody
from app.edge.fields import Fields
from app.edge.http_limits import HttpLimits
from app.edge.policies import headers_of
from app.edge.refusals import answer
from app.edge.request_rules import forwarded_refusal, refusal_of
from app.edge.trust import Trust, as_addressed
from app.requests.request_id import HEADER, request_id_of, requested
from catalog.core.errors import RefusedError

log = structlog.get_logger(__name__)

SOCKET_ANSWER = "websocket.http.response"
SERVER_ERROR = 500
ID_FIELD = HEADER.lower().encode()
STARTS = ("http.response.start", "websocket.accept", f"{SOCKET_ANSWER}.start")


class Edge:
    """A body is read whole when the application asks for the first of it: a request that is refused for its
    body has begun nothing, and of one that is refused before none is read."""

    def __init__(self, app: ASGIApp, trust: Trust, limits: HttpLimits) -> None:
        self._app = app
        self._trust = trust
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        sent = Fields.of(scope)
        request_id = request_id_of(sent.lines.get(ID_FIELD, ()))
        with requested(request_id):
            answer_log = AnswerLog(scope, send, request_id)
            try:
                await self._answer(scope, sent, receive, answer_log.send)
            finally:
                answer_log.write()

    async def _answer(self, scope: Scope, sent: Fields, receive: Receive, send: Send) -> None:
        scope = as_addressed(arrived := scope, sent, self._trust)
        fields = sent if scope is arrived else Fields.of(scope)
        refusal = forwarded_refusal(sent, self._trust) or refusal_of(
            scope, fields, sent.all(b"host"), self._trust, self._limits
        )
        if scope["type"] == "http":
            send = _with_headers(scope["path"], send)
            if fields.has_body:
                body = DeferredBody(fields, receive, send, self._limits)
                receive, send = body.receive, body.send
        if refusal is None:
            await self._app(scope, receive, send)
            return
        log.info("request refused", path=scope["path"], name=refusal.kind.name, reason=refusal.message)
        await (_refuse if scope["type"] == "http" else _refuse_socket)(refusal, receive, send)


class AnswerLog:
    """Gives an answer the id of its request, and writes a line about it: at DEBUG, or at INFO where the server
    failed."""

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self._scope = scope
        self._send = send
        self._id = request_id.encode()
        self._status = 0
        self._began = time.monotonic()

    async def send(self, message: Message) -> None:
        if message["type"] in STARTS:
            self._status = message.get("status", 0)
            others = [header for header in message.get("headers", ()) if header[0].lower() != ID_FIELD]
            message["headers"] = [*others, (ID_FIELD, self._id)]
        await self._send(message)

    def write(self) -> None:
        """Without what follows the path, which may hold what is searched."""
        write = log.info if self._status >= SERVER_ERROR else log.debug
        write(
            "request",
            method=self._scope.get("method", "WEBSOCKET"),
            path=self._scope["path"],
            status=self._status,
            ms=round(1_000 * (time.monotonic() - self._began), 1),
        )


def _with_headers(path: str, send: Send) -> Send:
    """An answer's own headers go before ours."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = message.setdefault("headers", [])
            there = {name.lower() for name, _ in own}
            message["headers"] = [*own, *(header for header in headers_of(path) if header[0] not in there)]
        await send(message)

    return sent


async def _refuse(refusal: RefusedError, _: Receive, send: Send) -> None:
    status, headers, body = answer(refusal)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse_socket(refusal: RefusedError, receive: Receive, send: Send) -> None:
    await receive()
    status, headers, body = answer(refusal)
    await send({"type": f"{SOCKET_ANSWER}.start", "status": status, "headers": headers})
    await send({"type": f"{SOCKET_ANSWER}.body", "body": body})
