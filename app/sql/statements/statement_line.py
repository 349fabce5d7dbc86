"""Lines in which statements, and queries among them, wait for their turn.

In ``StatementLine`` so many statements run at once, of every kind and protocol, and so many wait. A logged
statement is counted when it is accepted, any other one when the engine gets it. Queries then wait for one of
their own few places, in a ``QueryLine`` of the sandboxes. That is a value that knows neither time nor
processes.

Invariants of it: at most ``places`` queries run, of those at most ``places - kept`` that are not cheap, so that
a place is always soon free for a cheap one. The next place goes to the address with the fewest running
queries, then to the user with the fewest, then to the one served longest ago, then to the first to come.
Addresses come before users, for a client can make up names. No client or address can fill the line: each has a
part of it.

DDL of a logged statement goes into the catalog's history under ids of a context variable, because between the
log (outermost) and the commit (innermost, in the worker thread) lie engines that need not know of it: whatever
runs inside ``numbered`` commits under ids that the log can find again after its server has died.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from app.requests.context import current_actor, current_principal, holding
from catalog.core.authorisation import Caller, Held, Principal
from catalog.core.credentials import is_within
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.statement_log import part_id
from rebalance.hosting.client_connections import network_of


@dataclass
class _Parts:
    statement_id: str
    given: int = 0


_CURRENT: ContextVar[_Parts | None] = ContextVar("logged_statement", default=None)


def numbered(statement_id: str) -> AbstractContextManager[None]:
    """DDL inside the block, in the order of its execution, is ``part_id(statement_id, 1)``, 2, ..."""
    return holding(_CURRENT, _Parts(statement_id))


def next_statement_id() -> str:
    """The id of the DDL statement that is about to run; outside ``numbered`` a new one."""
    parts = _CURRENT.get()
    if parts is None:
        return uuid.uuid4().hex
    parts.given += 1
    return part_id(parts.statement_id, parts.given)


def current_statement_id() -> str:
    """Id of the logged statement that runs; empty outside of ``numbered``."""
    parts = _CURRENT.get()
    return parts.statement_id if parts is not None else ""


@dataclass(frozen=True, slots=True)
class LineLimits:
    """``kept`` places are for cheap queries only. ``waiting_max`` in all, ``of_address`` of one address and
    ``of_client`` of one user there; ``running_of_user``: so many of one run at once, None: any number.
    ``noun``: what waits, for messages."""

    places: int = 3
    kept: int = 1
    waiting_max: int = 100
    of_address: int = 60
    of_client: int = 20
    noun: str = "queries"
    running_of_user: int | None = None


@dataclass(frozen=True, slots=True)
class QueryClient:
    """``user`` is for people; ``principal``: whose the query is, None where no login is required. ``scope``:
    that of its token, which does not make its user another client."""

    address: str = ""
    user: str = ""
    principal: Principal | None = None
    scope: Held | None = field(default=None, compare=False)

    @property
    def network(self) -> str:
        """Network of the address, which is counted as one address."""
        return network_of(self.address)

    @property
    def sender(self) -> Hashable:
        """Equal for all that one user sends, wherever from."""
        return self if self.principal is None else self.principal

    def is_within(self, caller: Caller) -> bool:
        """True if the query is the caller's, and was run with no broader scope than the caller has."""
        return self.principal == caller.principal and is_within(self.scope, caller.scope)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A query in line, or running. ``is_cheap``: it reads no table, or a short one, and may use any place."""

    number: int
    client: QueryClient
    is_cheap: bool


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """A query that runs (``position`` 0) or waits, for people. ``statement_id`` is empty for one that is not
    logged; times are milliseconds."""

    statement_id: str
    position: int
    client: QueryClient
    is_cheap: bool
    waited_ms: int
    ran_ms: int
    sql: str


class QueryLine:
    def __init__(self, limits: LineLimits | None = None) -> None:
        self._limits = limits or LineLimits()
        self._waiting: dict[int, Ticket] = {}
        self._running: dict[int, Ticket] = {}
        self._numbers = 0
        self._served = 0
        # A client without a query here is forgotten: the dictionary is no longer than the line.
        self._served_at: dict[QueryClient | str, int] = {}
        self._order: tuple[Ticket, ...] | None = None

    def arrive(self, client: QueryClient, *, is_cheap: bool, has_waited: bool = False) -> Ticket:
        """Puts a query at the end. ``has_waited``: in another line, whose limits it passed.
        Raises RefusedError: TOO_MANY_STATEMENTS, CLIENT_STATEMENT_LIMIT."""
        if not has_waited:
            self._check_limits(client)
        self._numbers += 1
        self._order = None
        ticket = Ticket(self._numbers, client, is_cheap)
        self._waiting[ticket.number] = ticket
        return ticket

    def _check_limits(self, client: QueryClient) -> None:
        limits = self._limits
        waiting = self._waiting.values()
        if len(waiting) >= limits.waiting_max:
            message = (
                f"{limits.waiting_max} {limits.noun} wait already, which is the longest that the line may be"
            )
            raise RefusedError(ErrorKind.TOO_MANY_STATEMENTS, message)
        if sum(query.client == client for query in waiting) >= limits.of_client:
            message = f"{limits.of_client} {limits.noun} of this user and address wait already"
            raise RefusedError(ErrorKind.CLIENT_STATEMENT_LIMIT, message)
        if sum(query.client.network == client.network for query in waiting) >= limits.of_address:
            message = f"{limits.of_address} {limits.noun} of this address wait already"
            raise RefusedError(ErrorKind.CLIENT_STATEMENT_LIMIT, message)

    def admit(self) -> tuple[Ticket, ...]:
        """The queries that begin now, in order; they have left the line and run."""
        admitted: list[Ticket] = []
        while (ticket := self._next()) is not None:
            self._order = None
            del self._waiting[ticket.number]
            self._running[ticket.number] = ticket
            self._served += 1
            self._served_at[ticket.client] = self._served_at[ticket.client.network] = self._served
            admitted.append(ticket)
        return tuple(admitted)

    def demote(self, number: int) -> None:
        """A running query that was taken for cheap gives its place back and waits with the others, as early
        as it came."""
        self._order = None
        ticket = self._running.pop(number)
        self._waiting[number] = replace(ticket, is_cheap=False)

    def leave(self, number: int) -> None:
        """Remove a query that is over, or whose client has gone."""
        self._order = None
        self._running.pop(number, None)
        self._waiting.pop(number, None)
        present = [query.client for query in (*self._waiting.values(), *self._running.values())]
        known = {*present, *(client.network for client in present)}
        self._served_at = {who: at for who, at in self._served_at.items() if who in known}

    @property
    def running(self) -> tuple[Ticket, ...]:
        return tuple(self._running.values())

    def waiting(self) -> tuple[Ticket, ...]:
        """Queries that wait, in the order in which they would begin if each place became free at once."""
        if self._order is None:
            self._order = self._ahead()
        return self._order

    def _ahead(self) -> tuple[Ticket, ...]:
        ahead = self._copy()
        order: list[Ticket] = []
        while ahead._waiting:
            begun = ahead.admit()
            order.extend(begun)
            for ticket in begun or tuple(ahead._running.values()):
                ahead._running.pop(ticket.number)
        return tuple(order)

    def _copy(self) -> QueryLine:
        copy = QueryLine(self._limits)
        copy._waiting, copy._running = dict(self._waiting), dict(self._running)
        copy._served, copy._served_at = self._served, dict(self._served_at)
        return copy

    def _next(self) -> Ticket | None:
        limits = self._limits
        if len(self._running) >= limits.places:
            return None
        heavy = sum(not query.is_cheap for query in self._running.values())
        open_to_all = heavy < limits.places - limits.kept
        running_max = limits.places if limits.running_of_user is None else limits.running_of_user
        of_address = Counter(query.client.network for query in self._running.values())
        of_client = Counter(query.client for query in self._running.values())
        of_user = Counter(query.client.sender for query in self._running.values())
        ready = [
            query
            for query in self._waiting.values()
            if (query.is_cheap or open_to_all) and of_user[query.client.sender] < running_max
        ]
        if not ready:
            return None

        def turn(ticket: Ticket) -> tuple[int, ...]:
            client = ticket.client
            return (
                of_address[client.network],
                of_client[client],
                self._served_at.get(client.network, 0),
                self._served_at.get(client, 0),
                ticket.number,
            )

        return min(ready, key=turn)


RUNNING_MAX = 64
OF_CLIENT_MAX = 24
"""Statements of one user that run at once, at most: each that has begun holds its text and its results in
memory."""
WAITING_MAX = 1_000


def statement_limits(running_max: int = RUNNING_MAX, waiting_max: int = WAITING_MAX) -> LineLimits:
    """Three fifths of the line are the most for one address: others find room beside it."""
    of_address = max(1, waiting_max * 3 // 5)
    of_client = min(running_max, OF_CLIENT_MAX)
    return LineLimits(running_max, 0, waiting_max, of_address, of_address, "statements", of_client)


class StatementTurn:
    """Turn of one statement, from its acceptance to its end. ``number`` grows with each that is accepted;
    ``has_waited``: it did not begin at once."""

    def __init__(self, line: StatementLine, number: int) -> None:
        self.line = line
        self.number = number
        self.is_over = False
        self.has_waited = False
        self.begins = asyncio.Event()


_ACCEPTED: ContextVar[StatementTurn | None] = ContextVar("accepted statement", default=None)


def accepted(turn: StatementTurn) -> AbstractContextManager[None]:
    """Give this turn to all that is run inside the block, so that it does not arrive again."""
    return holding(_ACCEPTED, turn)


def has_waited() -> bool:
    """True if what runs here was accepted, and waited for its turn: it is not to be refused any more."""
    turn = _ACCEPTED.get()
    return turn is not None and turn.has_waited


class StatementLine:
    """One server's. Belongs to an event loop."""

    def __init__(self, limits: LineLimits | None = None) -> None:
        self._line = QueryLine(limits or statement_limits())
        self._turns: dict[int, StatementTurn] = {}

    @property
    def waiting(self) -> int:
        """Statements that were accepted, and have not begun."""
        return sum(not turn.begins.is_set() for turn in self._turns.values())

    @property
    def running(self) -> int:
        return len(self._turns) - self.waiting

    def arrive(self) -> StatementTurn:
        """Accept a statement of the current caller; ``leave`` ends it. Raises RefusedError:
        TOO_MANY_STATEMENTS, CLIENT_STATEMENT_LIMIT."""
        actor = current_actor()
        client = QueryClient(actor.address, actor.name, current_principal())
        ticket = self._line.arrive(client, is_cheap=True)
        turn = self._turns[ticket.number] = StatementTurn(self, ticket.number)
        self._admit()
        turn.has_waited = not turn.begins.is_set()
        return turn

    def leave(self, turn: StatementTurn) -> None:
        """Any number of times."""
        if not turn.is_over:
            turn.is_over = True
            del self._turns[turn.number]
            self._line.leave(turn.number)
            self._admit()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The block runs when the statement's turn has come. Raises as ``arrive`` does."""
        turn = _ACCEPTED.get()
        if turn is None or turn.is_over or turn.line is not self:
            turn = self.arrive()
        try:
            await turn.begins.wait()
            yield
        finally:
            self.leave(turn)

    def position(self, turn: StatementTurn) -> int | None:
        """Number of statements that came before it and wait still, and itself; None when it does not wait."""
        if turn.is_over or turn.begins.is_set():
            return None
        return sum(other.number <= turn.number for other in self._turns.values() if not other.begins.is_set())

    def _admit(self) -> None:
        for ticket in self._line.admit():
            self._turns[ticket.number].begins.set()
