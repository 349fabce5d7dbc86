"""Marking nodes as leaving, for servers; controllers and agents need not be asked."""

from __future__ import annotations

from collections.abc import Callable

from rebalance.core.drain import Drain
from rebalance.core.keys import Keyspace
from rebalance.core.readable import readable
from rebalance.core.txn import Delete, Put, Txn, not_written_below
from rebalance.ports.metastore import Metastore

ATTEMPTS_MAX = 20

Check = Callable[[frozenset[str]], None]
"""Raises what stands against exactly these nodes being drained."""


class DrainKeeper:
    """The ``drains/`` keys."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace) -> None:
        self._metastore = metastore
        self._keyspace = keyspace

    async def drain(self, node: str, drain: Drain, check: Check) -> int:
        """The revision of the mark; 0: the node was leaving already, and its mark stays as it was.

        Guarded against other nodes being drained meanwhile: two that are each the last but one are not both
        taken. Raises what ``check`` raises, and MetastoreError; ContendedDrainError after ``ATTEMPTS_MAX``;
        RecordNotReadableError where nobody can tell who is leaving.
        """
        keys = self._keyspace
        for _ in range(ATTEMPTS_MAX):
            snapshot = await self._metastore.range(keys.drains)
            drained = frozenset(item.key.removeprefix(keys.drains) for item in snapshot.items)
            for item in snapshot.items:
                readable(item, Drain.decode)
            if node in drained:
                return 0
            check(drained | {node})
            guard = not_written_below(keys.drains, snapshot.revision)
            if (
                await self._metastore.commit(Txn((guard,), (Put(keys.drain(node), drain.encode()),)))
            ).succeeded:
                return True
        raise ContendedDrainError(f"other nodes were drained during each of {ATTEMPTS_MAX} attempts")

    async def undrain(self, node: str) -> int:
        """The revision at which the mark went; 0: the node was not leaving. Raises MetastoreError and
        RecordNotReadableError."""
        found = await self._metastore.get(self._keyspace.drain(node))
        if found is None:
            return 0
        readable(found, Drain.decode)
        return (await self._metastore.commit(Txn((), (Delete(found.key),)))).revision


class ContendedDrainError(Exception):
    """Nothing was changed; the same again may succeed."""
