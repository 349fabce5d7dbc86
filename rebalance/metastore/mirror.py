"""A local copy of a part of the keyspace, kept up to date by a watch.

A mirror is a hint: it is complete as of its ``revision`` and may lag. Decisions that write guard what they
read by revision, so a stale mirror costs a retry, never a wrong write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from sortedcontainers import SortedList

from rebalance.core.keyspace.txn import KeyValue
from rebalance.ports.metastore import Metastore, WatchBatch, WatchReset

NOTED_S, KEPT_S = 0.5, 60.0
"""Interval at which the revision is noted, and how long notes are kept, in seconds; the last note before that
stays, too."""

Listener = Callable[[frozenset[str]], None]
"""Called with the changed keys after each batch, in the event loop; it must not block or raise."""


class KeyspaceCopy:
    """Keys below ``prefix`` as of one ``revision``. A plain copy never changes: any thread may read it."""

    def __init__(
        self,
        prefix: str,
        revision: int,
        items: dict[str, KeyValue],
        keys: SortedList,
        noted: Iterable[tuple[float, int]] = (),
        at_s: float = 0.0,
    ) -> None:
        """``noted``: revisions, and when they were reached, until ``at_s`` of the same clock."""
        self.prefix = prefix
        self.revision = revision
        self._items = items
        self._keys = keys
        self._noted = deque(noted)
        self._at_s = at_s

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        return True

    def revision_before(self, age_s: float) -> int:
        """One that was reached at least so long ago; 0: none is known. What has not changed since is as old."""
        until_s = self._now_s() - age_s
        return next((revision for noted_s, revision in reversed(self._noted) if noted_s <= until_s), 0)

    def _now_s(self) -> float:
        return self._at_s

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def value(self, key: str) -> bytes | None:
        item = self._items.get(key)
        return item.value if item else None

    def below(self, prefix: str, after: str = "") -> Iterator[KeyValue]:
        """Yield items in key order, beginning after the key ``after``. Over a mirror, the caller must not yield
        to the loop while iterating."""
        for key in self._keys.irange(max(prefix, after), inclusive=(after < prefix, True)):
            if not key.startswith(prefix):
                return
            yield self._items[key]


def names_below(keys: KeyspaceCopy, prefix: str) -> frozenset[str]:
    """Return the names of the keys below ``prefix``."""
    return frozenset(item.key.removeprefix(prefix) for item in keys.below(prefix))


class KeyspaceMirror(KeyspaceCopy):
    """Keys below ``prefix``; ``run`` keeps them current until it is cancelled."""

    def __init__(self, metastore: Metastore, prefix: str) -> None:
        super().__init__(prefix, 0, {}, SortedList())
        self._metastore = metastore
        self._copy: KeyspaceCopy | None = None
        self._listeners: list[Listener] = []
        self._changed = asyncio.Condition()
        self._waiting = 0
        self._loaded = asyncio.Event()
        self._clock: Callable[[], float] = lambda: 0.0

    async def run(self) -> None:
        self._clock = asyncio.get_running_loop().time
        # A run before this one may have ended before every listener heard of what it had read.
        unheard = frozenset(self._items)
        async for change in self._metastore.watch(self.prefix):
            self._copy = None
            if isinstance(change, WatchReset):
                changed = self._reset(change) | unheard
                unheard = frozenset()
            else:
                changed = self._apply(change)
            self._note()
            self._loaded.set()
            for listener in self._listeners:
                listener(changed)
            if self._waiting:
                async with self._changed:
                    self._changed.notify_all()

    @property
    def is_loaded(self) -> bool:
        return self._loaded.is_set()

    async def loaded(self) -> None:
        """Returns once the first snapshot is in."""
        await self._loaded.wait()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Register; the returned function ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def copy(self) -> KeyspaceCopy:
        """The keyspace as of now, for readers in other threads; the same object until something changes."""
        if self._copy is None:
            items, keys = self._items.copy(), self._keys.copy()
            self._copy = KeyspaceCopy(self.prefix, self.revision, items, keys, self._noted, self._now_s())
        return self._copy

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits for changes until ``condition()``; False when the time is over first."""
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    def _now_s(self) -> float:
        return self._clock()

    def _note(self) -> None:
        now_s = self._now_s()
        if self._noted and self._noted[-1][1] > self.revision:
            self._noted.clear()  # the store was restored
        if not self._noted or now_s - self._noted[-1][0] >= NOTED_S:
            self._noted.append((now_s, self.revision))
        while len(self._noted) > 1 and now_s - self._noted[1][0] > KEPT_S:
            self._noted.popleft()

    def _reset(self, reset: WatchReset) -> frozenset[str]:
        before, self._items = self._items, {item.key: item for item in reset.snapshot.items}
        self._keys = SortedList(self._items)
        self.revision = reset.snapshot.revision
        keys = before.keys() | self._items.keys()
        return frozenset(key for key in keys if before.get(key) != self._items.get(key))

    def _apply(self, batch: WatchBatch) -> frozenset[str]:
        for event in batch.events:
            if event.current is None:
                if self._items.pop(event.key, None) is not None:
                    self._keys.remove(event.key)
                continue
            if event.key not in self._items:
                self._keys.add(event.key)
            self._items[event.key] = event.current
        self.revision = batch.revision
        return frozenset(event.key for event in batch.events)
