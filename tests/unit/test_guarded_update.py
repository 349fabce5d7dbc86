"""The loop of read, decide and commit: with others who write in between, never or always."""

from __future__ import annotations

import asyncio

import pytest

from rebalance.core.keyspace.txn import KeyValue, Put, Txn, TxnResult, unchanged
from rebalance.metastore.guarded_update import ATTEMPTS_MAX, commit_decided, update_key
from rebalance.ports.metastore import ContendedError, MetastoreError, MetastoreUnavailableError
from simulator.control.memory_metastore import MemoryMetastore


async def put(store: MemoryMetastore, key: str, value: bytes) -> None:
    await store.commit(Txn((), (Put(key, value),)))


async def add(store: MemoryMetastore, key: str) -> int:
    def added(found: KeyValue | None) -> bytes:
        return str(int(found.value) + 1 if found is not None else 1).encode()

    return await update_key(store, key, added)


async def test_nobody_is_written_over() -> None:
    """Ten that count at once: each addition is there."""
    store = MemoryMetastore()
    revisions = await asyncio.gather(*(add(store, "k") for _ in range(10)))
    found = await store.get("k")
    assert found is not None
    assert (found.value, found.mod_revision) == (b"10", max(revisions))
    assert len(set(revisions)) == 10


async def test_what_stays_is_not_written() -> None:
    store = MemoryMetastore()
    await put(store, "k", b"1")
    assert await update_key(store, "k", lambda found: None) == 0
    found = await store.get("k")
    assert found is not None
    assert found.version == 1


@pytest.mark.parametrize("writers", [1, ATTEMPTS_MAX - 1])
async def test_it_decides_again_from_what_is_there_then(writers: int) -> None:
    store, seen = MemoryMetastore(), list[bytes]()

    async def decide() -> tuple[bytes, Txn | None]:
        found = await store.get("k")
        seen.append(found.value if found is not None else b"")
        if len(seen) <= writers:
            await put(store, "k", str(len(seen)).encode())
        guard = unchanged("k", found.mod_revision if found is not None else 0)
        return seen[-1], Txn((guard,), (Put("k", b"mine after " + seen[-1]),))

    outcome, revision = await commit_decided(store, decide)
    assert seen == [b"", *(str(number).encode() for number in range(1, writers + 1))]
    found = await store.get("k")
    assert found is not None
    assert (found.value, found.mod_revision) == (b"mine after " + outcome, revision)


async def test_it_ends_where_others_always_write_first() -> None:
    """The error comes after ATTEMPTS_MAX attempts: nothing was done, and it is one for callers who know only of
    metastore errors."""
    store, attempts = MemoryMetastore(), 0

    async def decide() -> tuple[None, Txn | None]:
        nonlocal attempts
        attempts += 1
        found = await store.get("k")
        await put(store, "k", b"theirs")
        return None, Txn((unchanged("k", found.mod_revision if found else 0),), (Put("k", b"mine"),))

    with pytest.raises(ContendedError) as raised:
        await commit_decided(store, decide)
    assert isinstance(raised.value, MetastoreError)
    assert attempts == ATTEMPTS_MAX
    found = await store.get("k")
    assert found is not None
    assert found.value == b"theirs"


async def test_an_unknown_outcome_is_not_repeated() -> None:
    """The write may have been done: only its caller can tell whether once more is right."""

    class Losing(MemoryMetastore):
        commits = 0

        async def commit(self, txn: Txn) -> TxnResult:
            self.commits += 1
            await super().commit(txn)
            raise MetastoreUnavailableError("the answer was lost", outcome_unknown=True)

    store = Losing()
    with pytest.raises(MetastoreUnavailableError):
        await add(store, "k")
    assert store.commits == 1
