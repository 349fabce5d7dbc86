"""Marking nodes as leaving, for servers; controllers and agents need not be asked."""

from __future__ import annotations

from collections.abc import Callable

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import Delete, Put, Txn, not_written_below
from rebalance.core.moves.drain import Drain
from rebalance.metastore.guarded_update import commit_decided
from rebalance.ports.metastore import Metastore

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
        taken. Raises what ``check`` raises, and MetastoreError; RecordNotReadableError where nobody can tell
        who is leaving.
        """
        keys = self._keyspace

        async def decide() -> tuple[None, Txn | None]:
            snapshot = await self._metastore.range(keys.drains)
            drained = frozenset(item.key.removeprefix(keys.drains) for item in snapshot.items)
            for item in snapshot.items:
                readable(item, Drain.decode)
            if node in drained:
                return None, None
            check(drained | {node})
            guard = not_written_below(keys.drains, snapshot.revision)
            return None, Txn((guard,), (Put(keys.drain(node), drain.encode()),))

        return (await commit_decided(self._metastore, decide))[1]

    async def undrain(self, node: str) -> int:
        """The revision at which the mark went; 0: the node was not leaving. Raises MetastoreError and
        RecordNotReadableError."""
        item = await self._metastore.get(self._keyspace.drain(node))
        if item is None:
            return 0
        readable(item, Drain.decode)
        return (await self._metastore.commit(Txn((), (Delete(item.key),)))).revision
