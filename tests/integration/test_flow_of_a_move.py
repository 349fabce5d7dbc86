"""A partition's pending key, followed through the calls of real nodes: from the watch to the member change and
to the stable switch. It prints each way, and no group host calls its agent back."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from tests.fixtures.node_cluster import NodeCluster, node_cluster

P0 = PartitionId(ZoneId(7), 0)
ROOT = Path(__file__).parents[2]
SEEN, ASKED, ADVANCED = "saw the key", "asked the host", "advanced the change"
TAKEN, SWITCHED = "changed the members", "switched stable"
LANDMARKS = {
    ("rebalance/nodes/agent.py", "_on_partition_keys"): SEEN,
    ("rebalance/groups/etcd_group.py", "change_peers_and_learners"): ASKED,
    ("rebalance/groups/change/etcd_change.py", "advance"): ADVANCED,
    ("rebalance/groups/calls/etcd_api.py", "promote"): TAKEN,
    ("rebalance/core/assignments/guarded_write.py", "decide_on_configuration_applied"): SWITCHED,
}
ABOVE, BELOW = "rebalance/nodes/", ("rebalance/groups/", "rebalance/ports/")


def place(frame: FrameType) -> tuple[str, str]:
    """The file below the root and the function; an empty file for what is not the product's."""
    name = frame.f_code.co_filename
    file = name.removeprefix(f"{ROOT}/") if name.startswith(f"{ROOT}/rebalance/") else ""
    return file, frame.f_code.co_name


class Flow:
    """``ways``: of each landmark the product's functions on the stack when it was first reached, outermost
    first; ``calls_up``: (caller, called) wherever a group's host has called its agent."""

    def __init__(self) -> None:
        self.ways: dict[str, list[str]] = {}
        self.calls_up: set[tuple[str, str]] = set()

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        file, function = place(frame)
        landmark = LANDMARKS.get((file, function))
        if landmark is not None and landmark not in self.ways:
            self.ways[landmark] = [f"{file}:{function}" for file, function in stack(frame)]
        if file.startswith(ABOVE):
            caller = next(stack_upwards(frame.f_back), None)
            if caller is not None and caller[0].startswith(BELOW):
                self.calls_up.add((":".join(caller), f"{file}:{function}"))

    @contextmanager
    def recorded(self) -> Iterator[None]:
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)


def stack_upwards(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """The product's functions, innermost first."""
    while frame is not None:
        if place(frame)[0]:
            yield place(frame)
        frame = frame.f_back


def stack(frame: FrameType) -> list[tuple[str, str]]:
    return list(stack_upwards(frame))[::-1]


@pytest.fixture
async def cluster(own_etcd, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(own_etcd.endpoint, keyspace, tmp_path) as running:
        yield running


async def test_a_pending_key_goes_down_to_the_group_and_nothing_calls_back_up(cluster: NodeCluster) -> None:
    """The agent sees the key, asks its host, advances the change and switches stable; a step's call to the
    members runs in a task of the host's, whose outcome the agent awaits."""
    cluster.start("n1", "n2")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    flow = Flow()
    with flow.recorded():
        await cluster.write_pending(P0, "n1", "n2")
        await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    for landmark, frames in flow.ways.items():
        print(f"{landmark}:")
        print(*(f"  {frame}" for frame in frames), sep="\n")
    assert list(flow.ways) == [SEEN, ASKED, ADVANCED, TAKEN, SWITCHED]
    assert flow.calls_up == set()
    rounds, task = "rebalance/nodes/agent.py:_round", "rebalance/nodes/leader_duties.py:_advanced"
    assert [rounds in flow.ways[ASKED], task in flow.ways[ASKED]] == [True, False]
    for landmark in (ADVANCED, SWITCHED):
        assert [rounds in flow.ways[landmark], task in flow.ways[landmark]] == [False, True]
    assert all(len(frames) <= 12 for frames in flow.ways.values())


def test_a_call_back_up_would_be_seen() -> None:
    """Record a stack in which the host's file calls the agent's, to show that a call upwards is seen."""
    flow = Flow()
    agent = compile("def seen(): pass", f"{ROOT}/rebalance/nodes/agent.py", "exec")
    host = compile("def told(seen): seen()", f"{ROOT}/rebalance/groups/change/etcd_change.py", "exec")
    names: dict[str, object] = {}
    exec(agent, names)
    exec(host, names)
    with flow.recorded():
        names["told"](names["seen"])  # type: ignore[operator]  # compiled above
    assert flow.calls_up == {("rebalance/groups/change/etcd_change.py:told", "rebalance/nodes/agent.py:seen")}
