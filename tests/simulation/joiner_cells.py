"""A joiner that dies for good: at each stage of its move, for each strategy, scale-down, and way to an end.

No cell may stay where it is: moves go on without joiners that are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

from catalog.core.errors import RefusedError
from catalog.core.zone import EVERY_NODE
from rebalance.controllers.clock import WallClock
from rebalance.controllers.operation_control import OperationControl
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.keyspace.records import ConfigurationRecord
from rebalance.core.operations.operation import Operation
from simulator.control.moves import OperationAuditor
from simulator.control.simulated_cluster import SimulatedReplica
from simulator.control.staying import PUT_S, put_for_ever
from tests.simulation.learner_world import HEALTHY_S, P0, LearnerWorld, virtually

COPY_S = 3.0
STAGE_S = 60.0
LOOK_S = 0.005
"""A joiner that is in sync votes at the leader's next look, within 0.1 s."""
REST_S = 240.0
"""A joiner's time-out is 60 s; what is given up has to be removed and switched after that."""
CANCELLED_S = 30.0
"""Seconds of a cancelled move, which waits for no time-out."""
NEVER_S = 100_000


class Stage(Enum):
    RESERVED = "reserved"
    STARTED = "started"
    COPYING = "copying"
    IN_SYNC = "in sync"
    PROMOTED = "promoted"
    LEAVING = "while the old voter leaves"


class Way(Enum):
    """Cause that ends the move."""

    LEAVES = "it leaves the data nodes"
    TIME_OUT = "the time-out"
    ALTER = "an ALTER back"
    CANCEL = "the operator's cancel"


@dataclass(frozen=True, slots=True)
class Cell:
    stage: Stage
    strategy: Strategy
    scales_down: bool
    way: Way

    def __str__(self) -> str:
        scaling = "scales down" if self.scales_down else "keeps its nodes"
        return f"{self.stage.value}, {self.strategy.value}, {scaling}, {self.way.value}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``left``: what is not at rest. ``puts``: acknowledged after the death."""

    left: str
    cause: str
    lost: int
    puts: int


def cells() -> Iterator[Cell]:
    """Cells of all stages; without scale-down no node leaves the data nodes."""
    for stage in Stage:
        for strategy in Strategy:
            for scales_down in (True, False):
                for way in Way:
                    if scales_down or way is not Way.LEAVES:
                        yield Cell(stage, strategy, scales_down, way)


def outcome(cell: Cell) -> Outcome:
    """Raises AssertionError when the stage is never reached."""
    outcomes: list[Outcome] = []

    async def main(world: LearnerWorld) -> None:
        outcomes.append(await _live(world, cell))

    virtually(main, nodes=6)
    return outcomes[0]


async def _live(world: LearnerWorld, cell: Cell) -> Outcome:
    world.environment.strategy = cell.strategy
    world.controller.start()
    operations = OperationAuditor(world.store, world.keyspace, world.auditor, causes=False)
    puts = asyncio.create_task(put_for_ever(world.environment))
    try:
        scale_down_s = (10 if cell.way is Way.LEAVES else 150) if cell.scales_down else NEVER_S
        world.want(3, scale_down_s=scale_down_s)
        await world.settled()
        await asyncio.sleep(HEALTHY_S)
        world.cluster.rates = replace(world.cluster.rates, catch_up_s=(COPY_S, COPY_S))
        before = world.assignments()
        assert before is not None
        rack = int(before.peers[-1].removeprefix("n")) % 3
        world.want(3, scale_down_s=scale_down_s, nodes_filter=f"$[?(@.rack != {rack})]")
        joiner = await _at_stage(world, cell.stage, frozenset(before.peers))
        world.kill(joiner)
        acknowledged = world.group.acknowledged
        if cell.way is Way.ALTER:
            await asyncio.sleep(5.0)
            world.want(3, scale_down_s=scale_down_s, nodes_filter=EVERY_NODE)
        if cell.way is Way.CANCEL:
            await asyncio.sleep(5.0)
            await _cancel(world)
        await _rest(world, CANCELLED_S if cell.way is Way.CANCEL else REST_S)
        facts = world.auditor.zones[P0.zone_id]
        newest = max(world.group.replicas[each].acknowledged for each in world.group.voters)
        return Outcome(
            left=_left(world),
            cause=operations.cause(P0, facts),
            lost=max(world.group.acknowledged - newest, world.group.lost),
            puts=world.group.acknowledged - acknowledged,
        )
    finally:
        puts.cancel()


async def _at_stage(world: LearnerWorld, stage: Stage, before: frozenset[str]) -> str:
    """The joiner that has reached it, of those that join partition 0."""
    reached: list[str] = []

    def is_reached() -> bool:
        pending = world.assignments(name="pending")
        joiners = sorted(frozenset(pending.peers) - before) if pending is not None else []
        reached[:] = [each for each in joiners if _has_reached(world, stage, each)]
        return bool(reached)

    await world.until(is_reached, STAGE_S, LOOK_S)
    return reached[0]


def _has_reached(world: LearnerWorld, stage: Stage, joiner: str) -> bool:
    replica, voters = world.cluster.disk(joiner).get(P0), world.group.nodes[0]
    if replica is None:
        return False
    match stage:
        case Stage.RESERVED:
            return replica.group is None
        case Stage.STARTED:
            return replica.runs and not replica.answers
        case Stage.COPYING:
            return joiner not in voters and replica.answers and not _is_in_sync(replica)
        case Stage.IN_SYNC:
            return joiner not in voters and replica.answers and _is_in_sync(replica)
        case Stage.PROMOTED:
            return joiner in voters
        case Stage.LEAVING:
            return joiner in voters and _leaves(world)


def _is_in_sync(replica: SimulatedReplica) -> bool:
    return replica.synced_at <= asyncio.get_running_loop().time()


def _leaves(world: LearnerWorld) -> bool:
    found = world.store.peek(world.keyspace.partition(P0).configuration)
    return found is not None and any(
        each.leaving for each in ConfigurationRecord.decode(found.value).members.values()
    )


async def _cancel(world: LearnerWorld) -> None:
    """The newest operation, unless it is over by now."""
    items = world.store.range_now(world.keyspace.operations).items
    newest = max((Operation.decode(item.value) for item in items), key=lambda each: each.event_revision)
    control = OperationControl(world.store, world.keyspace, WallClock())
    with suppress(RefusedError):
        await control.cancel(newest.operation_id, "an operator", "its node is dead")


async def _rest(world: LearnerWorld, rest_s: float) -> None:
    """Wait until the world is at rest and stays so, or the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + rest_s
    while loop.time() < deadline:
        await asyncio.sleep(10 * PUT_S)
        if not _left(world):
            await asyncio.sleep(10 * PUT_S)
            if not _left(world):
                return


def _left(world: LearnerWorld) -> str:
    keys = world.keyspace.partition(P0)
    left = [each for each in (keys.pending, keys.planned, keys.lock) if world.store.peek(each) is not None]
    stable = world.assignments()
    if stable is None or world.group.nodes != (frozenset(stable.peers), frozenset()):
        left.append(f"the group {world.group.nodes}")
    return ", ".join(left)
