"""Every error that a statement or a request can end with: one exception tree over one table.

The table (``ErrorKind``) knows what is told to whom; the tree only tells callers apart that must act
differently::

    StatementError            anything refused on purpose; ``kind`` is the row of the table
    +-- ParseError            the text was not understood, or says what is not built: nothing was executed
    +-- RefusedError          understood, but not possible with this catalog or these nodes: nothing was changed
    +-- StoreError            a store did not answer, kept changing, or the outcome is not known
"""

from __future__ import annotations

from catalog.core.error_table import ErrorKind
from catalog.core.messages import Position

__all__ = ["ErrorKind", "ParseError", "RefusedError", "SchemaTooNewError", "StatementError", "StoreError"]


class StatementError(Exception):
    """A statement or request that was refused, with the reason.

    ``line`` and ``column`` are 1-based and point into the whole text that was sent; None where nothing in the
    text is to blame. ``statement`` is the 1-based number of the statement in its script, None outside a script.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        position: Position | None = None,
        statement: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.line = position.line if position else None
        self.column = position.column if position else None
        self.statement = statement

    @property
    def position(self) -> Position | None:
        if self.line is None or self.column is None:
            return None
        return Position(self.line, self.column)

    def __str__(self) -> str:
        where = "" if self.line is None else f" (line {self.line}, column {self.column})"
        return f"{self.kind.name}: {self.message}{where}"


class ParseError(StatementError):
    """The text was not understood, or says something that is not built. Nothing of the script was executed."""


class RefusedError(StatementError):
    """A statement that was understood and checked against the catalog and the nodes. It changed nothing."""


class StoreError(StatementError):
    """A store did not answer, changed too often meanwhile, or did not say whether it had committed."""


class SchemaTooNewError(StoreError):
    """Error of a catalog that this build cannot write: starting it again changes nothing."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorKind.CATALOG_UNAVAILABLE, message)
