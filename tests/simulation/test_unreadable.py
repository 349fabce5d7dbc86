"""Unreadable is a third state: whatever is in a key, no process ends, nothing is destroyed, founded, switched
or written over, other zones move, the cause is named, and all goes on when the key is mended."""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path

import psutil
import pytest

from rebalance.core.keyspace.keys import PartitionId
from simulator.control.run import silent_logs
from simulator.control.virtual_time import run_virtually
from tests.fixtures.strange_records import STRANGE
from tests.simulation.unreadable_world import BROKEN, GARBAGE, LOOK_S, OTHER, UnreadableWorld

WAIT_FOR_ALL = ("epoch", "topology", "rebalance/limits", "partition/admissions", "nodes/n0")
"""Keys of the whole cluster, beside which no other zone moves."""
SILENT = ("abc", "intents/99", "/x/", "/²/", "n9", "operations/", "target_before/")
"""Keys that name nothing, and those that are read only by who asks for them."""
HELD = (
    *("data_nodes/1", "target_pointer/1", "target_before/1", "operations/1-[0-9]+"),
    *("epoch", "topology", "rebalance/limits"),
    *("assignments/stable", "assignments/pending", "assignments/planned", "pending.lock", "trigger.revision"),
    *("1/0/group", "1/0/configuration", "1/0/restart/n0", "1/0/kept/n0", "members/1/0/n0"),
)
"""Keys without which the zone, or the partition, is not moved."""
HELD_BY = re.compile(f"(?<!/x/)({'|'.join(HELD)})$")
UNDECIDED = (
    *("data_nodes/1", "target_pointer/1", "target_before/1", "epoch", "topology", "limits"),
    *("stable", "pending", "planned", "lock", "revision"),
)
"""Keys beside which assignments are not even written; beside the others the group waits."""
ASKED_S = 30.0
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 9)))
"""Seeds, with each of which the keys hold another of the eight kinds of garbage."""


async def _each_kind(directory: Path, seed: int) -> None:
    world = UnreadableWorld(directory, seed)
    await world.start()
    try:
        for number, key in enumerate(world.keys()):
            decided, destroyed = world.decided(BROKEN), list(world.destroyed.of(BROKEN))
            damage = await world.damage(key, GARBAGE[(number + seed) % len(GARBAGE)])
            await asyncio.sleep(LOOK_S)
            told = world.look()
            if not key.endswith(WAIT_FOR_ALL):
                await world.move_the_other()
            assert world.ended == 0, (key, world.trace.lines)
            found = world.store.peek(key)
            assert found is not None
            assert found.value == damage.value, f"{key} was written over"
            after = {name: each for name, each in world.decided(BROKEN).items() if name != key}
            assert after == {name: each for name, each in decided.items() if name != key}, key
            assert world.destroyed.of(BROKEN) == destroyed, key
            if not any(part in key for part in SILENT):
                assert f"RECORD_NOT_READABLE: {key}" in told, (key, told)
            await world.mend(damage)
            await world.until(lambda: "RECORD_NOT_READABLE" not in world.look())
            await asyncio.sleep(LOOK_S)
            await world.until(lambda: world.is_settled(BROKEN))
        for zone_id in (BROKEN, OTHER):
            world.want(zone_id)
        await world.move_the_other()
        await world.until(lambda: world.is_settled(BROKEN))
        assert world.ended == 0
    finally:
        await world.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_garbage_in_each_kind_of_key(tmp_path: Path, seed: int) -> None:
    with silent_logs():
        run_virtually(_each_kind(tmp_path, seed))


async def _asked_meanwhile(directory: Path, seed: int) -> None:
    world = UnreadableWorld(directory, seed)
    await world.start()
    keys = world.keys()
    places = [key for key in keys if HELD_BY.search(key)]
    assert len(places) == len(HELD)
    try:
        for number, key in enumerate(places):
            damage = await world.damage(key, GARBAGE[(number + seed) % len(GARBAGE)])
            await asyncio.sleep(LOOK_S)
            decided, destroyed = _of_what_waits(world, key)
            world.ask(BROKEN)
            await asyncio.sleep(ASKED_S)
            assert world.ended == 0, (key, world.trace.lines)
            found = world.store.peek(key)
            assert found is not None
            assert found.value == damage.value, f"{key} was written over"
            assert _of_what_waits(world, key) == (decided, destroyed), key
            await world.mend(damage)
            await world.until(lambda: world.is_settled(BROKEN))
        assert world.destroyed.of(BROKEN)
    finally:
        await world.stop()


def _of_what_waits(world: UnreadableWorld, key: str) -> tuple[dict[str, int], list[str]]:
    """Decisions about the partition or the zone that waits for ``key``, and what was done to it."""
    prefix, done = world.keyspace.zone_partitions(BROKEN), world.destroyed.of(BROKEN)
    if f"{BROKEN}/0/" in key:
        prefix, done = f"{prefix}0/", world.destroyed.of_partition(PartitionId(BROKEN, 0))
    if not key.endswith(UNDECIDED):
        return {}, done
    return {name: each for name, each in world.decided(BROKEN).items() if name.startswith(prefix)}, done


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_asked_for_beside_garbage_waits_for_it(tmp_path: Path, seed: int) -> None:
    """A replica more and a replica less are asked of the zone while a key on which they depend cannot be read:
    no copy of what waits is made or destroyed, nothing is decided about it, and it is done afterwards."""
    with silent_logs():
        run_virtually(_asked_meanwhile(tmp_path, seed))


def _strange(chance: random.Random, before: bytes | None) -> bytes:
    """Bytes near to what a key holds, and bytes that are near to nothing."""
    if before is None or chance.random() < 0.3:
        return chance.choice(GARBAGE)
    try:
        document = json.loads(before)
    except ValueError:
        return chance.randbytes(chance.randint(0, 40))
    field = chance.choice(sorted(document))
    if chance.random() < 0.2:
        del document[field]
    else:
        document[field] = chance.choice(STRANGE)
    return json.dumps(document).encode()


async def _fuzz(directory: Path, seed: int, values: int) -> None:
    """A value may be a record after all, which says something else, and then what it says is done: so only that
    no process ends is asserted here."""
    world = UnreadableWorld(directory, seed)
    await world.start()
    process, before = psutil.Process(), 0
    try:
        for number in range(values):
            key = world.chance.choice(world.keys())
            found = world.store.peek(key)
            damage = await world.damage(key, _strange(world.chance, found.value if found is not None else None))
            await asyncio.sleep(world.chance.uniform(0.0, 0.6))
            world.look()
            assert world.ended == 0, (key, damage.value, world.trace.lines)
            await world.mend(damage)
            if number == values // 10:
                before = process.memory_info().rss
        assert world.ended == 0
        after = process.memory_info().rss
        print(f"{values} values, {before >> 20} MiB at a tenth, {after >> 20} MiB at the end")
        assert values < 10_000 or after <= 1.1 * before
    finally:
        await world.stop()


def test_random_values_end_no_process(tmp_path: Path) -> None:
    with silent_logs():
        run_virtually(_fuzz(tmp_path, 1, 150))


@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_many_random_values_end_no_process(tmp_path: Path) -> None:
    with silent_logs():
        run_virtually(_fuzz(tmp_path, 2, 100_000))
