"""Rows that SQL alone shows: tables and their zones' profiles, the catalog's history, queries, the exchanges of
store servers and what these say of their copies."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.columns import Long, Milliseconds, Moment, Named
from app.contract.zones import IdOfZone, NameOfZone, NodeName


class ProfileRow(TypedDict):
    zone_id: IdOfZone
    zone: NameOfZone
    profile: Annotated[str, Named("that each node of the zone has", "STORAGE_PROFILE")]
    is_default: Annotated[bool, Named("of tables that name none", "IS_DEFAULT_PROFILE")]


class TableRow(TypedDict):
    table_id: Annotated[int, Named("given once, never used again", "TABLE_ID")]
    schema: Annotated[str, Named(sql="SCHEMA_NAME")]
    name: Annotated[str, Named("name of the table", "TABLE_NAME")]
    zone: NameOfZone
    zone_id: IdOfZone
    storage_profile: Annotated[str, Named("where its rows are kept", "STORAGE_PROFILE")]
    colocation: Annotated[list[str], Named("by whose values rows are placed", "TABLE_COLOCATION_COLUMNS")]


class EventRow(TypedDict):
    version: Annotated[Long, Named("that the statement made", "CATALOG_VERSION")]
    at: Annotated[Milliseconds, Named(sql="COMMITTED_AT", title="Time (UTC)")]
    statement_id: Annotated[str, Named(sql="STATEMENT_ID")]
    statement: Annotated[str, Named(sql="STATEMENT")]
    by: Annotated[str | None, Named("null: no name was given", "ACTOR", title="User")]
    reason: Annotated[str, Named(sql="REASON")]


class QueryRow(TypedDict):
    """Query of the server that answers."""

    statement_id: Annotated[str | None, Named("null: it is not logged", "STATEMENT_ID")]
    state: Annotated[str, Named("WAITING or RUNNING", "STATE")]
    position: Annotated[int | None, Named("1: it runs next; null: it runs", "POSITION")]
    user: Annotated[str | None, Named(sql="USER_NAME", of="client.user")]
    address: Annotated[str | None, Named("of the client", "ADDRESS", "client.address")]
    is_cheap: Annotated[bool, Named("it reads no table, or a short one, and may use any place", "IS_CHEAP")]
    waited_ms: Annotated[Long, Named(sql="WAITED_MS", unit="ms")]
    ran_ms: Annotated[Long, Named(sql="RAN_MS", unit="ms")]
    statement: Annotated[str, Named(sql="STATEMENT", of="sql")]


class MergedEvent(TypedDict):
    version: str
    cause: str
    node: str


class PhaseRow(TypedDict):
    phase: str
    begun_ms: int
    ended_ms: int | None


class ExchangeRow(TypedDict):
    exchange: Annotated[str, Named("version that it began with", "EXCHANGE", "cause.version")]
    version: Annotated[str | None, Named("with which it ended", "VERSION")]
    cause: Annotated[str | None, Named(sql="CAUSE", of="cause.trigger")]
    node: Annotated[str | None, Named("that joined or left", "NODE_NAME", "cause.node")]
    zones: Annotated[list[str] | None, Named("that are concerned", "ZONES")]
    type: Annotated[str | None, Named(sql="TYPE")]
    state: Annotated[str, Named("RUNNING or DONE; else why it cannot be read", "STATE")]
    coordinator: Annotated[str | None, Named("server that leads it", "COORDINATOR")]
    awaited: Annotated[list[str] | None, Named("servers, while it runs", "WAITS_FOR")]
    begun: Annotated[Moment | None, Named(sql="BEGUN_AT", of="begun_ms")]
    ended: Annotated[Moment | None, Named(sql="ENDED_AT", of="ended_ms")]
    duration_ms: Annotated[Long | None, Named(sql="DURATION_MS", unit="ms")]
    merged: Annotated[list[MergedEvent] | None, Named("events that ended with it", "MERGED")]
    phases: Annotated[list[PhaseRow] | None, Named("in their order", "PHASES")]


class StoreCopyRow(TypedDict):
    """Copy as its server reports it; of a server that did not answer only its name and the reason are known."""

    zone_id: Annotated[int | None, Named("given once, never used again", "ZONE_ID")]
    zone: Annotated[str | None, Named("name of the zone", "ZONE_NAME")]
    partition: Annotated[int | None, Named("from 0", "PARTITION_ID")]
    node: NodeName
    state: Annotated[str | None, Named("as the server has it", "COPY_STATE")]
    is_primary: Annotated[bool | None, Named("it leads", "IS_PRIMARY")]
    position: Annotated[str | None, Named("of the newest record that it has", "POSITION")]
    filled: Annotated[str | None, Named("up to where it has all records", "FILLED_TO")]
    reason: Annotated[str, Named("why the server did not answer", "REASON")]


class SnapshotRow(TypedDict):
    """Stores as the query has read them."""

    catalog_version: Annotated[Long, Named(sql="CATALOG_VERSION", of="catalog.version")]
    metastore_revision: Annotated[Long, Named("of etcd", "METASTORE_REVISION", "keys.revision")]
    taken: Annotated[Moment, Named(sql="TAKEN_AT", of="taken_at_ms")]
