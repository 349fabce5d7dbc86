"""Order of queries by user, as a script: those that begin, those that wait, and those that are refused
(``scripts/query_line.txt``).

Queries are named by their numbers. ``who`` is ``address/user``; ``cheap=1`` for one that reads no table.
"""

from __future__ import annotations

from app.sql.statements.statement_line import LineLimits, QueryClient, QueryLine, Ticket
from catalog.core.errors import RefusedError
from tests.datadriven.runner import Block, run_script


def shown(ticket: Ticket) -> str:
    kind = " cheap" if ticket.is_cheap else ""
    return f"{ticket.number} {ticket.client.address}/{ticket.client.user}{kind}"


class Script:
    def __init__(self) -> None:
        self.line = QueryLine()

    def execute(self, block: Block) -> str:
        arguments = block.arguments
        if block.command == "line":
            self.line = QueryLine(LineLimits(**{name: int(value) for name, value in arguments.items()}))
            return "ok"
        said: list[str] = []
        if block.command == "arrive":
            for _ in range(int(arguments.get("count", 1))):
                said += self.arrived(arguments)
        elif block.command == "leave":
            for number in arguments["numbers"].split(","):
                self.line.leave(int(number))
        elif block.command == "demote":
            self.line.demote(int(arguments["number"]))
        said += self.begun()
        waiting = [f"{n}. {shown(ticket)}" for n, ticket in enumerate(self.line.waiting(), start=1)]
        return "\n".join((*said, *waiting)) or "nobody waits"

    def arrived(self, arguments: dict[str, str]) -> list[str]:
        address, _, user = arguments["who"].partition("/")
        try:
            self.line.arrive(QueryClient(address, user), is_cheap=arguments.get("cheap") == "1")
        except RefusedError as refused:
            return [f"{refused.kind.name}: {refused.message}"]
        return self.begun()

    def begun(self) -> list[str]:
        return [f"{shown(ticket)} begins" for ticket in self.line.admit()]


def test_script() -> None:
    run_script("query_line.txt", Script().execute)
