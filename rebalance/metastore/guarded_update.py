"""Read, decide, commit, and once more where somebody else wrote in between: the one loop for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rebalance.core.keyspace.txn import Compare, Get, KeyValue, Put, Txn, TxnResult, as_read
from rebalance.ports.metastore import ContendedError, Metastore

ATTEMPTS_MAX = 20

T = TypeVar("T")


async def read_together(metastore: Metastore, *keys: str) -> tuple[tuple[KeyValue | None, ...], int]:
    """The keys at one revision, and that revision; None: the key is absent. Raises MetastoreError."""
    result = await metastore.commit(Txn((), tuple(map(Get, keys))))
    return tuple(map(result.only, range(len(keys)))), result.revision


async def commit_each(
    metastore: Metastore, guards: Sequence[Compare], writes: Sequence[Txn], most: int
) -> tuple[int, int]:
    """Commit ``writes``, each with guards of its own, at most ``most`` in one request, while ``guards`` hold.
    Returns how many were done, and the revision of the last request that was. Raises MetastoreError."""
    done = revision = 0
    for start in range(0, len(writes), most):
        result = await metastore.commit(Txn(tuple(guards), tuple(writes[start : start + most])))
        if not result.succeeded:
            break
        done += sum(isinstance(each, TxnResult) and each.succeeded for each in result.responses)
        revision = result.revision
    return done, revision


async def commit_decided(
    metastore: Metastore, decide: Callable[[], Awaitable[tuple[T, Txn | None]]]
) -> tuple[T, int]:
    """``decide`` reads, and answers with an outcome and what is to be committed for it, guarded by what it has
    read; None: nothing. Returns the outcome and the revision of the commit, 0 where there was none.

    Raises ContendedError after ``ATTEMPTS_MAX`` failed guards, what ``decide`` raises, and MetastoreError: a
    commit of unknown outcome is not repeated.
    """
    for _ in range(ATTEMPTS_MAX):
        outcome, txn = await decide()
        if txn is None:
            return outcome, 0
        result = await metastore.commit(txn)
        if result.succeeded:
            return outcome, result.revision
    raise ContendedError(f"what was read changed during each of {ATTEMPTS_MAX} attempts")


async def update_key(metastore: Metastore, key: str, changed: Callable[[KeyValue | None], bytes | None]) -> int:
    """``changed`` answers what ``key`` is to hold in place of what it holds; None: it stays. Returns the
    revision of the write, 0 where there was none. Raises as ``commit_decided``."""

    async def decide() -> tuple[None, Txn | None]:
        item = await metastore.get(key)
        value = changed(item)
        guard = as_read(key, item)
        return None, None if value is None else Txn((guard,), (Put(key, value),))

    return (await commit_decided(metastore, decide))[1]
