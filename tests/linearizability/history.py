"""Requests of clients and their answers, with times of one clock: the material of the checker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path


class Action(Enum):
    """A register's operations; a key that was never put, or was deleted, has the value None."""

    PUT = "put"
    DELETE = "delete"
    GET = "get"
    CAS = "cas"
    """Compare and set: ``value`` replaces ``expected``; told whether it did."""


@dataclass(frozen=True, slots=True)
class Operation:
    """``returned`` None: the outcome is unknown, so it takes effect at some time after ``invoked``, or never.

    ``value``: what is written, or what a get was told. ``succeeded``: what a compare-and-set was told. Times
    are nanoseconds of one monotonic clock.
    """

    client: int
    key: str
    action: Action
    value: str | None
    invoked: int
    returned: int | None
    expected: str | None = None
    succeeded: bool = True

    @property
    def changes(self) -> bool:
        """False for what leaves the value as it is, when it is told what this was told."""
        return self.action is not Action.GET and self.succeeded

    @property
    def blind(self) -> bool:
        """True if the answer does not depend on the value."""
        return self.action in (Action.PUT, Action.DELETE)

    def fits(self, state: str | None) -> bool:
        """True if a register that holds ``state`` would have answered as this one was answered."""
        match self.action:
            case Action.GET:
                return state == self.value
            case Action.CAS:
                return (state == self.expected) is self.succeeded
            case _:
                return True


class Recorder:
    """One per run, in one process. Operations that fail for certain are left out by the caller."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._open: dict[int, Operation] = {}

    def begin(self, client: int, key: str, action: Action, value: str | None = None) -> int:
        """A handle for ``end``."""
        invoked = time.monotonic_ns()
        handle = len(self._open) + len(self.operations)
        while handle in self._open:
            handle += 1
        self._open[handle] = Operation(client, key, action, value, invoked, None)
        return handle

    def end(self, handle: int, told: str | None = None) -> Operation:
        """``told``: what a get was told."""
        begun = self._open.pop(handle)
        value = told if begun.action is Action.GET else begun.value
        ended = replace(begun, value=value, returned=time.monotonic_ns())
        self.operations.append(ended)
        return ended

    def leave_open(self, handle: int) -> None:
        """The outcome stays unknown. A get without an answer says nothing."""
        begun = self._open.pop(handle)
        if begun.action is not Action.GET:
            self.operations.append(begun)

    def history(self) -> list[Operation]:
        """All of it; what is under way now counts as unknown."""
        return [*self.operations, *(each for each in self._open.values() if each.action is not Action.GET)]


def write(path: Path, operations: Iterable[Operation]) -> None:
    """One JSON object a line."""
    with path.open("w") as stream:
        for each in operations:
            stream.write(json.dumps({**asdict(each), "action": each.action.value}) + "\n")


def read(path: Path) -> list[Operation]:
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [Operation(**{**found, "action": Action(found["action"])}) for found in lines]
