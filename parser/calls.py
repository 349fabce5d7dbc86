"""``CALL system.procedure('zone', ARRAY[...])``: the procedures that bring partitions back, and those that put
zones of store servers at rest.

Grammar::

    CALL [system.]reset_partitions ('zone' [, ARRAY[number, ...] [, ARRAY['node', ...] [, 'node']]])
    CALL [system.]restart_partitions ('zone' [, ARRAY[number, ...] [, ARRAY['node', ...]]])
    CALL [system.]reset_lost_partitions | activate_zone | deactivate_zone ('zone')

Without numbers the call covers every partition that needs it, or every one. Nodes of a reset are those that are
known to be dead, and the last argument is the one whose copy is used; without nodes of a restart every living
one is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from sqlglot.tokenizer_core import TokenType

from catalog.core.errors import ErrorKind
from catalog.core.messages import Position
from parser.rules import RuleParser

T = TypeVar("T")

SCHEMA = "SYSTEM"
DIGITS_MAX = 9


class Procedure(Enum):
    """Procedures that CALL knows, all in the schema SYSTEM."""

    RESET_PARTITIONS = "RESET_PARTITIONS"
    RESTART_PARTITIONS = "RESTART_PARTITIONS"
    RESET_LOST_PARTITIONS = "RESET_LOST_PARTITIONS"
    ACTIVATE_ZONE = "ACTIVATE_ZONE"
    DEACTIVATE_ZONE = "DEACTIVATE_ZONE"

    @property
    def is_of_groups(self) -> bool:
        """Check that it is about partitions that are replication groups; the others are about zones of store
        servers."""
        return self in (Procedure.RESET_PARTITIONS, Procedure.RESTART_PARTITIONS)


@dataclass(frozen=True, slots=True)
class PlacedArgument(Generic[T]):
    """An argument and where it stands."""

    value: T
    position: Position


@dataclass(frozen=True, slots=True)
class Call:
    """``partitions`` and ``nodes`` are empty when they are not given. ``nodes``: of a reset those that are
    known to be dead. ``source``: whose copy a reset uses; None: the best."""

    procedure: Procedure
    zone: PlacedArgument[str]
    partitions: tuple[PlacedArgument[int], ...]
    nodes: tuple[PlacedArgument[str], ...]
    position: Position
    source: PlacedArgument[str] | None = None


class CallRules(RuleParser):
    """Reads what follows CALL."""

    def call(self) -> Call:
        position = self.place(self._curr)
        procedure = self._procedure()
        self.need(TokenType.L_PAREN, "(")
        zone = self._text("a zone's name in single quotes")
        partitions: tuple[PlacedArgument[int], ...] = ()
        nodes: tuple[PlacedArgument[str], ...] = ()
        source: PlacedArgument[str] | None = None
        if procedure.is_of_groups and self.take(TokenType.COMMA):
            partitions = self._array(self._number)
            if self.take(TokenType.COMMA):
                nodes = self._array(self._node)
                if procedure is Procedure.RESET_PARTITIONS and self.take(TokenType.COMMA):
                    source = self._node()
        self.need(TokenType.R_PAREN, ")")
        self.expect_end()
        return Call(procedure, zone, partitions, nodes, position, source)

    def _procedure(self) -> Procedure:
        known = {member.value: member for member in Procedure}
        expected = " or ".join(f"system.{name.lower()}" for name in known)
        start = self._curr
        if self.keyword() == SCHEMA and self._next is not None and self._next.token_type is TokenType.DOT:
            self._advance()
            self._advance()
        procedure = known.get(self.keyword())
        if procedure is None:
            if self.keyword():
                message = f"unknown procedure; accepted: {expected}"
                self.refuse(ErrorKind.STATEMENT_NOT_SUPPORTED, message, start)
            self.fail(expected)
        self._advance()
        return procedure

    def _array(self, element: Callable[[], PlacedArgument[T]]) -> tuple[PlacedArgument[T], ...]:
        if not self.take_keyword("ARRAY"):
            self.fail("ARRAY[...]")
        self.need(TokenType.L_BRACKET, "[")
        elements: list[PlacedArgument[T]] = []
        if not self.take(TokenType.R_BRACKET):
            elements.append(element())
            while self.take(TokenType.COMMA):
                elements.append(element())
            self.need(TokenType.R_BRACKET, "]")
        return tuple(elements)

    def _number(self) -> PlacedArgument[int]:
        token = self._curr
        if token is None or token.token_type is not TokenType.NUMBER:
            self.fail("a partition's number")
        if not token.text.isdigit() or len(token.text) > DIGITS_MAX:
            self.fail("a partition's number", "it has digits only")
        self._advance()
        return PlacedArgument(int(token.text), self.place(token))

    def _node(self) -> PlacedArgument[str]:
        return self._text("a node's name in single quotes")

    def _text(self, what: str) -> PlacedArgument[str]:
        token = self.take(TokenType.STRING)
        if token is None:
            self.fail(what)
        return PlacedArgument(token.text, self.place(token))
