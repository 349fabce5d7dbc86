"""Is a history linearizable? Each key is a register of its own, so each is judged alone.

The events of a key are gone through in order of time, with the set of all ways in which the operations so far
can have taken effect (a *configuration*: the value, and which of the operations under way have taken effect
already). When an operation returns, every configuration is continued by operations under way until it has
taken effect; what cannot be is dropped. No configuration left: no order explains what the clients were told.
It is the search of Wing and Gong with the memory of Lowe's "just in time" variant, and three cuts that lose
nothing:
- what does not change the value takes effect as soon as the value is the one it was told;
- a write of unknown outcome takes effect no earlier than something is under way that is told its value;
- of two configurations that differ only in operations of unknown outcome, the one that has used fewer is
  enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.linearizability.history import Operation

SHOWN = 12


@dataclass(frozen=True, slots=True)
class Violation:
    """``operation`` is the first in order of returns that nothing explains."""

    key: str
    operation: Operation
    before: tuple[Operation, ...]
    """Operations of the key that began or ended shortly before, the last ones."""

    def __str__(self) -> str:
        lines = "\n".join(f"  {each}" for each in self.before)
        return f"key {self.key}: nothing explains {self.operation}\nafter\n{lines}"


@dataclass(frozen=True, slots=True)
class _Configuration:
    """``done``: operations under way, by index, that have taken effect."""

    state: str | None
    done: frozenset[int]


def violations(history: Iterable[Operation], *, own_order: bool = False) -> list[Violation]:
    """One for each key whose history is not linearizable; empty when all of it is. ``own_order``: each client's
    writes of unknown outcome also take effect before its next acknowledged write of the key, or never."""
    by_key: defaultdict[str, list[Operation]] = defaultdict(list)
    for each in history:
        by_key[each.key].append(each)
    found = (_judge(key, operations, own_order) for key, operations in sorted(by_key.items()))
    return [each for each in found if each is not None]


def _judge(key: str, operations: Sequence[Operation], own_order: bool) -> Violation | None:
    ends = _ends(operations) if own_order else {}
    under_way: set[int] = set()
    open_ended = frozenset(index for index, each in enumerate(operations) if each.returned is None)
    configurations = {_Configuration(None, frozenset())}
    for _, is_return, index in _events(operations):
        if not is_return:
            under_way.add(index)
            continue
        ways = _Ways(operations, under_way, index, open_ended, ends)
        configurations = ways.continued(configurations)
        over = {index, *(given_up for given_up, end in ends.items() if end == index)}
        under_way -= over
        configurations = {_Configuration(each.state, each.done - over) for each in configurations}
        if not configurations:
            return Violation(key, operations[index], _shortly_before(operations, index))
    return None


def _ends(operations: Sequence[Operation]) -> dict[int, int]:
    """Client's next acknowledged write for each write of unknown outcome, which that one has abandoned."""
    ends: dict[int, int] = {}
    following: dict[int, int] = {}
    for index in sorted(range(len(operations)), key=lambda index: operations[index].invoked, reverse=True):
        each = operations[index]
        if each.blind and each.returned is not None:
            following[each.client] = index
        elif each.blind and each.client in following:
            ends[index] = following[each.client]
    return ends


def _events(operations: Sequence[Operation]) -> list[tuple[int, bool, int]]:
    """(time, is it a return, index). In one instant, begins come first: such operations overlap."""
    events = [(each.invoked, False, index) for index, each in enumerate(operations)]
    events += [
        (each.returned, True, index) for index, each in enumerate(operations) if each.returned is not None
    ]
    return sorted(events)


def _shortly_before(operations: Sequence[Operation], index: int) -> tuple[Operation, ...]:
    until = operations[index].returned or 0
    earlier = [each for each in operations if each.invoked <= until and each is not operations[index]]
    return tuple(sorted(earlier, key=lambda each: each.returned or each.invoked)[-SHOWN:])


@dataclass(frozen=True, slots=True)
class _Ways:
    """Continuations of configurations until ``returning`` has taken effect."""

    operations: Sequence[Operation]
    under_way: set[int]
    returning: int
    open_ended: frozenset[int]
    ends: Mapping[int, int]

    def continued(self, configurations: set[_Configuration]) -> set[_Configuration]:
        ended: set[_Configuration] = set()
        seen = set(configurations)
        stack = list(configurations)
        while stack:
            current = self._with_free_effects(stack.pop())
            if self.returning in current.done:
                ended.add(_Configuration(current.state, current.done - {self.returning}))
                continue
            for index in self._writes(current):
                operation = self.operations[index]
                following = _Configuration(operation.value, current.done | {index})
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        return self._smallest(ended)

    def _writes(self, current: _Configuration) -> list[int]:
        """Writes that may change the value next. One of unknown outcome is among them only if an operation
        under way has its value as answer: it can wait until then."""
        waiting = self.under_way - current.done
        told = [self.operations[index] for index in waiting if not self.operations[index].blind]
        found = []
        for index in waiting:
            each = self.operations[index]
            if not each.changes or not each.fits(current.state) or self.ends.get(index) in current.done:
                continue
            if index in self.open_ended and not any(
                other is not each and other.fits(each.value) for other in told
            ):
                continue
            found.append(index)
        return found

    def _with_free_effects(self, current: _Configuration) -> _Configuration:
        free = {
            index
            for index in self.under_way - current.done
            if not self.operations[index].changes and self.operations[index].fits(current.state)
        }
        return _Configuration(current.state, current.done | free) if free else current

    def _smallest(self, ended: set[_Configuration]) -> set[_Configuration]:
        groups: defaultdict[tuple[str | None, frozenset[int]], list[frozenset[int]]] = defaultdict(list)
        for each in sorted(ended, key=lambda each: len(each.done & self.open_ended)):
            used, rest = each.done & self.open_ended, each.done - self.open_ended
            kept = groups[(each.state, rest)]
            if not any(other <= used for other in kept):
                kept.append(used)
        return {_Configuration(state, rest | used) for (state, rest), kept in groups.items() for used in kept}
