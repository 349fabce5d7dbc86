"""Step 1 for a whole zone: the decisions of ``decide_on_trigger``, made faster where a partition is as usual.

As usual means: nothing below its ``assignments/`` but, perhaps, stable and trigger. That is every partition of
a zone that is created, or altered while nothing moves. Such a partition's guard is one compare over the range
of its assignment keys. Any other one is for ``decide_on_trigger`` itself, with a guard for each key. A property
test holds the two together (``tests/property/test_bulk_write.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from rebalance.core.admission.move_admission import Move, move_of
from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.guarded_write import (
    Decision,
    Observed,
    Outcome,
    decide_on_trigger,
    decode_trigger,
    encode_trigger,
)
from rebalance.core.assignments.target import StoredTarget, available_target
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import KeyValue, Put, Txn, not_written_below

ASSIGNMENTS = "assignments/"
STABLE = "assignments/stable"
TRIGGER = "assignments/change.trigger.revision"


class ZoneKeys:
    """The assignment keys of one zone, read at ``revision``, by partition number."""

    def __init__(self, prefix: str, revision: int) -> None:
        """``prefix``: of the zone's partitions, with the slash at its end."""
        self.prefix = prefix
        self.revision = revision
        self._stable: dict[int, KeyValue] = {}
        self._trigger: dict[int, KeyValue] = {}
        self._others: dict[int, list[KeyValue]] = {}

    def add(self, items: Iterable[KeyValue]) -> None:
        start = len(self.prefix)
        for item in items:
            number, _, rest = item.key[start:].partition("/")
            if not (number.isascii() and number.isdecimal()):
                continue
            if rest == STABLE:
                self._stable[int(number)] = item
            elif rest == TRIGGER:
                self._trigger[int(number)] = item
            elif rest.startswith(ASSIGNMENTS):
                self._others.setdefault(int(number), []).append(item)

    def is_usual(self, number: int) -> bool:
        return number not in self._others

    def stable(self, number: int) -> KeyValue | None:
        return self._stable.get(number)

    def trigger(self, number: int) -> KeyValue | None:
        return self._trigger.get(number)

    def of(self, number: int) -> tuple[KeyValue, ...]:
        """Every assignment key of a partition."""
        pair = self._stable.get(number), self._trigger.get(number)
        return (*(item for item in pair if item is not None), *self._others.get(number, ()))


class BulkDecisions:
    """Decisions of one event about a zone. What repeats among partitions is encoded and decoded once."""

    def __init__(self, target: StoredTarget, strategy: Strategy = Strategy.QUEUE) -> None:
        """``strategy``: of the moves that begin. Raises ValueError when chunks of ``target`` are missing."""
        self.event_revision = target.pointer.event_revision
        self._targets = target.rows()
        self._trigger_value = encode_trigger(self.event_revision)
        self._strategy = strategy
        self._encoded: dict[bytes, tuple[bytes, bytes]] = {}
        self._moves: dict[tuple[bytes, bytes], Move] = {}
        self._decoded = cache(Assignments.decode)
        self._processed = cache(decode_trigger)
        self._target = target

    def target(self, number: int) -> Assignments:
        return self._target.assignments_of(self._targets[number])

    def move(self, stable: bytes, number: int) -> Move:
        """Return the move that takes partition ``number`` from this stable value to what it can get of the
        target."""
        row = self._targets[number]
        move = self._moves.get((stable, row))
        if move is None:
            held = self._decoded(stable)
            target = available_target(self._target.assignments_of(row), held, self._target.pointer.gone)
            move = move_of(held, target)
            self._moves[stable, row] = move
        return move

    def is_overtaken(self, trigger: KeyValue | None) -> bool:
        """True if something later than the event was written to the partition: a reset, or a cancel."""
        return trigger is not None and readable(trigger, self._processed) > self.event_revision

    def decide_alone(self, observed: Observed, number: int) -> Decision:
        """Decide about one partition that is not as usual, by ``decide_on_trigger`` itself."""
        stable = readable(observed.stable, Assignments.decode)
        target = available_target(self.target(number), stable, self._target.pointer.gone)
        return decide_on_trigger(observed, target, self.event_revision, strategy=self._strategy)

    def decide(self, keys: ZoneKeys, number: int) -> Decision | None:
        """Return what ``decide_on_trigger`` decides; None when the partition is not as usual. No partition is
        usual while the target has nodes that are gone, which a partition may hold or not."""
        if not keys.is_usual(number) or self._target.pointer.gone:
            return None
        trigger = keys.trigger(number)
        if trigger is not None and readable(trigger, self._processed) >= self.event_revision:
            return Decision(Outcome.OUTDATED_UPDATE_RECEIVED)
        base = f"{keys.prefix}{number}/{ASSIGNMENTS}"
        outcome, writes = self._writes(base, keys.stable(number), self._targets[number])
        # No assignment key goes away but with the zone's pointer, which guards the request: what this compare
        # does not see cannot happen to the keys that were read.
        guard = not_written_below(base, keys.revision)
        processed = Put(f"{base}change.trigger.revision", self._trigger_value)
        return Decision(outcome, Txn((guard,), (*writes, processed)))

    def _writes(self, base: str, stable: KeyValue | None, row: bytes) -> tuple[Outcome, tuple[Put, ...]]:
        encoded = self._encoded.get(row)
        if encoded is None:
            target = self._target.assignments_of(row)
            encoded = target.encode(), replace(target, strategy=self._strategy).encode()
            self._encoded[row] = encoded
        at_rest, moving = encoded
        if stable is None:
            return Outcome.STABLE_KEY_CREATED, (Put(f"{base}stable", at_rest),)
        if stable.value == at_rest or readable(stable, self._decoded) == self._target.assignments_of(row):
            return Outcome.PLANNED_KEY_REMOVED_EMPTY_PENDING, ()
        return Outcome.PENDING_KEY_UPDATED, (Put(f"{base}pending", moving),)
