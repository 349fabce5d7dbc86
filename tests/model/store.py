"""The metastore of the model: five keys of one partition, as values that hash, and transactions on them.

A store is five pairs (value, revision of the last write); (None, 0) is an absent key, as a guard sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.change_lock import PendingLock
from rebalance.core.assignments.guarded_write import Decision, Observed, Outcome, decode_trigger, encode_trigger
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Compare, CompareOp, Delete, KeyValue, Put
from rebalance.core.moves.joiners import joiners_of

KEYS = Keyspace().partition(PartitionId(ZoneId(1), 0))
GIVEN_UP = Keyspace().given_up(PartitionId(ZoneId(1), 0))
_LEFT_OUT = (KEYS.configuration, GIVEN_UP)
"""Looked at or written beside the five: what the group has published is not a key here, and who was given up is
only for asking again, which is an event."""
FIELDS = ("stable", "pending", "planned", "trigger", "lock")
STABLE, PENDING, PLANNED, TRIGGER, LOCK = range(5)
_SLOTS = {getattr(KEYS, field): slot for slot, field in enumerate(FIELDS)}

Slot = tuple[bytes | None, int]
Store = tuple[Slot, Slot, Slot, Slot, Slot]
Nodes = frozenset[str]
ABSENT: Slot = (None, 0)


class Write(NamedTuple):
    """A decision's transaction on the slots; ``guards`` are (slot, revision)."""

    outcome: Outcome
    guards: tuple[tuple[int, int], ...]
    puts: tuple[tuple[int, bytes | None], ...]


def initial_store(stable: Assignments) -> Store:
    return (stable.encode(), 1), ABSENT, ABSENT, (encode_trigger(0), 2), ABSENT


@cache
def observed_in(store: Store) -> Observed:
    found = [KeyValue(getattr(KEYS, FIELDS[slot]), value, revision, revision, 1) if value is not None else None
             for slot, (value, revision) in enumerate(store)]  # fmt: skip
    return Observed(KEYS, *found)


@cache
def voters_in(value: bytes) -> Nodes:
    return frozenset(Assignments.decode(value).peers)


@cache
def learners_in(value: bytes) -> Nodes:
    return frozenset(Assignments.decode(value).learners)


@cache
def trigger_in(store: Store) -> int:
    value = store[TRIGGER][0]
    return decode_trigger(value) if value is not None else 0


def joiners_in(store: Store) -> Nodes:
    stable, pending = store[STABLE][0], store[PENDING][0]
    return _joiners(stable, pending) if stable is not None and pending is not None else frozenset()


@cache
def _joiners(stable: bytes, pending: bytes) -> Nodes:
    return frozenset(joiners_of(Assignments.decode(stable), Assignments.decode(pending)))


def write_of(decision: Decision) -> Write | None:
    """The transaction in terms of slots. Of a lock only the term is kept: no decision asks for the rest."""
    if decision.transaction is None:
        return None
    assert not decision.transaction.failure
    guards = tuple(
        (_SLOTS[guard.key], _operand(guard))
        for guard in decision.transaction.compares
        if guard.key not in _LEFT_OUT
    )
    puts: list[tuple[int, bytes | None]] = []
    for operation in decision.transaction.success:
        assert isinstance(operation, Put | Delete)
        if operation.key in _LEFT_OUT:
            continue
        slot = _SLOTS[operation.key]
        value = operation.value if isinstance(operation, Put) else None
        if value is not None and slot == LOCK:
            value = PendingLock(1, term=PendingLock.decode(value).term).encode()
        puts.append((slot, value))
    assert len({slot for slot, _ in puts}) == len(puts), "etcd refuses a key that is written twice"
    return Write(decision.outcome, guards, tuple(puts))


def _operand(guard: Compare) -> int:
    assert guard.op is CompareOp.EQUAL
    return guard.operand


def commit(store: Store, write: Write, next_revision: int) -> Store | None:
    """None when a guard fails."""
    if any(store[slot][1] != revision for slot, revision in write.guards):
        return None
    slots = list(store)
    for slot, value in write.puts:
        slots[slot] = ABSENT if value is None else (value, next_revision)
    return slots[0], slots[1], slots[2], slots[3], slots[4]


def highest(*stores: Store | None) -> int:
    return max(revision for store in stores if store is not None for _, revision in store)


def renumber(revisions: list[int]) -> Callable[[int], int]:
    """Revisions only matter by their order: the same order becomes the same numbers, so that states meet."""
    order = {revision: number for number, revision in enumerate(sorted({0, *revisions}))}
    return order.__getitem__
