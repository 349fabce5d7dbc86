"""The guarded writes against a script: each decision is committed to a store, and the keys are read back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from catalog.core.zone import Strategy, ZoneId
from rebalance.core.assignments import Assignments
from rebalance.core.change_lock import PendingLock, decode_lock, encode_lock
from rebalance.core.guarded_write import Decision, Observed, decode_trigger, encode_revision, encode_trigger
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.records import (
    ConfigurationRecord,
    ConfiguredMember,
    GivenUpJoiner,
    GivenUpRecord,
    MemberRole,
    Stage,
)
from rebalance.core.txn import KeyValue, Put, Txn
from rebalance.metastore.memory import MemoryMetastore
from tests.datadriven.runner import Block, run_script
from tests.model.world import REAL, Decisions

KEYS = Keyspace().partition(PartitionId(ZoneId(1), 0))
GIVEN_UP = Keyspace().given_up(PartitionId(ZoneId(1), 0))
PROTOCOL_SCRIPTS = ("guarded_write.txt", "strategies.txt", "forced_move.txt")
ENDING_SCRIPTS = ("give_up.txt", "call_back.txt", "withdrawal.txt")
"""How a move ends that its target does not end."""
FIELDS = ("stable", "pending", "planned", "trigger", "lock")


def assignments(text: str) -> Assignments:
    """``a,b+c!`` is peers a and b with learner c, forced."""
    members, forced = text.removesuffix("!"), text.endswith("!")
    peers, _, learners = members.partition("+")
    return Assignments(tuple(peers.split(",")), tuple(learners.split(",")) if learners else (), int(forced))


def encode(field: str, text: str, pending_revision: int, strategy: Strategy) -> bytes:
    """``lock=held`` is the lock of the pending set as it is, ``lock=other`` that of an earlier one;
    ``lock=held:x@5``: for the joiner x, taken in term 5. ``lock=former`` is what builds before wrote."""
    if field == "trigger":
        return encode_trigger(int(text))
    if text == "former":
        return encode_revision("pending", pending_revision)
    if field == "lock":
        kind, _, more = text.partition(":")
        joiner, _, term = more.partition("@")
        return encode_lock(PendingLock(pending_revision if kind == "held" else 1, joiner, int(term or 0)))
    found = assignments(text)
    return (found if field == "stable" else replace(found, strategy=strategy)).encode()


def show(found: KeyValue | None, field: str, pending: KeyValue | None) -> str:
    if found is None:
        return "-"
    if field == "trigger":
        return str(decode_trigger(found.value))
    if field == "lock":
        lock = decode_lock(found.value)
        kind = "held" if pending and lock.pending == pending.mod_revision else "other"
        return f"{kind}:{lock.joiner}@{lock.term}" if lock.term else kind
    read = Assignments.decode(found.value)
    learners = "+" + ",".join(read.learners) if read.learners else ""
    return ",".join(read.peers) + learners + ("!" if read.forced else "")


async def observe(store: MemoryMetastore) -> Observed:
    stable, pending, planned, trigger, lock = [await store.get(getattr(KEYS, field)) for field in FIELDS]
    return Observed(KEYS, stable, pending, planned, trigger, lock)


async def prepared(block: Block) -> MemoryMetastore:
    store = MemoryMetastore()
    for field in FIELDS:
        text = block.arguments.get(field, "-")
        if text != "-":
            pending = await store.get(KEYS.pending)
            strategy = Strategy(block.arguments.get("running", block.arguments.get("strategy", "queue")))
            value = encode(field, text, pending.mod_revision if pending else 0, strategy)
            await store.commit(Txn((), (Put(getattr(KEYS, field), value),)))
    if "voters" in block.arguments:
        await store.commit(Txn((), (Put(KEYS.configuration, published(block.arguments["voters"])),)))
    if "known" in block.arguments:
        await store.commit(Txn((), (Put(GIVEN_UP, recorded(block.arguments["known"])),)))
    return store


def recorded(text: str) -> bytes:
    """``20:c@20x2,d@10x1``: for event 20, of joiners c and d, given up for the second time in a row, and once
    for event 10."""
    event, _, names = text.partition(":")
    joiners: dict[str, GivenUpJoiner] = {}
    for each in names.split(","):
        name, _, more = each.partition("@")
        its_event, _, times = more.partition("x")
        joiners[name] = GivenUpJoiner(int(its_event), int(times))
    return GivenUpRecord(int(event), joiners).encode()


def show_recorded(found: KeyValue | None) -> str:
    if found is None:
        return "-"
    record = GivenUpRecord.decode(found.value)
    shown = (
        f"{name}@{each.event}x{each.times}{each.incarnation}" for name, each in sorted(record.joiners.items())
    )
    return f"{record.event}:" + ",".join(shown)


def published(text: str) -> bytes:
    """``a,b+c``: voters a and b, learner c."""
    found = assignments(text)
    roles = {
        **dict.fromkeys(found.peers, MemberRole.VOTER),
        **dict.fromkeys(found.learners, MemberRole.LEARNER),
    }
    members = {name: ConfiguredMember(name, role, "p") for name, role in roles.items()}
    return ConfigurationRecord(1, found.primary, Stage.CATCHING_UP, members).encode()


def decide(
    block: Block,
    observed: Observed,
    decisions: Decisions,
    configuration: KeyValue | None = None,
    given_up: KeyValue | None = None,
) -> Decision:
    """``strategy`` is that of the target, and of what is pending, unless ``running`` says another.
    ``token=old`` is the revision of a pending set that is no more."""
    arguments = block.arguments
    token = observed.pending.mod_revision if observed.pending and arguments.get("token") != "old" else 1
    match block.command:
        case "trigger":
            strategy = Strategy(arguments.get("strategy", "queue"))
            target, event = assignments(arguments["target"]), int(arguments["event"])
            return decisions.on_trigger(observed, target, event, strategy=strategy)
        case "applied":
            return decisions.on_applied(observed, assignments(arguments["applied"]))
        case "forced":
            then = assignments(arguments["then"]) if "then" in arguments else None
            target, event = assignments(arguments["target"]), int(arguments["event"])
            return decisions.on_forced(observed, target, event, then=then)
        case "caught-up":
            joiner, term = arguments.get("joiner", ""), int(arguments.get("term", 0))
            return decisions.on_catch_up_finished(observed, token, term=term, joiner=joiner)
        case "cancelled":
            is_cancelled = arguments["answer"] != "TOO_LATE"
            return decisions.on_cancelled(observed, token, is_cancelled=is_cancelled)
        case "unlock":
            stage, term = Stage(arguments["stage"]), int(arguments.get("term", 0))
            changing = arguments.get("changing") == "yes"
            return decisions.on_unlock(observed, stage, term=term, of_earlier_terms=changing)
        case "withdraw":
            return decisions.on_withdrawal(observed, int(arguments["event"]), int(arguments["at"]))
        case "call-back":
            event, at = int(arguments["event"]), int(arguments["at"])
            return decisions.on_call_back(observed, configuration, event, at)
        case "give-up":
            gone = dict.fromkeys(arguments["gone"].split(","), arguments.get("incarnation", ""))
            holding = arguments.get("holding", "").split(",")
            return decisions.on_joiners_gone(
                observed, gone, given_up=given_up, given_up_key=GIVEN_UP, holding=holding
            )
    raise ValueError(f"{block.command} is no command of this script")


async def execute(block: Block, decisions: Decisions = REAL) -> str:
    store = await prepared(block)
    others = await store.get(KEYS.configuration), await store.get(GIVEN_UP)
    decision = decide(block, await observe(store), decisions, *others)
    if decision.transaction is not None:
        # Another writer may come between reading and writing: then nothing of ours may be written.
        interfering = block.arguments.get("meanwhile")
        if interfering is not None:
            key = GIVEN_UP if interfering == "given-up" else getattr(KEYS, interfering)
            found = await store.get(key)
            other = recorded("10:z@10x1") if key == GIVEN_UP else encode_trigger(0)
            await store.commit(Txn((), (Put(key, found.value if found else other),)))
        result = await store.commit(decision.transaction)
        if not result.succeeded:
            return f"{decision.outcome.value} refused by its guards"
    after = await observe(store)
    shown = " ".join(f"{field}={show(getattr(after, field), field, after.pending)}" for field in FIELDS)
    if block.command == "give-up":
        shown += f" given-up={show_recorded(await store.get(GIVEN_UP))}"
    return f"{decision.outcome.value}\n{shown}"


@pytest.mark.row(
    "I3-010", "I3-016..026", "I3-036", "I3-037", "I3A-004..010", "I3A-014..027", "M5", "M7", "M13", shows="core"
)
@pytest.mark.parametrize("script", PROTOCOL_SCRIPTS)
def test_script(script: str) -> None:
    """I3-010, I3-016..026, I3-036, I3-037, I3A-004..010, I3A-014..027: every branch, and the guards of each;
    decisions 7, 8, 9, 10, 11."""
    run_script(script, lambda block: asyncio.run(execute(block)))


@pytest.mark.row("VOL-095", shows="core")
def test_withdrawal() -> None:
    """VOL-095: what an operation has not begun goes back to what is stable; with a move that begins at the same
    time, one of the two wins."""
    run_script("withdrawal.txt", lambda block: asyncio.run(execute(block)))


@pytest.mark.row("M8", "M10", shows="core")
def test_call_back() -> None:
    """M8, M10: what an operation has begun goes back until a voter of before was removed; each key that was
    looked at is guarded."""
    run_script("call_back.txt", lambda block: asyncio.run(execute(block)))


@pytest.mark.row("M1", "M2", shows="core")
def test_giving_up() -> None:
    """M1, M2: a move goes on without joiners that are gone, or with what is planned; who was given up is
    recorded; each key that was looked at is guarded."""
    run_script("give_up.txt", lambda block: asyncio.run(execute(block)))
