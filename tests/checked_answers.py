"""The API in the test's own process, each of whose answers is held to the contract."""

from __future__ import annotations

import json

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from typing_extensions import is_typeddict


class CheckedTransport(httpx.ASGITransport):
    """A success that is JSON has exactly the fields and types that its route documents, else the test fails."""

    def __init__(self, app: FastAPI, client: tuple[str, int] = ("127.0.0.1", 1)) -> None:
        super().__init__(app, client=client)
        self._routes = [route for route in app.routes if isinstance(route, APIRoute)]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        raw = await answer.aread()
        if answer.is_success and answer.headers.get("content-type", "").startswith("application/json"):
            self._check(request, json.loads(raw))
        return httpx.Response(answer.status_code, headers=answer.headers, content=raw)

    def _check(self, request: httpx.Request, body: object) -> None:
        path = request.url.raw_path.decode().partition("?")[0]
        fitting = (route for route in self._routes if route.path_regex.match(path))
        model = next(
            (route.response_model for route in fitting if request.method in (route.methods or ())), None
        )
        if model is None:
            return
        read = TypeAdapter(model).validate_python(body)
        if is_typeddict(model):
            assert read == body, f"{request.method} {path} answers with more than {model.__name__} has"
