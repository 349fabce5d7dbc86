"""The OpenAPI document that FastAPI makes of the routes, without answers that the server never gives."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

JsonObject = dict[str, Any]
METHODS = ("get", "put", "post", "delete", "patch")


def documented_api(**settings: Any) -> FastAPI:
    """Make an application whose page of documentation comes with it, and needs no network. In its document an
    invalid request is a problem with status 400, and an absent parameter is never null."""
    app = FastAPIOffline(**settings)
    of_routes = app.openapi

    def openapi() -> JsonObject:
        # The framework's own keeps what it has made: the same object, which is corrected once.
        if app.openapi_schema is None:
            _correct(of_routes())
        return of_routes()

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI wants a document replaced
    return app


def _correct(document: JsonObject) -> None:
    paths = document["paths"].values()
    for operation in (path[method] for path in paths for method in METHODS if method in path):
        # The framework's own, which ``app.api.problems`` answers as 400.
        if "application/json" in operation["responses"].get("422", {}).get("content", {}):
            del operation["responses"]["422"]
        for parameter in operation.get("parameters", ()):
            parameter["schema"] = _never_null(parameter["schema"])
    for unused in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(unused, None)


def _never_null(schema: JsonObject) -> JsonObject:
    kinds = [variant for variant in schema.get("anyOf", ()) if variant.get("type") != "null"]
    if len(kinds) != 1:
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**rest, **kinds[0]}
