"""A value of the catalog that may be a second old, and is read again behind the requests that use it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from catalog.core.errors import ErrorKind, StatementError, StoreError

T = TypeVar("T")

FRESH_S = 1.0
"""So long it is used as it is."""
HELD_S = 2.0
"""Then a reading is begun, and from this age on awaited: so what was revoked holds on every server by now."""
PATIENCE_S = 1.0
"""A reading is awaited for so long while an older value is left."""
REFUSED_S = 10.0
"""A value of this age is used no more."""
KEPT_MAX = 10_000


class FreshValue(Generic[T]):
    """``read`` raises StatementError while the catalog does not answer."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._known: tuple[T, float] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """Raises StoreError (GRANTS_UNAVAILABLE) when nothing could be read for ``REFUSED_S``."""
        if self._known is not None and self._age() < FRESH_S:
            return self._known[0]
        if self._reading is None:
            self._reading = asyncio.create_task(self._refresh())
        if self._known is None or self._age() >= HELD_S:
            patience_s = REFUSED_S if self._known is None else PATIENCE_S
            await asyncio.wait({self._reading}, timeout=patience_s)
        if self._known is None or self._age() >= REFUSED_S:
            message = f"the catalog has not said for {REFUSED_S:g} s who may do what"
            raise StoreError(ErrorKind.GRANTS_UNAVAILABLE, message)
        return self._known[0]

    async def anew(self) -> T:
        """As of a moment after this call, as long as the catalog answers. Raises as ``get`` does."""
        if self._reading is not None:
            # It may have begun before.
            await asyncio.wait({self._reading}, timeout=PATIENCE_S)
        if self._reading is None:
            self._reading = asyncio.create_task(self._refresh())
        await asyncio.wait({self._reading}, timeout=PATIENCE_S)
        return await self.get()

    def _age(self) -> float:
        assert self._known is not None, "asked of a value"
        return self._clock() - self._known[1]

    async def _refresh(self) -> None:
        # As old as the question: what changes meanwhile may not be in the answer.
        began_s = self._clock()
        try:
            self._known = (await self._read(), began_s)
        except StatementError:
            return
        finally:
            self._reading = None


class FreshValues(Generic[T]):
    """By key. Of more than ``KEPT_MAX`` those that were asked for longest ago are forgotten; all are when
    ``changes`` has grown: this server has changed something that they follow from."""

    def __init__(
        self,
        read: Callable[[str], Awaitable[T]],
        clock: Callable[[], float] = time.monotonic,
        changes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._read = read
        self._clock = clock
        self._changes = changes
        self._changes_read = changes()
        self._values: OrderedDict[str, FreshValue[T]] = OrderedDict()

    async def get(self, key: str) -> T:
        """Raises StoreError (GRANTS_UNAVAILABLE)."""
        changes = self._changes()
        if changes != self._changes_read:
            self._values.clear()
            self._changes_read = changes
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = FreshValue(partial(self._read, key), self._clock)
            while len(self._values) > KEPT_MAX:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return await value.get()

    def forget(self, key: str) -> None:
        """Of what was changed by this server."""
        self._values.pop(key, None)
