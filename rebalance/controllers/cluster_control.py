"""Changes that people make to the whole cluster: limits of moves, nodes that leave, nodes that are gone for
good.

Servers write the keys; controllers and agents follow them and need not be asked. Of a node that is removed
the records go, and what was in use before never comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from catalog.core.errors import ErrorKind, RefusedError, StoreError
from catalog.core.snapshot import rebalancing_disabled
from rebalance.core.admission.move_admission import Limits
from rebalance.core.admission.removed_node import RemovedNode
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import Delete, Put, Txn, absent, as_read, not_written_below, present, unchanged
from rebalance.core.moves.drain import Drain
from rebalance.core.topology.fencing import WAIT_MS, reset_s_min
from rebalance.metastore.guarded_update import commit_decided
from rebalance.ports.metastore import ContendedError, Metastore


class LimitsChangedError(Exception):
    """Error where somebody else changed the limits; ``revision`` is theirs now."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"the limits were changed: they are at revision {revision} now")
        self.revision = revision


class LimitsKeeper:
    """The ``rebalance/limits`` key. Every change is guarded by the revision that it was made from.
    ``node_lease_s``: nodes' leases, which the time of automatic resets must be longer than."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, node_lease_s: int) -> None:
        self._metastore = metastore
        self._key = keyspace.limits
        self.node_lease_s = node_lease_s

    async def read(self) -> tuple[Limits, int]:
        """The limits and their revision; 0: none were ever set. Raises MetastoreError and
        RecordNotReadableError, so that no change writes over what cannot be read."""
        item = await self._metastore.get(self._key)
        limits = readable(item, Limits.decode) or Limits()
        return limits, item.mod_revision if item else 0

    async def require_rebalancing(self, what: str) -> None:
        """Raises RefusedError (REBALANCING_DISABLED) for ``what`` moves data, and MetastoreError."""
        limits, _ = await self.read()
        if not limits.rebalancing:
            raise rebalancing_disabled(what)

    def check_reset_s(self, reset_s: int | None) -> None:
        """Raises RefusedError (INVALID_REQUEST) for an ``ha_reset_s`` that nodes cannot keep to."""
        least = reset_s_min(self.node_lease_s)
        if reset_s is not None and reset_s < least:
            message = (
                f"ha_reset_s takes whole seconds from {least} on, or null for the default, not {reset_s}: a "
                f"node that was cut off may serve for its lease ({self.node_lease_s} s) and takes up to "
                f"{WAIT_MS / 1_000:g} s more to be silent for certain"
            )
            raise RefusedError(ErrorKind.INVALID_REQUEST, message)

    async def change(self, changed: Callable[[Limits], Limits], expected: int | None) -> tuple[Limits, int]:
        """``expected``: only if the limits are at this revision still. Returns what is stored and its revision.

        Raises LimitsChangedError, MetastoreError, and what ``changed`` raises.
        """

        async def decide() -> tuple[tuple[Limits, int], Txn | None]:
            before, revision = await self.read()
            if expected is not None and revision != expected:
                raise LimitsChangedError(revision)
            after = changed(before)
            put = Txn((unchanged(self._key, revision),), (Put(self._key, after.encode()),))
            return (after, revision), put if after != before else None

        (limits, revision), written = await commit_decided(self._metastore, decide)
        return limits, written or revision


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
