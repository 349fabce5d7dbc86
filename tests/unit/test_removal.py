"""A copy goes only on keys that can be read: each of them, not only those that name the node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import encode_trigger
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.nodes.kept_copies import Removal, RemovalJudge, RemovalVerdict
from rebalance.nodes.node_context import NodeStart
from rebalance.nodes.registration import Registration
from simulator.control.memory_metastore import MemoryMetastore

P0 = PartitionId(ZoneId(1), 0)
KEYSPACE = Keyspace()
KEYS = KEYSPACE.partition(P0)
ELSEWHERE = {
    KEYS.stable: Assignments(("n2",)).encode(),
    KEYS.trigger: encode_trigger(7),
    KEYSPACE.intent(P0.zone_id): ZoneIntent(1, Zone(P0.zone_id, "Z", 1, 1, None, ("default",))).encode(),
}
"""The partition is of another node."""
GARBAGE = (b"x", b'{"v":2}', b"\xff\xfe", b"[]", b"")


async def judged(
    directory: Path, changed: Mapping[str, bytes] = ELSEWHERE, peer_url: str | None = None
) -> Removal:
    metastore = MemoryMetastore()
    stored = {**ELSEWHERE, **changed}
    await metastore.commit(Txn((), tuple(Put(name, each) for name, each in stored.items())))
    start = NodeStart(Node("n1"), directory)
    judge = RemovalJudge(metastore, KEYSPACE, Registration(metastore, KEYSPACE, start))
    return await judge.judge(P0, lambda found: "n1" in found.peers, peer_url)


async def test_what_is_assigned_to_others_may_go(tmp_path: Path) -> None:
    """This shows that the cases below keep a copy for its garbage alone."""
    found = await judged(tmp_path)
    assert (found.verdict, found.keeps, found.event) == (RemovalVerdict.MAY_GO, False, 7)
    wanted = await judged(tmp_path, {KEYS.pending: Assignments(("n1", "n2")).encode()})
    assert wanted.verdict is RemovalVerdict.ASSIGNED


@pytest.mark.parametrize("value", GARBAGE)
@pytest.mark.parametrize(
    "key", [KEYS.stable, KEYS.pending, KEYS.trigger, KEYSPACE.intent(P0.zone_id), KEYSPACE.epoch]
)
async def test_nothing_goes_beside_what_cannot_be_read(tmp_path: Path, key: str, value: bytes) -> None:
    found = await judged(tmp_path, {key: value})
    assert found.verdict is RemovalVerdict.KEPT
    assert f"RECORD_NOT_READABLE: {key}" in found.why


@pytest.mark.parametrize("value", GARBAGE)
async def test_copies_are_kept_while_the_limits_cannot_be_read(tmp_path: Path, value: bytes) -> None:
    found = await judged(tmp_path, {KEYSPACE.limits: value})
    assert (found.verdict, found.keeps) == (RemovalVerdict.MAY_GO, True)


@pytest.mark.parametrize("value", GARBAGE)
async def test_after_an_adoption_the_groups_own_word_must_be_readable(tmp_path: Path, value: bytes) -> None:
    adopted = {KEYSPACE.epoch: EpochRecord(2).encode()}
    found = await judged(tmp_path, {**adopted, KEYS.configuration: value}, peer_url="http://n1:1")
    assert found.verdict is RemovalVerdict.KEPT
    assert f"RECORD_NOT_READABLE: {KEYS.configuration}" in found.why
