"""Transactions as data: conditions, then, else.

A decision returns one of these; a metastore commits it. ``mod_revision`` 0 means "the key is absent", as in
etcd, so one kind of guard covers present and absent keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

OPERATIONS_MAX = 128
"""etcd's limit for one request: outer operations plus the largest inner list (facts: measured)."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as read. Revisions are the metastore's; ``version`` counts the writes since creation."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


class CompareOp(Enum):
    EQUAL = "="
    LESS = "<"
    GREATER = ">"


@dataclass(frozen=True, slots=True)
class Compare:
    """Comparison of the revision at which ``key`` was written last. ``below``: ``key`` is a prefix, and every
    key below it is compared; where there is none, it is as with an absent key."""

    key: str
    op: CompareOp
    operand: int
    below: bool = False


def unchanged(key: str, mod_revision: int) -> Compare:
    """Guard: the key was not written since it was read at ``mod_revision`` (0: it is still absent)."""
    return Compare(key, CompareOp.EQUAL, mod_revision)


def not_written_below(prefix: str, read_revision: int) -> Compare:
    """Guard: no key below ``prefix`` was put after ``read_revision``. It does not see that one was deleted."""
    return Compare(prefix, CompareOp.LESS, read_revision + 1, below=True)


def as_read(key: str, item: KeyValue | None) -> Compare:
    """Guard: ``key`` is what it was when ``item`` was read from it; None: it was absent."""
    return unchanged(key, item.mod_revision if item is not None else 0)


def absent(key: str) -> Compare:
    return unchanged(key, 0)


def present(key: str) -> Compare:
    """Guard: the key exists."""
    return not_before(key, 1)


def not_before(key: str, mod_revision: int) -> Compare:
    """Guard: the key exists, and was not written last before that revision."""
    return Compare(key, CompareOp.GREATER, max(mod_revision - 1, 0))


@dataclass(frozen=True, slots=True)
class Get:
    key: str


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """Keys from ``start`` up to, not including, ``end``."""

    start: str
    end: str


def delete_below(prefix: str) -> DeleteRange:
    """Delete all keys that begin with ``prefix``."""
    return DeleteRange(prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1))


@dataclass(frozen=True, slots=True)
class Txn:
    """All ``compares`` hold: ``success`` runs, else ``failure``; one revision either way."""

    compares: tuple[Compare, ...]
    success: tuple[Operation, ...]
    failure: tuple[Operation, ...] = ()


Operation = Get | Put | Delete | DeleteRange | Txn


@dataclass(frozen=True, slots=True)
class TxnResult:
    """``responses`` follow the branch that ran: key-values for reads, a nested result for a Txn, else None.
    ``term``: of the store's leader, which all leases are renewed by when it is a new one; 0: it has none."""

    succeeded: bool
    revision: int
    responses: tuple[TxnResult | tuple[KeyValue, ...] | None, ...]
    term: int = field(default=0, compare=False)

    def only(self, index: int) -> KeyValue | None:
        """The key that the ``Get`` at ``index`` read; None: it is absent."""
        response = self.responses[index]
        return response[0] if isinstance(response, tuple) and response else None


def operation_count(txn: Txn) -> int:
    """Operations of one request by etcd's rule, to be compared with ``OPERATIONS_MAX``."""
    return max(_branch_count(txn.success), _branch_count(txn.failure), len(txn.compares))


def _branch_count(operations: Iterable[Operation]) -> int:
    operations = tuple(operations)
    inner = (operation_count(operation) for operation in operations if isinstance(operation, Txn))
    return len(operations) + max(inner, default=0)
