"""Runs of a simulated cluster: to rest in order, or step by step as a seed draws."""

from __future__ import annotations

import random
from dataclasses import dataclass

from catalog.core.zone import LossPolicy, ZoneId
from rebalance.core.topology_version import Trigger, ZoneSpec
from rebalance.exchange.simulation.exchange_rules import ExchangeRules
from rebalance.exchange.simulation.exchange_workload import SyncMode
from rebalance.exchange.simulation.exchange_world import ExchangeWorld

STEPS_MAX = 5_000
TICK_EVERY = 50
"""Rounds between two resend periods while something moves: an operation may go round and round until a message
that was lost is sent again."""


class NoRestError(Exception):
    """The cluster does not come to rest: something waits for ever, or goes on for ever."""


def settle(world: ExchangeWorld) -> int:
    """Let everything happen that needs no new cause, without faults; returns how many rounds it took.

    Raises NoRestError after ``STEPS_MAX`` rounds, or when an exchange still runs although nothing moves.
    """
    for round_number in range(STEPS_MAX):
        if round_number % TICK_EVERY == TICK_EVERY - 1:
            for name in sorted(world.nodes):
                world.tick(name)
        if not _round(world):
            stuck = [node.name for node in world.nodes.values() if not node.worker.is_idle]
            if not stuck or not world.ring.cluster.servers:
                return round_number
            for name in sorted(world.nodes):
                world.tick(name)
                world.time_out(name)
            moved = _round(world)
            stuck = [name for name in stuck if not world.nodes[name].worker.is_idle]
            if not moved and stuck:
                running = {name: str(world.nodes[name].worker.running) for name in stuck}
                raise NoRestError(f"exchanges that do not end: {running}")
    raise NoRestError(f"no rest after {STEPS_MAX} rounds")


def _round(world: ExchangeWorld) -> bool:
    """Everything once; False when nothing was there to be done."""
    did = False
    while world.network:
        world.deliver(0)
        did = True
    for operation in world.workload.open:
        did |= world.advance(operation)
        for backup in sorted(operation.commits):
            did |= world.commit(operation, backup)
    for name in sorted(world.nodes):
        did |= world.discover(name)
        if not world.network:
            did |= world.fill(name, batch=100) | world.rent(name) | world.clear(name)
            world.notify(name)
    return did or bool(world.network)


@dataclass(frozen=True, slots=True)
class ExchangeShape:
    """What a seeded run is about. ``faults``: messages get lost and repeated."""

    servers: int = 4
    partitions: int = 6
    copies: int = 2
    policy: LossPolicy = LossPolicy.READ_WRITE_SAFE
    persistent: bool = False
    baseline: bool = False
    faults: bool = True
    steps: int = 400


class ExchangeRun:
    """``run`` draws ``shape.steps`` steps, then lets the cluster come to rest, and checks rules all the way."""

    def __init__(self, seed: int, shape: ExchangeShape) -> None:
        self._rng = random.Random(seed)
        self._shape = shape
        zone = ZoneSpec(ZoneId(1), shape.partitions, shape.copies, shape.policy)
        names = [f"n{number}" for number in range(1, shape.servers + 1)]
        baseline = frozenset(names) if shape.baseline else None
        self.world = ExchangeWorld([zone], persistent=shape.persistent, baseline=baseline)
        self.rules = ExchangeRules()
        self.world.watchers.append(self.rules)
        self._names = [*names, f"n{shape.servers + 1}"]
        self._zone = zone

    def run(self) -> ExchangeWorld:
        """Raises RuleBrokenError or NoRestError."""
        world = self.world
        for name in self._names[:2]:
            world.start(name)
            settle(world)
        for _ in range(self._shape.steps):
            self._step()
        for name in sorted(world.undetected):
            world.detect(name)
        settle(world)
        for name in sorted(world.nodes):
            world.tick(name)
        settle(world)
        return world

    def _step(self) -> None:
        world, rng = self.world, self._rng
        draw = rng.random()
        alive = sorted(world.nodes)
        if draw < 0.40 and world.network:
            self._message()
        elif draw < 0.60 and alive:
            world.discover(rng.choice(alive))
        elif draw < 0.80 and alive:
            self._operation(alive)
        elif draw < 0.90 and alive:
            name = rng.choice(alive)
            steps = (world.fill, world.rent, world.clear, world.notify, world.tick, world.time_out)
            rng.choice((*steps, world.checkpoint, world.truncate))(name)
        elif draw < 0.94:
            self._member(alive)
        elif draw < 0.95 and alive:
            self._custom()

    def _message(self) -> None:
        world, rng = self.world, self._rng
        index = rng.randrange(len(world.network))
        fate = rng.random() if self._shape.faults else 1.0
        if fate < 0.1:
            world.drop(index)
        elif fate < 0.2:
            world.repeat(index)
        else:
            world.deliver(index)

    def _operation(self, alive: list[str]) -> None:
        world, rng = self.world, self._rng
        running = world.workload.open
        committing = [each for each in running if each.commits]
        if committing and rng.random() < 0.4:
            operation = rng.choice(committing)
            world.commit(operation, rng.choice(sorted(operation.commits)))
        elif running and rng.random() < 0.8:
            world.advance(rng.choice(running))
        elif len(running) < 6:
            world.workload.begin(
                rng.choice(alive),
                (self._zone.zone_id, rng.randrange(self._zone.partitions)),
                mode=rng.choice(tuple(SyncMode)),
                held_open=rng.random() < 0.1,
            )

    def _member(self, alive: list[str]) -> None:
        world, rng = self.world, self._rng
        known = {*world.nodes, *world.undetected, *(each.name for each in world.ring.joining)}
        away = [name for name in self._names if name not in known]
        if world.undetected and rng.random() < 0.5:
            world.detect(rng.choice(sorted(world.undetected)))
        elif away and (rng.random() < 0.6 or len(alive) < 2):
            world.start(rng.choice(away))
        elif "c1" not in known and rng.random() < 0.2:
            world.start("c1", client=True)
        elif len(alive) > 1:
            rng.choice((world.kill, world.stop))(rng.choice(alive))

    def _custom(self) -> None:
        world, rng = self.world, self._rng
        trigger = rng.choice((Trigger.SNAPSHOT_CREATE, Trigger.LOSS_RESET, Trigger.LOG_SWITCH))
        if self._shape.baseline and rng.random() < 0.5:
            world.custom(Trigger.BASELINE_SET, baseline=frozenset(rng.sample(self._names, self._shape.servers)))
        else:
            world.custom(trigger, (self._zone,))
