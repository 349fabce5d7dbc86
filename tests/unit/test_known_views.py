"""Remembered views of partitions are what a look at their keys gives, whatever has changed."""

from __future__ import annotations

import asyncio
import random

from catalog.core.zone import Node, ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable
from rebalance.core.keyspace.records import MemberRecord, MemberState, NodeRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.nodes.partition_view import Mirrors
from simulator.control.memory_metastore import MemoryMetastore

KEYS = Keyspace()
PARTITIONS = [PartitionId(ZoneId(1), number) for number in range(4)]
NAMES = ("a", "b", "c")


def chosen(chance: random.Random) -> Put | Delete:
    partition, name = chance.choice(PARTITIONS), chance.choice(NAMES)
    keys = KEYS.partition(partition)
    order = chance.sample(NAMES, 2)
    assigned = chance.choice((Assignments(tuple(order), ()).encode(), b"no record"))
    node = NodeRecord(Node(name, ()), "i").encode()
    member = MemberRecord(MemberState.READY, f"peer://{name}", chance.choice(NAMES)).encode()
    key, value = chance.choice(
        (
            (keys.stable, assigned),
            (keys.pending, assigned),
            (KEYS.member(partition, name), member),
            (KEYS.node(name), node),
        )
    )
    return Delete(key) if chance.random() < 0.3 else Put(key, value)


async def test_a_known_view_is_never_old() -> None:
    store, chance = MemoryMetastore(), random.Random(7)
    mirrors = Mirrors.over(store, KEYS)
    anew = Mirrors(mirrors.partitions, mirrors.members, mirrors.nodes, KEYS)
    looks = 0

    def look(_changed: frozenset[str] = frozenset()) -> None:
        nonlocal looks
        looks += 1
        for partition in PARTITIONS:
            assert mirrors.view(partition) == anew.view(partition)
            shown = anew.shown(partition)
            assert mirrors.shown(partition) == shown
            for name in NAMES:
                # Where a key cannot be read its node has to look.
                unreadable = isinstance(mirrors.view(partition), Unreadable)
                assert mirrors.assigned(partition, name) == (unreadable or name in shown.assigned)
                named = name in shown.records or name in shown.assigned
                assert mirrors.naming(partition, frozenset({name})) == named

    for mirror in (mirrors.partitions, mirrors.members, mirrors.nodes):
        mirror.listen(look)
    following = asyncio.create_task(mirrors.run())
    await mirrors.loaded()
    for _ in range(300):
        await store.commit(Txn((), (chosen(chance),)))
        await asyncio.sleep(0)
        look()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert looks > 300
    assert mirrors.view(PARTITIONS[0]) is mirrors.view(PARTITIONS[0])
