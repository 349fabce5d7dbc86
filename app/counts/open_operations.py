"""Operations that have not ended: each record is read when it changes."""

from __future__ import annotations

from collections.abc import Collection

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.operations.operation import Operation
from rebalance.metastore.mirror import KeyspaceMirror


class OpenOperations:
    """Over a mirror of the whole keyspace, for as long as that lives."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self._mirror = mirror
        self._prefix = keyspace.operations
        self._open: dict[str, Operation] = {}
        self._changed = {item.key for item in mirror.below(self._prefix)}
        mirror.listen(self._on_change)

    def all(self) -> Collection[Operation]:
        changed, self._changed = self._changed, set()
        for key in changed:
            operation = read(self._mirror.get(key), Operation.decode)
            if operation is None or isinstance(operation, Unreadable) or operation.is_over:
                self._open.pop(key, None)
            else:
                self._open[key] = operation
        return self._open.values()

    def _on_change(self, changed: frozenset[str]) -> None:
        self._changed.update(key for key in changed if key.startswith(self._prefix))
