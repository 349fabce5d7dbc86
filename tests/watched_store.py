"""A real metastore as an onlooker sees it: every revision below a prefix, in order, from one watch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from rebalance.core.txn import KeyValue
from rebalance.ports.metastore import KeyEvent, Metastore, Snapshot, WatchReset

Observer = Callable[[int, tuple[KeyEvent, ...]], None]


class WatchedStore:
    """An ``ObservedStore`` for the simulator's auditor. ``run`` until it is cancelled."""

    def __init__(self, metastore: Metastore, prefix: str) -> None:
        self._metastore = metastore
        self._prefix = prefix
        self._items: dict[str, KeyValue] = {}
        self._observers: list[Observer] = []
        self.revision = 0

    def observe(self, observer: Observer) -> Callable[[], None]:
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def peek(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def range_now(self, prefix: str) -> Snapshot:
        found = sorted(key for key in self._items if key.startswith(prefix))
        return Snapshot(self.revision, tuple(self._items[key] for key in found))

    async def run(self) -> None:
        """A gap in the history would hide what the invariants are about: it fails."""
        async for change in self._metastore.watch(self._prefix):
            if isinstance(change, WatchReset):
                assert not self.revision, f"the watch lost its place after revision {self.revision}"
                self._items = {item.key: item for item in change.snapshot.items}
                self.revision = change.snapshot.revision
                continue
            for revision, events in groupby(change.events, lambda event: event.mod_revision):
                assert revision > self.revision, f"revision {revision} after {self.revision}"
                self._apply(revision, tuple(events))

    def _apply(self, revision: int, events: tuple[KeyEvent, ...]) -> None:
        self.revision = revision
        for event in events:
            if event.current is None:
                self._items.pop(event.key, None)
            else:
                self._items[event.key] = event.current
        for observer in self._observers:
            observer(revision, events)
