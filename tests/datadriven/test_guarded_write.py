"""The guarded writes against a script: each decision is committed to a store, and the keys are read back."""

from __future__ import annotations

import asyncio

from catalog.core.zone import ZoneId
from rebalance.core.assignments import Assignments
from rebalance.core.guarded_write import (
    Decision,
    Observed,
    decide_on_configuration_applied,
    decide_on_trigger,
    decode_trigger,
    encode_trigger,
)
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.txn import Put, Txn
from rebalance.metastore.memory import MemoryMetastore
from tests.datadriven.runner import Block, run_script

KEYS = Keyspace().partition(PartitionId(ZoneId(1), 0))
FIELDS = ("stable", "pending", "planned", "trigger")


def assignments(text: str) -> Assignments:
    """``a,b+c`` is peers a and b with learner c."""
    peers, _, learners = text.partition("+")
    return Assignments(tuple(peers.split(",")), tuple(learners.split(",")) if learners else ())


def show(value: bytes | None, field: str) -> str:
    if value is None:
        return "-"
    if field == "trigger":
        return str(decode_trigger(value))
    found = Assignments.decode(value)
    return ",".join(found.peers) + ("+" + ",".join(found.learners) if found.learners else "")


async def observe(store: MemoryMetastore) -> Observed:
    return Observed(KEYS, **{field: await store.get(getattr(KEYS, field)) for field in FIELDS})  # type: ignore[arg-type]


async def prepared(block: Block) -> MemoryMetastore:
    store = MemoryMetastore()
    for field in FIELDS:
        text = block.arguments.get(field, "-")
        if text != "-":
            value = encode_trigger(int(text)) if field == "trigger" else assignments(text).encode()
            await store.commit(Txn((), (Put(getattr(KEYS, field), value),)))
    return store


def decide(block: Block, observed: Observed) -> Decision:
    if block.command == "trigger":
        return decide_on_trigger(
            observed, assignments(block.arguments["target"]), int(block.arguments["event"])
        )
    return decide_on_configuration_applied(observed, assignments(block.arguments["applied"]))


async def execute(block: Block) -> str:
    store = await prepared(block)
    decision = decide(block, await observe(store))
    if decision.transaction is not None:
        # Another writer may come between reading and writing: then nothing of ours may be written.
        interfering = block.arguments.get("meanwhile")
        if interfering is not None:
            key = getattr(KEYS, interfering)
            found = await store.get(key)
            await store.commit(Txn((), (Put(key, found.value if found else encode_trigger(0)),)))
        result = await store.commit(decision.transaction)
        if not result.succeeded:
            return f"{decision.outcome.value} refused by its guards"
    after = await observe(store)
    shown = " ".join(
        f"{field}={show(kv.value if (kv := getattr(after, field)) else None, field)}" for field in FIELDS
    )
    return f"{decision.outcome.value}\n{shown}"


def test_script() -> None:
    """I3-010, I3-016..026, I3-036, I3-037: every branch, and the guards of each; decisions 7, 8, 9, 10."""
    run_script("guarded_write.txt", lambda block: asyncio.run(execute(block)))
