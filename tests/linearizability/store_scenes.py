"""Faults of store servers while clients work: each scene begins and ends with every copy in its place."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import combinations, permutations

from tests.fixtures.cut_nodes import STORE
from tests.fixtures.store_nodes import TTL_S, StoreNodes

SHORT_S, LONG_S = TTL_S / 3, TTL_S + 3.0
"""Seconds of pauses: shorter and longer than a server may be silent."""
SLOW_RATE = 4_000
"""Bytes a second."""
BREATH_S = 1.0
"""Clients get on with something."""

Scene = Callable[[StoreNodes], Awaitable[None]]


def primary(nodes: StoreNodes, partition: int = 0) -> str:
    return nodes.targets[partition][0]


async def each_server_is_killed(nodes: StoreNodes) -> None:
    """One after the other, while the one before is on its way back."""
    for name in nodes.names:
        await nodes.until_removed(name, nodes.kill_server)


async def all_servers_are_killed_at_once(nodes: StoreNodes) -> None:
    for name in nodes.names:
        nodes.kill_server(name)
    await asyncio.sleep(BREATH_S)


def all_nodes_die_and_return(dying: Sequence[str], returning: Sequence[str]) -> Scene:
    """Each dies once the ring has removed the one before; the last one stays a member until it fails."""

    async def scene(nodes: StoreNodes) -> None:
        for name in dying:
            if name == dying[-1]:
                nodes.kill_node(name)
            else:
                await nodes.until_removed(name, nodes.kill_node)
        for name in returning:
            nodes.start_nodes(name)
            await asyncio.sleep(BREATH_S)

    return scene


def every_order(names: Sequence[str]) -> list[Scene]:
    orders = list(permutations(names))
    return [all_nodes_die_and_return(dying, returning) for dying in orders for returning in orders]


async def a_node_dies(nodes: StoreNodes) -> None:
    """Kill a server with its agent, so that its death is not reported."""
    await nodes.until_removed(primary(nodes), nodes.kill_node)
    nodes.start_nodes(primary(nodes))


def a_server_is_stopped(seconds: float) -> Scene:
    async def scene(nodes: StoreNodes) -> None:
        with nodes.stopped(nodes.server(primary(nodes))):
            await asyncio.sleep(seconds)

    return scene


async def an_agent_is_stopped(nodes: StoreNodes) -> None:
    """Stop an agent: its server serves on, and nothing is written to the ring."""
    before = (await nodes.ring()).number
    with nodes.stopped(nodes.agent(primary(nodes))):
        await asyncio.sleep(LONG_S)
        assert (await nodes.ring()).number == before


async def an_agent_is_stopped_and_its_server_killed(nodes: StoreNodes) -> None:
    """Kill a server whose agent stands still, so that its death is not reported; the next server starts once
    the agent goes on."""
    name = primary(nodes)
    with nodes.stopped(nodes.agent(name)):
        await nodes.until_removed(name, nodes.kill_server)


def the_metastore_is_stopped(seconds: float) -> Scene:
    async def scene(nodes: StoreNodes) -> None:
        with nodes.stopped(nodes.metastore()):
            await asyncio.sleep(seconds)

    return scene


async def the_primary_is_cut_from_one_backup(nodes: StoreNodes) -> None:
    """One of both is evicted, the younger one; the other goes on with the third."""
    await cut_for(nodes, LONG_S + TTL_S, [(nodes.targets[0][0], nodes.targets[0][1])])


async def the_primary_is_cut_from_one_backup_for_a_moment(nodes: StoreNodes) -> None:
    """Shorter than anybody is suspected for."""
    await cut_for(nodes, 1.5, [(nodes.targets[0][0], nodes.targets[0][1])])


async def the_coordinator_is_cut_from_its_peers(nodes: StoreNodes) -> None:
    """Cut the coordinator from its peers: it reaches the metastore, so its heartbeats go on, and it is
    evicted."""
    name = (await nodes.ring()).cluster.coordinator
    assert name is not None
    await cut_for(nodes, LONG_S + TTL_S, [(name, other) for other in nodes.names if other != name])


async def every_server_is_cut_from_every_other(nodes: StoreNodes) -> None:
    await cut_for(nodes, LONG_S, list(combinations(nodes.names, 2)))


def a_server_is_cut_from_the_metastore(seconds: float) -> Scene:
    async def scene(nodes: StoreNodes) -> None:
        await cut_for(nodes, seconds, [(primary(nodes), STORE)])

    return scene


async def two_fail_while_the_rest_is_levelled(nodes: StoreNodes) -> None:
    """A backup lacks what the primary and the other one have; both of these die, the second one while the
    backup fetches from it over a slow link."""
    leader, ahead, behind = nodes.targets[0]
    networks = nodes.networks
    networks.cut(leader, behind)
    networks.slow(ahead, behind, rate=SLOW_RATE)
    await asyncio.sleep(1.0)
    await nodes.until_removed(leader, nodes.kill_server)
    await asyncio.sleep(0.2)
    nodes.kill_server(ahead)
    networks.heal()


async def cut_for(nodes: StoreNodes, seconds: float, pairs: Sequence[tuple[str, str]]) -> None:
    for pair in pairs:
        nodes.networks.cut(*pair)
    nodes.cuts += len(pairs)
    await asyncio.sleep(seconds)
    nodes.networks.heal()


def rebalances(count: int, seed: int, kill_share: float, copies: Sequence[int] = (2, 3)) -> Scene:
    """Targets at random, and while copies are filled servers and nodes are killed."""

    async def scene(nodes: StoreNodes) -> None:
        chooser = random.Random(f"rebalances/{seed}")
        for _ in range(count):
            before = nodes.targets
            while nodes.targets == before:
                lists = {
                    number: tuple(chooser.sample(sorted(nodes.names), chooser.choice(copies)))
                    for number in before
                }
                if lists != before:
                    await nodes.move(lists)
            await asyncio.sleep(chooser.uniform(0.0, 1.5))
            if chooser.random() < kill_share:
                name = chooser.choice(sorted(nodes.names))
                if chooser.random() < 0.8:
                    nodes.kill_server(name)
                else:
                    nodes.kill_node(name)
                    await asyncio.sleep(chooser.uniform(0.0, 2.0))
                    nodes.start_nodes(name)
            await nodes.converged(CONVERGED_S)

    return scene


CONVERGED_S = 90.0
"""Seconds from the end of a scene's faults until every copy is where it should be. On an idle machine the
longest is some ten: a server whose death is not reported, and its return."""
