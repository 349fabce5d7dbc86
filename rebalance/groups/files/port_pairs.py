"""The port pairs of one node: its members and its mirrors take theirs from the same range."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rebalance.core.causes.cause import Cause
from rebalance.hosting.free_ports import is_free
from rebalance.ports.groups import NoPlaceError


class PortPairs:
    """Pairs of neighbours in ``ports``, from its first port on. Nothing is bound by taking one."""

    def __init__(self, ports: range, host: str, probe: Callable[[int, str], bool] = is_free) -> None:
        if len(ports) < 2:
            raise ValueError(f"a port range of at least two ports is needed, not {ports}")
        self.host = host
        self._ports = ports
        self._probe = probe
        self._taken: set[int] = set()
        self._next = 0

    def claim(self, first: int) -> None:
        """A pair that was taken in an earlier run."""
        self._taken.add(first)
        self._next = max(self._next, (first - self._ports.start) // 2 + 1)

    def take(self, besides: Collection[int] = ()) -> int:
        """The first port of a free pair, none of ``besides``. Each search goes on where the last one ended: a
        freed pair rests as long as others are left, because clients may follow its old address for a moment.
        Raises NoPlaceError."""
        pairs = len(self._ports) // 2
        for offset in range(pairs):
            index = (self._next + offset) % pairs
            first = self._ports.start + 2 * index
            is_taken = first in self._taken or first in besides
            if not is_taken and all(self._probe(port, self.host) for port in (first, first + 1)):
                self._next = index + 1
                self._taken.add(first)
                return first
        raise NoPlaceError(
            Cause.NO_FREE_PORTS.text(f"none of {pairs} pairs in {self._ports.start}-{self._ports.stop - 1}")
        )

    def single(self, port: int) -> int:
        """``port``, which is for something else than members; where a pair of an earlier run has it, the first
        of a free pair. Raises NoPlaceError."""
        return self.take() if self._taken & {port - 1, port} else port

    def free(self, first: int) -> None:
        self._taken.discard(first)
