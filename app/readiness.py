"""``/readyz``: whether statements can be taken, and the state of each part of the installation."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from typing import Any

from app.readiness_judge import Observed, judge
from app.views import KeyspaceViews
from catalog.core.codec import RecordNotReadableError, load
from catalog.core.snapshot import CatalogSnapshot
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.keys import Keyspace
from rebalance.hosting.background import Background
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore

TIME_LIMIT_S = 1.0
OWN = "server"


def controller_name() -> str:
    """Of a controller in this process, which may be a server's."""
    return f"{platform.node()}/{os.getpid()}"


class Readiness:
    """``snapshot`` reads the catalog."""

    def __init__(
        self,
        snapshot: Callable[[], Awaitable[CatalogSnapshot]],
        metastore: Metastore,
        mirror: KeyspaceMirror,
        keyspace: Keyspace,
        stores: StoreGuard,
        relay: OutboxRelay,
        background: Background,
    ) -> None:
        self._views = KeyspaceViews(mirror, keyspace)
        self._stores = stores
        self._snapshot = snapshot
        self._metastore = metastore
        self._mirror = mirror
        self._keyspace = keyspace
        self._relay = relay
        self._background = background

    async def report(self) -> dict[str, Any]:
        """The body of ``/readyz``, as ``app.api.models.Readiness`` describes it."""
        leader_key = self._keyspace.controller_leader
        catalog, answer = await asyncio.gather(
            _state_of(self._snapshot()), _state_of(self._metastore.get(leader_key))
        )
        agreement = self._agreement()
        takes_statements = catalog == "ok" and self._mirror.is_loaded and agreement == "ok"
        metastore = answer
        if answer == "ok":
            metastore = agreement if self._mirror.is_loaded else "loading"
        # What a silent metastore said last is of no use here: nobody renews anything in it.
        leader = self._mirror.value(leader_key) if answer == "ok" else None
        status = _document(self._mirror.value(self._keyspace.engine_status)) if leader is not None else {}
        waiting = status.get("waiting")
        waiting = waiting if isinstance(waiting, dict) else {}
        processes = list(self._processes()) if answer == "ok" else [self._own()]
        body = {
            "ready": takes_statements,
            "catalog": catalog,
            "metastore": metastore,
            "unreadable": [each.cause for each in self._views.unreadable()] if answer == "ok" else [],
            "nodes": sum(1 for _ in self._mirror.below(self._keyspace.nodes)),
            "spark": status.get("state", "unknown"),
            "spark_message": status.get("message", "no controller leads"),
            "spark_driver_pid": status.get("driver_pid"),
            "controller": leader.decode(errors="replace") if leader is not None else None,
            "queue": {
                "outbox_oldest_seconds": round(self._relay.lag_s(), 1),
                "zone_oldest_seconds": _age_s(waiting),
                "zone_id": waiting.get("zone_id"),
            },
            "background": {"tasks": self._background.tasks, "processes": processes},
        }
        causes = judge(Observed.of(body))
        degraded = [{"part": each.part.value, "cause": each.cause} for each in causes]
        state = "not ready" if not takes_statements else "degraded" if degraded else "ready"
        return {"state": state, **body, "degraded": degraded}

    def _agreement(self) -> str:
        state = self._stores.state
        if state is None:
            return "not compared with the catalog yet"
        if state.unreadable is not None:
            return state.unreadable.cause
        if state.divergence is not None:
            return f"diverged: {state.divergence.reason} (`zonectl metastore adopt`)"
        return f"full: {state.full}" if state.full else "ok"

    def _own(self) -> dict[str, Any]:
        return {
            "process": OWN,
            "role": "server",
            "troubles": [asdict(each) for each in self._background.troubles()],
            "defects": self._background.defects,
            "last_defect": self._background.last_defect,
        }

    def _processes(self) -> Iterator[dict[str, Any]]:
        """This server, and others in which something has gone wrong."""
        yield self._own()
        prefix = self._keyspace.processes
        for item in self._mirror.below(prefix):
            name, told = item.key.removeprefix(prefix), _document(item.value)
            if name == controller_name():
                continue
            yield {
                "process": name,
                "role": str(told.get("role", "")),
                "troubles": [each for each in told.get("troubles", ()) if isinstance(each, dict)],
                "defects": told.get("defects", 0),
                "last_defect": str(told.get("last_defect", "")),
            }


def _document(value: bytes | None) -> dict[str, Any]:
    """Empty for what this build cannot read, but for the reason: readiness is told all the same."""
    try:
        return load(value) if value is not None else {}
    except RecordNotReadableError as error:
        return {"message": error.message}


def _age_s(waiting: dict[str, Any]) -> float:
    """Of the leader's oldest waiting zone, by this machine's clock."""
    since_ms = waiting.get("since_ms")
    return round(max(time.time() - since_ms / 1_000, 0.0), 1) if isinstance(since_ms, int) else 0.0


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
