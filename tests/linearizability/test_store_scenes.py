"""Store servers as processes, killed, stopped and cut off under load: is what clients were told possible?"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import pytest

from app.cli.main import main
from rebalance.store.shell.lmdb_disk import stored
from tests.fixtures.cut_networks import cut_networks, missing
from tests.fixtures.cut_nodes import STORE, LoopbackSites, Sites
from tests.fixtures.needs import need
from tests.fixtures.store_nodes import ZONE, StoreNodes, store_nodes
from tests.linearizability import store_scenes as scenes
from tests.linearizability.checker import violations
from tests.linearizability.history import write
from tests.linearizability.store_judgement import second_primaries
from tests.linearizability.store_load import StoreLoad, store_load
from tests.linearizability.store_scenes import LONG_S, SHORT_S, Scene

THREE = ("n1", "n2", "n3")
FOUR = (*THREE, "n4")
SEED = int(os.environ.get("SOAK_SEED", "1"))
REBALANCES = int(os.environ.get("SOAK_REBALANCES", "50"))
CLIENTS = 6


def lists_of(names: Sequence[str], partitions: int = 4) -> dict[int, tuple[str, ...]]:
    """Three copies each; every server leads one."""
    places = range(3)
    return {
        number: tuple(names[(number + place) % len(names)] for place in places) for number in range(partitions)
    }


async def played(directory: Path, sites: Sites, names: Sequence[str], acts: Sequence[Scene]) -> None:
    """One scene after the other, with clients all the time; then everything is judged."""
    lists = lists_of(names)
    longest_s = 0.0
    async with store_nodes(directory, sites, names, lists) as nodes:
        began = monotonic()
        async with store_load(nodes.urls, ZONE, len(lists), SEED, CLIENTS) as load:
            for number, scene in enumerate(acts, 1):
                await asyncio.sleep(scenes.BREATH_S)
                await scene(nodes)
                took_s = await nodes.converged(scenes.CONVERGED_S)
                longest_s = max(longest_s, took_s)
                at_s = monotonic() - began
                print(
                    f"{number}/{len(acts)} {at_s:.0f} s: {load.acknowledged} puts; converged in {took_s:.1f} s"
                )
        async with store_load(nodes.urls, ZONE, len(lists), SEED, 0) as reader:
            reader.recorder, reader.once = load.recorder, load.once
            keys = await reader.read_back()
        faults = f"{nodes.kills} kills, {nodes.stops} stops, {nodes.cuts} cuts"
        print(
            f"{len(acts)} scenes, {faults}, {keys} keys, {load.figures}; convergence {longest_s:.1f} s at most"
        )
        judged(load, directory / "history.jsonl")
    checked(nodes)


def judged(load: StoreLoad, kept: Path) -> None:
    """``kept``: where the history is left when nothing explains it."""
    history = load.recorder.history()
    unexplained = violations(history)
    if unexplained:
        write(kept, history)
        print(f"the history is in {kept}")
    assert not unexplained, "\n".join(map(str, unexplained[:3]))
    assert not load.refusals, load.refusals[:3]
    assert not (second := second_primaries(load.served)), second[:3]
    assert load.acknowledged > 100


def checked(nodes: StoreNodes) -> None:
    """Servers have ended: their files have no defect, and copies of a partition are equal."""
    rows: dict[int, object] = {}
    for name in nodes.names:
        assert main(["store", "fsck", str(nodes.files(name))]) == 0
        with stored(nodes.files(name)) as reader:
            for number, owners in nodes.targets.items():
                if name in owners:
                    copy = reader.rows((ZONE, number), b"", 1 << 30)
                    assert rows.setdefault(number, copy) == copy, f"{number} on {name}"


@pytest.mark.slow("three nodes start, and lose servers and their metastore for longer than a server lives")
async def test_killed_and_stopped_servers_lose_no_acknowledged_put(tmp_path: Path) -> None:
    """Clients see one linearizable register a key, and never two primaries; the files have no defect."""
    acts = (
        scenes.all_servers_are_killed_at_once,
        scenes.a_server_is_stopped(LONG_S),
        scenes.the_metastore_is_stopped(LONG_S),
        scenes.an_agent_is_stopped_and_its_server_killed,
        scenes.rebalances(1, SEED, kill_share=1.0),
    )
    await played(tmp_path, LoopbackSites(STORE, *THREE), THREE, acts)


@pytest.mark.thorough("simulation/test_store_seeds cuts them off")
@pytest.mark.slow("three nodes start, and are cut from each other for longer than a server lives")
async def test_servers_that_are_cut_off_lose_no_acknowledged_put(tmp_path: Path) -> None:
    need(missing())
    acts = (scenes.the_primary_is_cut_from_one_backup, scenes.two_fail_while_the_rest_is_levelled)
    with cut_networks(STORE, *THREE) as networks:
        await played(tmp_path, networks, THREE, acts)


@pytest.mark.soak
async def test_every_scene_in_any_order(tmp_path: Path) -> None:
    """Twice, each time in another order."""
    need(missing())
    acts = [
        scenes.each_server_is_killed,
        scenes.all_servers_are_killed_at_once,
        scenes.a_node_dies,
        scenes.an_agent_is_stopped,
        scenes.an_agent_is_stopped_and_its_server_killed,
        *(scenes.a_server_is_stopped(seconds) for seconds in (SHORT_S, LONG_S)),
        *(scenes.the_metastore_is_stopped(seconds) for seconds in (SHORT_S, LONG_S)),
        *(scenes.a_server_is_cut_from_the_metastore(seconds) for seconds in (SHORT_S, LONG_S)),
        scenes.the_primary_is_cut_from_one_backup,
        scenes.the_primary_is_cut_from_one_backup_for_a_moment,
        scenes.the_coordinator_is_cut_from_its_peers,
        scenes.every_server_is_cut_from_every_other,
        scenes.two_fail_while_the_rest_is_levelled,
    ] * 2
    random.Random(SEED).shuffle(acts)
    with cut_networks(STORE, *THREE) as networks:
        await played(tmp_path, networks, THREE, acts)


@pytest.mark.soak
async def test_all_servers_die_and_return_in_every_order(tmp_path: Path) -> None:
    await played(tmp_path, LoopbackSites(STORE, *THREE), THREE, scenes.every_order(THREE))


@pytest.mark.soak
async def test_many_rebalances_under_kills(tmp_path: Path) -> None:
    acts = [scenes.rebalances(1, SEED + number, kill_share=0.7) for number in range(REBALANCES)]
    await played(tmp_path, LoopbackSites(STORE, *FOUR), FOUR, acts)
