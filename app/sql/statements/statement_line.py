"""Whose statement runs next: so many run at once, of every kind and protocol, and so many wait for their turn.

A logged statement is counted when it is accepted, any other one when the engine gets it. Among those that wait,
who has the least goes first (``app.sql.statements.query_line``); queries then wait for one of their own few
places.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from app.requests.actor import current_actor, current_principal
from app.sql.statements.query_line import LineLimits, QueryClient, QueryLine

RUNNING_MAX = 64
OF_CLIENT_MAX = 24
"""What has begun holds its statements and their results in memory."""
WAITING_MAX = 1_000


def statement_limits(running_max: int = RUNNING_MAX, waiting_max: int = WAITING_MAX) -> LineLimits:
    """Three fifths of the line are the most for one address: others find room beside it."""
    of_address = max(1, waiting_max * 3 // 5)
    of_client = min(running_max, OF_CLIENT_MAX)
    return LineLimits(running_max, 0, waiting_max, of_address, of_address, "statements", of_client)


class StatementTurn:
    """Of one statement, from its acceptance to its end. ``number`` grows with each that is accepted;
    ``has_waited``: it did not begin at once."""

    def __init__(self, line: StatementLine, number: int) -> None:
        self.line = line
        self.number = number
        self.is_over = False
        self.has_waited = False
        self.begins = asyncio.Event()


_ACCEPTED: ContextVar[StatementTurn | None] = ContextVar("accepted statement", default=None)


@contextmanager
def accepted(turn: StatementTurn) -> Iterator[None]:
    """What is run inside the block has this turn already."""
    before = _ACCEPTED.set(turn)
    try:
        yield
    finally:
        _ACCEPTED.reset(before)


def has_waited() -> bool:
    """Whether what runs here was accepted, and waited for its turn: it is not to be refused any more."""
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
        """Accepts a statement of whoever is acting; ``leave`` ends it. Raises RefusedError:
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
        """How many came before it and wait still, and itself; None when it does not wait."""
        if turn.is_over or turn.begins.is_set():
            return None
        return sum(other.number <= turn.number for other in self._turns.values() if not other.begins.is_set())

    def _admit(self) -> None:
        for ticket in self._line.admit():
            self._turns[ticket.number].begins.set()
