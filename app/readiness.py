"""``/readyz``: catalog and metastore answer and belong together; Spark and the leading controller are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from app.views import KeyspaceViews
from catalog.core.codec import RecordNotReadableError, load
from catalog.core.snapshot import CatalogSnapshot
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.keys import Keyspace
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore

TIME_LIMIT_S = 1.0


class Readiness:
    """``snapshot`` reads the catalog."""

    def __init__(
        self,
        snapshot: Callable[[], Awaitable[CatalogSnapshot]],
        metastore: Metastore,
        mirror: KeyspaceMirror,
        keyspace: Keyspace,
        stores: StoreGuard,
    ) -> None:
        self._views = KeyspaceViews(mirror, keyspace)
        self._stores = stores
        self._snapshot = snapshot
        self._metastore = metastore
        self._mirror = mirror
        self._keyspace = keyspace

    async def report(self) -> dict[str, Any]:
        leader_key = self._keyspace.controller_leader
        catalog, metastore = await asyncio.gather(
            _state_of(self._snapshot()), _state_of(self._metastore.get(leader_key))
        )
        if metastore == "ok" and not self._mirror.is_loaded:
            metastore = "loading"
        answers = metastore == "ok"
        if answers:
            metastore = self._agreement()
        leader = self._mirror.value(leader_key)
        engine = self._mirror.value(self._keyspace.engine_status)
        spark = _document(engine) if engine is not None and answers else {}
        return {
            "ready": catalog == "ok" and metastore == "ok",
            "catalog": catalog,
            "metastore": metastore,
            "unreadable": [each.cause for each in self._views.unreadable()] if answers else [],
            "nodes": sum(1 for _ in self._mirror.below(self._keyspace.nodes)),
            "spark": spark.get("state", "unknown"),
            "spark_message": spark.get("message", "no controller leads"),
            "spark_driver_pid": spark.get("driver_pid"),
            "controller": leader.decode(errors="replace") if leader is not None else None,
        }

    def _agreement(self) -> str:
        state = self._stores.state
        if state is None:
            return "not compared with the catalog yet"
        if state.unreadable is not None:
            return state.unreadable.cause
        if state.divergence is not None:
            return f"diverged: {state.divergence.reason} (`zonectl metastore adopt`)"
        return f"full: {state.full}" if state.full else "ok"


def _document(value: bytes) -> dict[str, Any]:
    """Of the controller that leads; nothing where it cannot be read."""
    try:
        return load(value)
    except RecordNotReadableError as error:
        return {"message": error.message}


async def _state_of(question: Awaitable[object]) -> str:
    """ "ok", or what went wrong, in a line."""
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            await question
    except TimeoutError:
        return f"no answer within {TIME_LIMIT_S:.0f} s"
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "ok"
