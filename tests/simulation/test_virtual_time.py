"""Virtual time and the modelled network: each fault does what its name says, and nothing else."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from rebalance.core.keyspace.txn import Put, Txn, absent
from rebalance.ports.metastore import MetastoreUnavailableError, WatchBatch, WatchReset
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.processes import LATE_S, NO_FAULTS, TIMEOUT_S, FaultRates, SimulatedClient
from simulator.control.virtual_time import NothingLeftError, run_virtually

PUT = Txn((absent("k"),), (Put("k", b"v"),))


def test_time_passes_only_when_everybody_waits() -> None:
    async def main() -> tuple[float, list[str]]:
        order: list[str] = []

        async def late(name: str, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            order.append(await asyncio.to_thread(lambda: f"{name} {asyncio.get_running_loop().time():.0f}"))

        await asyncio.gather(late("a", 86_400.0), late("b", 60.0), late("c", 60.0))
        return asyncio.get_running_loop().time(), order

    assert run_virtually(main()) == (86_400.0, ["b 60", "c 60", "a 86400"])


def test_waiting_for_nobody_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeftError):
        run_virtually(main())


@pytest.mark.parametrize(
    ("rates", "at_once", "later"),
    [
        (replace(NO_FAULTS, lost_request=1.0), False, False),
        (replace(NO_FAULTS, lost_reply=1.0), True, True),
        (replace(NO_FAULTS, late_request=1.0), False, True),
    ],
)
def test_a_request_without_an_answer(rates: FaultRates, at_once: bool, later: bool) -> None:
    """``at_once``, ``later``: whether it is done when the client gives up, and in the end."""

    async def main() -> tuple[bool, bool]:
        store = MemoryMetastore()
        client = SimulatedClient(store, random.Random("x"), rates)
        with pytest.raises(MetastoreUnavailableError) as failed:
            await client.commit(PUT)
        assert failed.value.outcome_unknown
        assert asyncio.get_running_loop().time() >= TIMEOUT_S
        done = store.peek("k") is not None
        client.kill()
        await asyncio.sleep(TIMEOUT_S + LATE_S)
        return done, store.peek("k") is not None

    assert run_virtually(main()) == (at_once, later)


def test_a_killed_process_reaches_nobody_and_a_frozen_one_goes_on_later() -> None:
    async def main() -> None:
        store = MemoryMetastore()
        frozen, killed = (SimulatedClient(store, random.Random(name), NO_FAULTS) for name in "ab")
        frozen.freeze()
        writing = [asyncio.create_task(each.commit(PUT)) for each in (frozen, killed)]
        await asyncio.sleep(0)
        killed.kill()
        await asyncio.sleep(100.0)
        assert store.peek("k") is None
        frozen.thaw()
        assert (await writing[0]).succeeded
        with pytest.raises(MetastoreUnavailableError):
            await writing[1]
        assert store.revision == 2

    run_virtually(main())


@pytest.mark.parametrize("resets", [0.0, 0.5])
def test_a_watch_misses_nothing(resets: float) -> None:
    """Miss nothing in a watch, also where batches are merged or begun anew: a client that applies what is
    delivered, in order, has what is stored."""

    async def main() -> None:
        store = MemoryMetastore()
        client = SimulatedClient(store, random.Random("w"), replace(NO_FAULTS, watch_reset=resets))
        held: dict[str, bytes] = {}
        revisions: list[int] = []

        async def follow() -> None:
            async for change in client.watch("w/"):
                if isinstance(change, WatchReset):
                    held.clear()
                    held.update({item.key: item.value for item in change.snapshot.items})
                    continue
                assert isinstance(change, WatchBatch)
                revisions.append(change.revision)
                for event in change.events:
                    assert event.current is not None
                    held[event.key] = event.current.value

        following = asyncio.create_task(follow())
        for number in range(200):
            store.commit_now(Txn((), (Put(f"w/{number % 7}", str(number).encode()),)))
            await asyncio.sleep(0.001)
        await asyncio.sleep(10.0)
        following.cancel()
        assert held == {item.key: item.value for item in store.range_now("w/").items}
        assert revisions == sorted(set(revisions))

    run_virtually(main())
