"""Engine for all statements: DDL goes to the catalog, SELECT to the sandbox, CALL to the metastore, others stay
here.

Every question is answered from one snapshot: the catalog is read first, then the keyspace is copied, and
neither is read again. Rows are made in worker threads, so that a zone of 65000 partitions delays no other
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from app.requests.context import current_caller
from app.requests.request_audit import Audit
from app.security.standing import while_allowed
from app.security.statement_policy import authorise_call
from app.sql.engine.calls import Procedures, call_details
from app.sql.engine.executor import CatalogExecutor
from app.sql.engine.statement_jobs import StatementGate
from app.sql.plan.change_plan import (
    ChangePlan,
    PlanId,
    check_plannable,
    explained,
    plan_of,
    refuse_other,
    refuse_version,
)
from app.sql.plan.desired_state import CatalogPlan, DdlFile, read_files
from app.sql.plan.explain import explain_partition
from app.sql.query.sandbox_pool import SandboxPool
from app.sql.statements.results import QueryResult, ResultSet, ScriptError, SessionContext, StatementResult
from app.sql.statements.script_reader import to_the_end
from app.sql.statements.statement_meter import kind_of, kind_of_type
from app.sql.views.show import describe_table, describe_zone, show
from app.sql.views.system_views import PASSING, SYSTEM_VIEWS
from app.sql.views.view_registry import (
    AUDIT,
    EVENTS,
    STORE_COPIES,
    SystemView,
    ViewRegistry,
    arrow_stream,
)
from app.sql.views.view_snapshot import SystemSnapshot, ViewSources, ViewThreads
from app.sql.views.visible_rows import (
    Asked,
    Permit,
    asked_by,
    asked_of,
    visible_rows,
)
from catalog.core.audit import Action, AuditFilter
from catalog.core.authorisation import SYSTEM, Privilege
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.messages import Command
from catalog.core.snapshot import Topology
from parser.queries import (
    Call,
    Ddl,
    DescribeTable,
    DescribeZone,
    ExplainDdl,
    ExplainPartition,
    Query,
    QueryPiece,
    Show,
    Statement,
)
from parser.script import update_type
from parser.select import PreparedQuery, prepare_query
from parser.text import ScriptLimits, StopFlag
from parser.to_command import nothing_found
from rebalance.controllers.topology import usable_nodes

AUDIT_SHOWN_MAX = 10_000
PLAN_ATTEMPTS_MAX = 5


class SqlEngine:
    """Implements ``app.sql.statements.results.StatementEngine``. It belongs to the main thread's event loop."""

    def __init__(
        self,
        catalog: CatalogExecutor,
        sources: ViewSources,
        sandbox: SandboxPool,
        timeout_s: float = 10.0,
        registry: ViewRegistry | None = None,
        procedures: Procedures | None = None,
        gate: StatementGate | None = None,
    ) -> None:
        """``procedures`` carry CALL out; without them it is refused."""
        self._gate = gate or StatementGate()
        self._reader, self._line, self._meter = self._gate.reader, self._gate.line, self._gate.meter
        self._procedures = procedures
        self._catalog = catalog
        self._audit = Audit(catalog, catalog.snapshot)
        self._sources = sources
        self._sandbox, self.registry = sandbox, registry or ViewRegistry(SYSTEM_VIEWS)
        self._threads = ViewThreads(timeout_s)
        self._streams: dict[str, bytes] = {}
        self._streams_of: tuple[object, ...] = ()

    def close(self) -> None:
        self._threads.close()
        self._reader.close()

    async def execute(self, sql: str, session: SessionContext) -> ResultSet:
        """One statement. Raises StatementError, with MULTIPLE_STATEMENTS for more than one."""
        async with self._meter.statement() as measured, self._line.turn():
            statement = (await self._reader.statement(sql)).statement
            measured.kinds = (kind_of(statement),)
            if isinstance(statement, Query):
                self._require_loaded()
                return await self._query(await self._prepare(statement, session), session)
            if not isinstance(statement, Ddl):
                return await self._answer(statement, session)
            if session.in_transaction:
                message = "zone statements take effect at once and cannot be part of a transaction"
                raise RefusedError(ErrorKind.TRANSACTION_NOT_SUPPORTED, message)
            try:
                (done,) = await self._catalog.run((statement.command,), self._nodes())
            except ScriptError as failed:
                raise (failed.__cause__ if isinstance(failed.__cause__, StatementError) else failed) from None
            return ResultSet(
                update_type=update_type(done.sql),
                applied=done.applied,
                effect=done.effect,
                zone_id=done.zone_id,
                catalog_version=done.catalog_version,
                warnings=done.warnings,
            )

    async def run_script(self, sql: str) -> Sequence[StatementResult | QueryResult]:
        """Statements of any kind, one after the other; read whole, and authorised, before the first is run.

        Raises ScriptError with the results of the statements before the one that failed.
        """
        async with self._meter.statement() as measured, self._line.turn():
            try:
                pieces = await self._reader.script(sql)
                measured.kinds = tuple(kind_of(piece.statement) for piece in pieces)
                if not pieces:
                    raise nothing_found(sql)
                queries = await self._prepare_all(pieces)
                await self._authorise(pieces, queries)
            except StatementError as error:
                raise ScriptError(error, ()) from error
            commands = [piece.statement.command for piece in pieces if isinstance(piece.statement, Ddl)]
            if len(commands) == len(pieces):
                return await self._catalog.run(commands, self._nodes())
            if any(piece.changes for piece in pieces):
                return await to_the_end(asyncio.ensure_future(self._run_pieces(pieces, queries)))
            return await self._run_pieces(pieces, queries)

    async def run_guarded(self, sql: str, base_version: int) -> Sequence[StatementResult]:
        """Statements that change the catalog, only if it is at ``base_version`` still. Raises ScriptError."""
        async with self._meter.statement() as measured, self._line.turn():
            try:
                commands = await self._reader.changes(sql)
                measured.kinds = tuple(kind_of_type(type(command)) for command in commands)
            except StatementError as error:
                raise ScriptError(error, ()) from error
            return await self._catalog.run(commands, self._nodes(), base_version)

    async def run_planned(self, sql: str, plan_id: str) -> Sequence[StatementResult]:
        """Statements that change the catalog, only if their plan is ``plan_id`` still.

        Raises RefusedError (PLAN_CHANGED) with what is different, and ScriptError."""
        async with self._meter.statement() as measured, self._line.turn():
            commands, plan = await self._read_plan(sql, plan_id)
            measured.kinds = tuple(kind_of_type(type(command)) for command in commands)
            return await self._catalog.run(commands, self._nodes(), plan.plan_id.catalog_version)

    async def plan(self, files: Sequence[DdlFile], prune: Sequence[str]) -> CatalogPlan:
        """Plan what a set of DDL files would change in the zones that the caller may see. Raises DdlFileError,
        StoreError."""
        async with self._line.turn():
            limits = self._reader.limits
            size = sum(len(file.text) for file in files)
            commands = await self._reader.run(size, lambda stop: read_files(files, limits, stop))
            return await self._catalog.plan(commands, self._nodes(), prune=prune)

    async def change_plan(
        self, sql: str, plan_id: str | None = None, limits: ScriptLimits | None = None
    ) -> ChangePlan:
        """Plan what a script of changes would change and move. Raises StatementError.

        With ``plan_id`` RefusedError (PLAN_CHANGED) when another plan comes out by now, or when ``sql`` is
        empty: nothing is to be done any more. ``limits``: other than the reader's."""
        async with self._line.turn():
            return (await self._read_plan(sql, plan_id, limits))[1]

    async def _read_plan(
        self, sql: str, plan_id: str | None, limits: ScriptLimits | None = None
    ) -> tuple[tuple[Command, ...], ChangePlan]:
        if plan_id is not None:
            planned = PlanId.parse(plan_id)
            catalog, caller = await self._catalog.snapshot(), current_caller()
            version = catalog.version
            may_read = caller is None or caller.may(catalog.grants, Privilege.AUDIT, SYSTEM)
            # Statements that were carried out meanwhile may not stand a second time: no error of theirs.
            refuse_version(planned, version, await self._catalog.history(version) if may_read else ())
            if not sql:
                refuse_other(planned, None)
        self._require_loaded()
        commands = await self._reader.changes(sql, limits)
        plan = await self._plan_of(commands)
        if plan_id is not None:
            refuse_other(planned, plan.plan_id)
        return commands, plan

    async def _authorise(self, pieces: Sequence[QueryPiece], queries: Mapping[int, PreparedQuery]) -> None:
        """All of a script's statements. Raises StatementError with the statement's number."""
        caller = current_caller()
        is_one = len(pieces) == 1 or all(isinstance(piece.statement, Ddl) for piece in pieces)
        # What is executed as one is authorised as one.
        if caller is None or is_one:
            return
        catalog = await self._catalog.snapshot()
        for piece in pieces:
            try:
                if isinstance(piece.statement, Call):
                    authorise_call(catalog, piece.statement, caller)
                query = queries.get(piece.n)
                asked = asked_by(piece.statement) if query is None else asked_of(self._views(query))
                Permit(catalog, caller, asked)
            except StatementError as error:
                error.statement = piece.n
                raise
        commands = {piece.n: piece.statement.command for piece in pieces if isinstance(piece.statement, Ddl)}
        await self._catalog.authorise(commands, self._nodes())

    async def _plan_of(self, commands: Sequence[Command]) -> ChangePlan:
        check_plannable(commands)
        for _ in range(PLAN_ATTEMPTS_MAX):
            statements = await self._catalog.changes(commands, self._nodes())
            snapshot = await self._snapshot_of(await self._permit({}))
            if snapshot.catalog.version == statements[0].before.version:
                return await self._threads.run(snapshot, partial(plan_of, statements, snapshot))
        message = f"other statements changed it during each of {PLAN_ATTEMPTS_MAX} attempts"
        raise StoreError(ErrorKind.CATALOG_VERSION_CONFLICT, message)

    async def _run_pieces(
        self, pieces: Sequence[QueryPiece], queries: Mapping[int, PreparedQuery]
    ) -> Sequence[StatementResult | QueryResult]:
        results: list[StatementResult | QueryResult] = []
        for piece in pieces:
            try:
                if isinstance(piece.statement, Ddl):
                    (done,) = await self._catalog.run((piece.statement.command,), self._nodes())
                    results.append(replace(done, n=piece.n))
                    continue
                query, session = queries.get(piece.n), SessionContext()
                self._require_loaded()
                answer = self._query(query, session) if query else self._answer(piece.statement, session)
                results.append(QueryResult(piece.n, piece.source, await answer))
            except StatementError as error:
                error.statement = piece.n
                raise ScriptError(error, results) from error
        return results

    async def _prepare_all(self, pieces: Sequence[QueryPiece]) -> dict[int, PreparedQuery]:
        """The queries of a script by the numbers of their statements. Raises StatementError."""
        queries: dict[int, PreparedQuery] = {}
        for piece in pieces:
            try:
                if isinstance(piece.statement, Query):
                    queries[piece.n] = await self._prepare(piece.statement, SessionContext())
            except StatementError as error:
                error.statement = piece.n
                raise
        return queries

    def _nodes(self) -> Topology:
        return usable_nodes(self._sources.mirror, self._sources.keyspace)

    async def _answer(self, statement: Statement, session: SessionContext) -> ResultSet:
        """Answer a statement that is neither a change nor a query. Raises StatementError."""
        self._require_loaded()
        if isinstance(statement, Call):
            return await self._call(statement, session)
        if isinstance(statement, ExplainDdl):
            return explained(await self._plan_of((statement.command,)))
        permit = await self._permit(asked_by(statement))
        snapshot = await self._snapshot_of(permit)

        def answer() -> ResultSet:
            if isinstance(statement, Show):
                return show(statement, snapshot, self.registry)
            if isinstance(statement, DescribeZone):
                return describe_zone(statement.name, snapshot)
            if isinstance(statement, DescribeTable):
                return describe_table(statement.name, snapshot, self.registry)
            assert isinstance(statement, ExplainPartition), "what changes the catalog is run elsewhere"
            return explain_partition(statement, snapshot)

        rows = await self._threads.run(snapshot, answer)
        return replace(rows, catalog_version=permit.catalog.version, held=permit.shown)

    def _require_loaded(self) -> None:
        if not self._sources.mirror.is_loaded:
            raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, "etcd has not answered since this server started")

    async def _call(self, statement: Call, session: SessionContext) -> ResultSet:
        catalog, caller = await self._catalog.snapshot(), current_caller()
        known = catalog if caller is None else authorise_call(catalog, statement, caller)
        if self._procedures is None:
            message = "procedures can be called where nodes run, and not here"
            raise RefusedError(ErrorKind.STATEMENT_NOT_SUPPORTED, message, statement.position)
        if session.in_transaction:
            message = "a procedure takes effect at once and cannot be part of a transaction"
            raise RefusedError(ErrorKind.TRANSACTION_NOT_SUPPORTED, message, statement.position)
        self._audit.require_reason()
        answer = await self._procedures.run(statement, known)
        if answer.applied is not False:
            action = Action[statement.procedure.name]
            await self._audit.record(action, statement.zone.value, call_details(statement))
        return replace(answer, catalog_version=catalog.version)

    async def _prepare(self, statement: Query, session: SessionContext) -> PreparedQuery:
        def prepare(_: StopFlag) -> PreparedQuery:
            return prepare_query(
                statement.source,
                lambda name: self.registry.find(name, session.schema).relation,
                {"CURRENT_CATALOG": session.catalog.lower(), "CURRENT_SCHEMA": session.schema.lower()},
            )

        return await self._reader.run(len(statement.source.text), prepare)

    def _views(self, query: PreparedQuery) -> list[SystemView]:
        return [self.registry.relation(relation) for relation in sorted(query.relations)]

    async def _query(self, query: PreparedQuery, session: SessionContext) -> ResultSet:
        """Authorised before it waits for its turn, and again on the catalog that it is answered from."""
        views = self._views(query)
        asked = asked_of(views)
        if current_caller() is not None and any(asked.values()):
            await self._permit(asked)
        permits: list[Permit] = []

        async def load() -> dict[str, bytes]:
            copies = await self._sources.store_copies() if STORE_COPIES in asked else ()
            permits.append(permit := await self._permit(asked))
            version = permit.catalog.version
            events = await self._catalog.history(version) if EVENTS in asked else ()
            audit = await self._catalog.audit(AuditFilter(), AUDIT_SHOWN_MAX) if AUDIT in asked else ()
            snapshot = await self._snapshot_of(permit)
            return await self._tables(views, replace(snapshot, events=events, audit=audit, store_copies=copies))

        is_cheap = query.is_simple and all(view.is_short for view in views)
        running = self._sandbox.run(query, load, is_cheap=is_cheap, time_zone=session.time_zone)
        answer = await while_allowed(self._gate.watch, running)
        permit = permits[-1]
        return replace(answer, catalog_version=permit.catalog.version, held=permit.shown)

    async def _tables(self, views: Sequence[SystemView], snapshot: SystemSnapshot) -> dict[str, bytes]:
        of = (
            snapshot.catalog.version,
            snapshot.keys.revision,
            snapshot.silence,
            self._sources.freshness.version(),
        )
        if of != self._streams_of:
            self._streams, self._streams_of = {}, of
        streams = self._streams if snapshot.seen is None else {}

        def build() -> dict[str, bytes]:
            tables: dict[str, bytes] = {}
            for view in views:
                known = streams.get(view.relation)
                tables[view.relation] = known or arrow_stream(view.columns, visible_rows(view, snapshot))
            return tables

        tables = await self._threads.run(snapshot, build)
        streams.update({name: stream for name, stream in tables.items() if not name.endswith(PASSING)})
        return tables

    async def _permit(self, asked: Asked) -> Permit:
        """Permit the caller what is asked, on the catalog as committed now. Raises RefusedError
        (PRIVILEGE_MISSING)."""
        return Permit(await self._catalog.snapshot(), current_caller(), asked)

    async def _snapshot_of(self, permit: Permit) -> SystemSnapshot:
        """Snapshot of what the caller may see, with the keyspace as it is now."""
        return permit.visible(await self._sources.snapshot(permit.catalog, self._sandbox.queries))
