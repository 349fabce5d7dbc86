"""Reading and changing the limits of moves, for servers; controllers follow the key themselves."""

from __future__ import annotations

from collections.abc import Callable

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.rebalancing import rebalancing_disabled
from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import Put, Txn, unchanged
from rebalance.core.topology.isolation import WAIT_MS, reset_s_min
from rebalance.metastore.guarded_update import commit_decided
from rebalance.ports.metastore import Metastore


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
