"""Rows of the views of store servers: their exchanges, and what each of them says of its copies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from app.sql.statements.results import ResultType
from app.sql.views.view_snapshot import SystemSnapshot
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.store.core.exchange_record import EventName, ExchangeRecord, PhaseTime, decode_exchange

Row = tuple[Any, ...]

EXCHANGE_COLUMNS = {
    **dict.fromkeys(("EXCHANGE", "VERSION", "CAUSE", "NODE_NAME", "ZONES"), ResultType.VARCHAR),
    **dict.fromkeys(("TYPE", "STATE", "COORDINATOR", "WAITS_FOR"), ResultType.VARCHAR),
    **dict.fromkeys(("BEGUN_AT", "ENDED_AT"), ResultType.TIMESTAMP),
    "DURATION_MS": ResultType.BIGINT,
    **dict.fromkeys(("MERGED", "PHASES"), ResultType.JSON),
}
STORE_COPY_COLUMNS = {
    "ZONE_ID": ResultType.INTEGER,
    "ZONE_NAME": ResultType.VARCHAR,
    "PARTITION_ID": ResultType.INTEGER,
    **dict.fromkeys(("NODE_NAME", "COPY_STATE"), ResultType.VARCHAR),
    "IS_PRIMARY": ResultType.BOOLEAN,
    **dict.fromkeys(("POSITION", "FILLED_TO", "REASON"), ResultType.VARCHAR),
}


def exchange_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """The newest first. VERSION: with which it ended. WAITS_FOR: servers, of one that goes on. MERGED: events
    that ended with it. A record that cannot be read says so in STATE."""
    prefix = snapshot.keyspace.exchange_log
    for item in sorted(snapshot.keys.below(prefix), key=lambda item: item.key, reverse=True):
        record = read(item, decode_exchange)
        if isinstance(record, Unreadable):
            yield (item.key.removeprefix(prefix), *(None,) * 5, record.cause, *(None,) * 7)
        else:
            yield _exchange_row(record, _zone_names(snapshot))


def _exchange_row(record: ExchangeRecord, names: dict[int, str]) -> Row:
    cause, ended_ms = record.cause, record.ended_ms
    return (
        str(cause.version),
        str(record.version) if record.version is not None else None,
        cause.trigger.value,
        cause.node or None,
        ", ".join(names.get(zone, str(zone)) for zone in cause.zones) or None,
        record.type.value,
        "RUNNING" if record.version is None else "DONE",
        record.coordinator,
        ", ".join(record.awaited) or None,
        record.begun_ms,
        ended_ms,
        ended_ms - record.begun_ms if ended_ms is not None else None,
        json.dumps([_event(event) for event in record.merged]),
        json.dumps([_phase(phase) for phase in record.phases]),
    )


def _event(event: EventName) -> dict[str, str]:
    return {"version": str(event.version), "cause": event.trigger.value, "node": event.node}


def _phase(phase: PhaseTime) -> dict[str, object]:
    return {"phase": phase.phase.value, "begun_ms": phase.begun_ms, "ended_ms": phase.ended_ms}


def store_copy_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """As each server itself says. POSITION: of the newest record that it has; FILLED_TO: up to where it has all
    of them. A server that did not answer has one row, with the REASON."""
    names = _zone_names(snapshot)
    for server in snapshot.store_copies:
        if server.copies is None:
            yield (None, None, None, server.name, None, None, None, None, server.reason)
            continue
        for copy in server.copies:
            snapshot.checkpoint()
            yield (
                copy.zone,
                names.get(copy.zone),
                copy.partition,
                server.name,
                copy.state,
                copy.is_primary,
                str(copy.position) if copy.position.counter else None,
                str(copy.filled) if copy.filled.counter else None,
                "",
            )


def _zone_names(snapshot: SystemSnapshot) -> dict[int, str]:
    return {zone.zone_id: zone.name for zone in snapshot.catalog.zones}
