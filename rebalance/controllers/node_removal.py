"""Removing a node for good, for servers: its records go, and what was in use before never comes back."""

from __future__ import annotations

import time
from collections.abc import Sequence

from catalog.core.errors import ErrorKind, RefusedError, StoreError
from rebalance.core.admission.removed_node import RemovedNode
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import Delete, Put, Txn, absent, as_read, present
from rebalance.ports.metastore import ContendedError, Metastore

BATCH = 100


class NodeRemover:
    """The ``removed/`` keys."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace) -> None:
        self._metastore = metastore
        self._keyspace = keyspace

    async def remove(self, node: str, by: str, reason: str, records: Sequence[str], *, verified: bool) -> int:
        """``records``: keys that go with the node, which no zone counts on any more. The revision at which the
        last of it went: the mark that it is leaving. Until then nothing is placed there, and it is done again
        where it was interrupted.

        Raises RefusedError (NODE_ALIVE), ContendedError where the node is not leaving any more, StoreError
        while nothing may be written, RecordNotReadableError and MetastoreError.
        """
        keys = self._keyspace
        item = await self._metastore.get(keys.epoch)
        epoch = readable(item, EpochRecord.decode) or EpochRecord()
        if epoch.halted:
            raise StoreError(ErrorKind.METASTORE_DIVERGED, f"nothing is written: {epoch.halted}")
        removed = RemovedNode(by, reason, time.time_ns() // 1_000_000, epoch.epoch, verified)
        guards = (absent(keys.node(node)), present(keys.drain(node)), as_read(keys.epoch, item))
        revision = 0
        for write in (
            Put(keys.removed_node(node), removed.encode()),
            *(tuple(map(Delete, records[first : first + BATCH])) for first in range(0, len(records), BATCH)),
            Delete(keys.drain(node)),
        ):
            result = await self._metastore.commit(Txn(guards, write if isinstance(write, tuple) else (write,)))
            if not result.succeeded:
                if await self._metastore.get(keys.node(node)) is not None:
                    raise node_alive(node)
                raise ContendedError(f"something about {node} has changed meanwhile")
            revision = result.revision
        return revision


def node_alive(node: str) -> RefusedError:
    """Return the refusal to remove a living node."""
    return RefusedError(
        ErrorKind.NODE_ALIVE,
        f"node {node} is alive; accepted: one that is gone for good. To take {node} out of service: "
        f"`zonectl node drain {node} --wait`, then stop it",
    )
