"""``/readyz``: whether statements can be taken, and the state of each part of the installation."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from app.alerts.fact_reader import FactReader
from app.alerts.readiness_judge import judge, with_state
from app.contract.health import LostPartitions
from app.core.alerts import Alert
from app.views.answer_state import OK
from app.views.keyspace_views import KeyspaceViews
from catalog.core.errors import StoreError
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import EngineRecord, ProcessRecord, Trouble, WaitingZone
from rebalance.hosting.background import Background

TIME_LIMIT_S = 1.0
SEEN_S = 0.2
OWN = "server"
ROLES = frozenset({OWN, "controller", "node"})
UNKNOWN = "unknown"
SPARK_STATES = frozenset({"starting", "ready", "down"})
NO_CONTROLLER = EngineRecord(UNKNOWN, "no controller leads")


def controller_name() -> str:
    """Name of a controller in this process, which may be a server's."""
    return f"{platform.node()}/{os.getpid()}"


@dataclass(frozen=True, slots=True)
class ReadinessProbe:
    """``reader`` reads the facts anew. ``alerts``: as they were judged last. ``unprotected``: which protections
    are missing, in words. ``recoveries``: of administrators, in words. ``upgrade``: what one under way means,
    likewise."""

    reader: FactReader
    alerts: Callable[[], Iterable[Alert]]
    views: KeyspaceViews
    background: Background
    unprotected: tuple[str, ...] = ()
    recoveries: Callable[[], Awaitable[list[str]]] | None = None
    upgrade: Callable[[], list[str]] = list

    async def report(self) -> dict[str, Any]:
        """The body of ``/readyz``, as ``app.contract.health.Readiness`` describes it."""
        facts, recovered = await asyncio.gather(self.reader.facts(TIME_LIMIT_S, SEEN_S), self._recovered())
        agreement, is_heard, is_loaded = self._agreement(), facts.metastore == OK, self.reader.mirror.is_loaded
        metastore = facts.metastore
        if is_heard:
            metastore = agreement if is_loaded else "loading"
        # What a silent metastore said last is of no use here: nobody renews anything in it.
        leader = facts.controller if is_heard else None
        unreadable = self.views.unreadable() if is_heard else []
        status = self._engine(unreadable) if leader is not None else NO_CONTROLLER
        waiting = status.waiting
        if waiting is not None and (zone := self.views.zone_unreadable(ZoneId(waiting.zone_id))) is not None:
            unreadable.append(zone)
        lost_partitions = self._lost_partitions() if is_heard else []
        own = {"process": OWN, "role": "server", **_failures(self.background, self.background.troubles())}
        processes = [own, *(self._others(unreadable) if is_heard else ())]
        body = {
            "ready": facts.catalog == OK and is_loaded and agreement == OK,
            "catalog": facts.catalog,
            "metastore": metastore,
            "unreadable": [record.cause for record in unreadable],
            "nodes": facts.nodes,
            "store_servers_down": list(facts.servers_down) if is_heard else [],
            "lost_partitions": lost_partitions,
            "spark": status.state if status.state in SPARK_STATES else UNKNOWN,
            "spark_message": status.message,
            "spark_driver_pid": status.driver_pid,
            "controller": leader,
            "queue": {
                "outbox_oldest_seconds": round(facts.relay_lag_s, 1),
                "zone_oldest_seconds": _age_s(waiting),
                "zone_id": waiting.zone_id if waiting is not None else None,
            },
            "background": {"tasks": self.background.tasks, "processes": processes},
            "unprotected": list(self.unprotected),
            "recovered_administrators": recovered,
            "upgrade": self.upgrade() if is_heard and is_loaded else [],
        }
        is_named = facts.divergence or facts.metastore_full
        facts = replace(
            facts,
            not_agreed="" if not is_heard or metastore == OK or is_named else metastore,
            unreadable=tuple(record.cause for record in unreadable),
            tasks=tuple(
                (process["process"], trouble["task"], trouble["cause"])
                for process in processes
                for trouble in process["troubles"]
            ),
            lost={lost["zone"]: lost["partitions"] for lost in lost_partitions},
            waiting=(self._zone_name(ZoneId(waiting.zone_id)), _age_s(waiting)) if waiting else None,
        )
        return with_state(body, [cause.body for cause in judge(facts, self.alerts())])

    async def _recovered(self) -> list[str]:
        """Empty, too, where the catalog does not answer: that is reported anyhow."""
        if self.recoveries is None:
            return []
        try:
            async with asyncio.timeout(TIME_LIMIT_S):
                return await self.recoveries()
        except (TimeoutError, StoreError):
            return []

    def _agreement(self) -> str:
        state = self.reader.guard.state
        if state is None:
            return "not compared with the catalog yet"
        if state.unreadable is not None:
            return state.unreadable.cause
        if state.divergence is not None:
            return f"diverged: {state.divergence.reason} (`zonectl metastore adopt`)"
        return f"full: {state.full}" if state.full else "ok"

    def _engine(self, unreadable: list[Unreadable]) -> EngineRecord:
        """Adds to ``unreadable`` what this build cannot read: readiness is reported all the same."""
        reader = self.reader
        record = read(reader.mirror.get(reader.keyspace.engine_status), EngineRecord.decode)
        if isinstance(record, Unreadable):
            unreadable.append(record)
            return EngineRecord(UNKNOWN, record.cause)
        return record if record is not None else EngineRecord(UNKNOWN, "not told yet")

    def _lost_partitions(self) -> list[LostPartitions]:
        ownership = self.views.ownership
        zones = sorted((zone, ownership.lost_partitions(zone)) for zone in ownership.ring.cluster.zones)
        return [{"zone": self._zone_name(zone), "partitions": count} for zone, count in zones if count]

    def _zone_name(self, zone_id: ZoneId) -> str:
        intent = self.views.intent(zone_id)
        return intent.zone.name if intent is not None else str(zone_id)

    def _others(self, unreadable: list[Unreadable]) -> list[dict[str, Any]]:
        """Processes in which something has gone wrong. Adds to ``unreadable``."""
        prefix, others = self.reader.keyspace.processes, []
        for item in self.reader.mirror.below(prefix):
            name, record = item.key.removeprefix(prefix), read(item, ProcessRecord.decode)
            if isinstance(record, Unreadable):
                unreadable.append(record)
            elif name != controller_name() and (record.troubles or record.defects):
                role = record.role if record.role in ROLES else ""
                others.append({"process": name, "role": role, **_failures(record, record.troubles)})
        return others


def _failures(of: Background | ProcessRecord, troubles: Iterable[Trouble]) -> dict[str, Any]:
    bodies = [
        {"task": each.task, "ends": each.ends, "cause": each.cause, "runs": each.runs} for each in troubles
    ]
    return {"troubles": bodies, "defects": of.defects, "last_defect": of.last_defect}


def _age_s(waiting: WaitingZone | None) -> float:
    """Seconds for which the leader's oldest waiting zone has waited, by this machine's clock; 0.0: none
    waits."""
    return round(max(time.time() - waiting.since_ms / 1_000, 0.0), 1) if waiting is not None else 0.0
