"""Retries of a leader's agent, without a group: how often, how long, and who is told."""

from __future__ import annotations

import asyncio

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.nodes.copy_attempts import CopyRules
from rebalance.nodes.leader_duties import LeaderDuties
from rebalance.ports.groups import FailureCode, ReconfigurationFailure
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.node_context import node_context

P0 = PartitionId(ZoneId(1), 0)


class Told:
    def __init__(self, attempts_max: int) -> None:
        metastore = self.metastore = MemoryMetastore()
        self.woken: list[PartitionId] = []
        self.failures: list[tuple[PartitionId, FailureCode]] = []
        self.duties = LeaderDuties(
            node_context(metastore),
            self.woken.append,
            lambda: CopyRules(attempts_max),
            lambda partition, failure: self.failures.append((partition, failure.code)),
        )

    async def fail(self, code: FailureCode) -> float:
        """Seconds until the next attempt."""
        self.duties.failed(P0, ReconfigurationFailure(code, ""))
        drive = self.duties._led.get(P0)
        return drive.attempts.not_before_s - asyncio.get_running_loop().time() if drive else -1.0


@pytest.mark.row("I3-057", "VOL-098")
async def test_the_failure_handler_hears_once() -> None:
    """I3-057, VOL-098: after the most attempts exactly one event names the partition; attempts go on."""
    told = Told(attempts_max=4)
    for _ in range(12):
        await told.fail(FailureCode.MEMBER_NOT_STARTED)
        await told.fail(FailureCode.UNHEALTHY_CLUSTER)
        assert len(told.failures) == (len(told.woken) >= 7)
    assert told.failures == [(P0, FailureCode.MEMBER_NOT_STARTED)]
    assert len(told.woken) == 24


@pytest.mark.row("I3-053")
async def test_delays_grow_to_two_seconds() -> None:
    """I3-053: the first retry after 200 ms, then later and later; chance takes a fifth off at most."""
    told = Told(attempts_max=100)
    delays = [await told.fail(FailureCode.TIMED_OUT) for _ in range(12)]
    assert delays[0] == pytest.approx(0.18, abs=0.05)
    assert delays[-1] == pytest.approx(1.8, abs=0.25)


@pytest.mark.row("I3-053")
async def test_a_leader_that_stepped_down_does_not_retry() -> None:
    """I3-053: its intention is forgotten, not delayed."""
    told = Told(attempts_max=1)
    assert await told.fail(FailureCode.LEADER_STEPPED_DOWN) == -1.0
    assert told.failures == []


@pytest.mark.row("I3-035", "I3-036")
async def test_a_silent_metastore_fails_no_node() -> None:
    """S066, I3-035, I3-036: a switch that gets no answer is left; the next report does it."""
    told, target = Told(attempts_max=1), Assignments(("n1", "n2"))
    keys = Keyspace().partition(P0)
    stable = Put(keys.stable, Assignments(("n1",)).encode())
    await told.metastore.commit(Txn((), (stable, Put(keys.pending, target.encode()))))
    told.metastore.pause()
    await told.duties.applied(P0, target)
    told.metastore.resume()
    assert await told.metastore.get(keys.pending) is not None
    assert told.woken == [P0]
    await told.duties.applied(P0, target)
    found = await told.metastore.get(keys.stable)
    assert found is not None
    assert Assignments.decode(found.value) == target
    assert await told.metastore.get(keys.pending) is None
