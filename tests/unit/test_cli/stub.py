"""A real HTTP server that answers as a test says, for the command line to talk to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = Mapping[str, Any]
Answer = tuple[int, Body] | Callable[["Request"], tuple[int, Body]]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: Body
    headers: Mapping[str, str]


@dataclass
class ApiStub:
    """``answers`` maps "METHOD /path" (query included) to an answer or to a function of the request."""

    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def problem(self, route: str, status: int, name: str, detail: str, **more: Any) -> None:
        self.answers[route] = (status, {"status": status, "name": name, "detail": detail, **more})

    def answer(self, request: Request) -> tuple[int, Body]:
        self.requests.append(request)
        answer = self.answers.get(f"{request.method} {request.path}")
        if answer is None:
            return 404, {"name": "NO_SUCH_ROUTE", "detail": f"{request.method} {request.path}", "status": 404}
        return answer(request) if callable(answer) else answer


def serve(stub: ApiStub, port: int = 0) -> ThreadingHTTPServer:
    """Starts answering in threads; the caller shuts it down and closes it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            request = Request(self.command, self.path, body, dict(self.headers))
            status, answer = stub.answer(request)
            raw = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            return None

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._answer)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


def result(n: int, op: str, zone: str = "ORDERS", *, version: int = 3, **params: Any) -> dict[str, Any]:
    """One statement's result as the API gives it."""
    return {
        "n": n,
        "sql": f"{op} zone {zone}",
        "applied": True,
        "effect": {"op": op, "zone": zone, "params": params},
        "zone_id": 1,
        "catalog_version": version,
        "warnings": [],
    }


def progress(
    done: int, total: int = 8, *, waiting: int = 0, cause: str = "", state: str = ""
) -> dict[str, Any]:
    """An answer of the progress resource."""
    converged = done == total and not waiting
    return {
        "zone_id": 1,
        "zone": "ORDERS",
        "catalog_version": 3,
        "state": state or ("CONVERGED" if converged else "MOVING"),
        "partitions": {"total": total, "done": done, "moving": total - done - waiting, "waiting": waiting},
        "causes": [{"cause": cause, "partitions": waiting}] if cause else [],
        "engine": "spark",
    }
