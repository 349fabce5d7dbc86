"""What statements pass, however they came."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from app.security.standing import StandingWatch
from app.sql.statements.script_reader import ScriptReader
from app.sql.statements.statement_line import StatementLine
from app.sql.statements.statement_meter import StatementMeter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StatementGate:
    """``reader`` is closed with the engine; in ``line`` statements wait for their turn. ``watch`` None: nobody
    has to log in."""

    reader: ScriptReader = field(default_factory=ScriptReader)
    line: StatementLine = field(default_factory=StatementLine)
    meter: StatementMeter = field(default_factory=StatementMeter)
    watch: StandingWatch | None = None

    async def while_allowed(self, work: Coroutine[Any, Any, T]) -> T:
        """``work`` that takes long, which ends with an error when the caller may not go on."""
        return await (work if self.watch is None else self.watch.during(work))
