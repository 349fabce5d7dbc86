"""Controllers, a clock that stands still, and groups that are only written down: zones that lose majorities."""

from __future__ import annotations

from dataclasses import replace

from catalog.core.quorum import majority
from catalog.core.zone import ConsistencyMode, Zone, ZoneId, ZoneIntent
from rebalance.controllers.automatic_reset import AutomaticReset
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.core.admission import Limits
from rebalance.core.assignments import Assignments
from rebalance.core.guarded_write import Observed, decide_on_configuration_applied, decode_trigger
from rebalance.core.isolation import WAIT_MS, FenceRecord
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.limit_options import RESET_S
from rebalance.core.records import (
    ConfigurationRecord,
    ConfiguredMember,
    LogPosition,
    MemberRecord,
    MemberRole,
    MemberState,
    Stage,
)
from rebalance.core.topology import NO_HOLD, HoldRule
from rebalance.core.txn import Get, Put, Txn
from rebalance.ports.metastore import Metastore
from tests.probe_stub import ProbeStub
from tests.timer_world import StillClock, TimerWorld

ZONE = Zone(ZoneId(1), "Z", 1, 3, None, ("default",), consistency_mode=ConsistencyMode.HIGH_AVAILABILITY)
STRONG = replace(ZONE, consistency_mode=ConsistencyMode.STRONG_CONSISTENCY)
P0 = PartitionId(ZONE.zone_id, 0)


class SteadyTime:
    """The world's time without the jumps of its wall clock."""

    def __init__(self, clock: StillClock) -> None:
        self._clock = clock
        self.jumped_ms = 0

    def now_ms(self) -> int:
        return self._clock.ms - self.jumped_ms

    async def sleep_until(self, at_ms: int) -> None:
        await self._clock.sleep_until(at_ms + self.jumped_ms)


class RecoveryWorld(TimerWorld):
    """``fence_s``: what nodes that join publish; None: nothing.
    ``heard_since_ms``: since when the metastore has answered; None: it does not. ``moves``: whether groups
    carry out what pending asks for."""

    def __init__(self, store: Metastore, keyspace: Keyspace, hold: HoldRule = NO_HOLD) -> None:
        super().__init__(store, keyspace, hold)
        self.fence_s: int | None = RESET_S - WAIT_MS // 1_000
        self.steady = SteadyTime(self.clock)
        self.heard_since_ms: int | None = 0
        self.moves = True
        self.positions: dict[str, int] = {}
        self.probe = ProbeStub()
        self.recovery = PartitionRecovery(store, keyspace, self.probe)
        self.forced: list[Assignments] = []
        self.resets: AutomaticReset | None = None

    async def start(self) -> None:
        """A controller that has seen nothing yet."""
        self.resets = None
        await super().start()
        controller = self.controller
        assert controller is not None
        self.resets = AutomaticReset(
            self.store,
            self.keyspace,
            lambda: controller.topology.known,
            self.clock,
            self.steady,
            self.hold,
            lambda: self.heard_since_ms,
            self.probe,
        )
        await self.look()

    async def limit(self, reset_s: int) -> None:
        """Sets ``ha_reset_s``. No zone is placed anew then: the controller here does not follow limits."""
        put = Put(self.keyspace.limits, Limits(ha_reset_s=reset_s).encode())
        await self.store.commit(Txn((), (put,)))
        await self.look()

    def jump(self, seconds: float) -> None:
        """The wall clock is set, forward or back; no time goes by."""
        self.steady.jumped_ms += round(1_000 * seconds)
        self.clock.set(self.clock.ms + round(1_000 * seconds))

    async def join(self, name: str, **attributes: str) -> None:
        """With the fence that nodes keep now."""
        if self.fence_s is not None:
            await self.publish_fence(name, f"start-{self._starts + 1}", self.fence_s)
        self._notice(name)
        await super().join(name, **attributes)

    async def leave(self, *names: str) -> None:
        self._notice(*names)
        await super().leave(*names)

    async def publish_fence(self, name: str, incarnation: str, fence_s: int) -> None:
        record = FenceRecord(incarnation, 1_000 * fence_s)
        await self.store.commit(Txn((), (Put(self.keyspace.fence(name), record.encode()),)))

    def _notice(self, *names: str) -> None:
        if self.resets is not None:
            self.resets.notice([self.keyspace.node(name) for name in names])

    def kill(self) -> None:
        super().kill()
        self.resets = None

    async def with_nodes(self, zone: Zone, *names: str, **attributes: str) -> None:
        """A running zone on these nodes."""
        await self.start()
        for name in names:
            await self.join(name, **attributes)
        await self.publish(zone)
        await self.carry_out()

    async def reconcile(self) -> None:
        await super().reconcile()
        if self.moves:
            await self.carry_out()
        await self.look()

    async def look(self) -> None:
        """As the controllers do after each round of a zone; groups go on meanwhile."""
        for zone_id in self.intents if self.resets is not None else ():
            assert self.resets is not None
            while await self.resets.look(zone_id):
                pending = await self.assigned("pending")
                assert pending is not None
                self.forced.append(pending)
                if not self.moves:
                    return
                await self.carry_out()

    async def elapse(self, to_s: float) -> None:
        """``advance`` to ``to_s`` of steady time, with the resets that become due on the way."""
        while self.resets is not None:
            now_ms, to_ms = self.steady.now_ms(), round(to_s * 1_000)
            due = [ms for ms in range(now_ms, to_ms + 1, 500) if self.resets.due.due(ms)]
            if not due:
                break
            await self.advance((due[0] + self.steady.jumped_ms) / 1_000)
            before = self.steady.now_ms()
            await self.look()
            if self.resets.due.due(before):
                break
        await self.advance(to_s + self.steady.jumped_ms / 1_000)

    async def assigned(self, field: str, partition: PartitionId = P0) -> Assignments | None:
        found = await self.store.get(getattr(self.keyspace.partition(partition), field))
        return Assignments.decode(found.value) if found is not None else None

    async def stable(self) -> str:
        found = await self.assigned("stable")
        return ",".join(sorted(found.nodes)) if found is not None else "-"

    async def trigger(self) -> int:
        found = await self.store.get(self.keyspace.partition(P0).trigger)
        assert found is not None
        return decode_trigger(found.value)

    async def carry_out(self) -> None:
        """What groups can do now, to its end: one without a majority does what is forced, and nothing else."""
        while await self._one_step():
            pass

    async def _one_step(self) -> bool:
        keys = self.keyspace.partition(P0)
        names = (keys.stable, keys.pending, keys.planned, keys.trigger, keys.lock, keys.configuration)
        read = await self.store.commit(Txn((), tuple(Get(name) for name in names)))
        observed = Observed(keys, *(read.only(index) for index in range(5)))
        if observed.stable is None:
            return False
        configured = read.only(5)
        if configured is None:
            await self._commit(Assignments.decode(observed.stable.value), 0)
            return True
        pending = Assignments.decode(observed.pending.value) if observed.pending is not None else None
        if pending is None or not await self._may_take(pending, ConfigurationRecord.decode(configured.value)):
            return False
        await self._commit(pending, pending.forced)
        decision = decide_on_configuration_applied(observed, pending)
        assert decision.transaction is not None
        return (await self.store.commit(decision.transaction)).succeeded

    async def _may_take(self, pending: Assignments, configuration: ConfigurationRecord) -> bool:
        alive = {
            item.key.removeprefix(self.keyspace.nodes)
            for item in (await self.store.range(self.keyspace.nodes)).items
        }
        if pending.forced:
            return pending.primary in alive
        voters = configuration.members.keys()
        return len(voters & alive) >= majority(len(voters)) and pending.nodes <= alive

    async def _commit(self, members: Assignments, generation: int) -> None:
        configured = {
            node: ConfiguredMember(node, MemberRole.VOTER, f"peer-{node}") for node in sorted(members.nodes)
        }
        record = ConfigurationRecord(1, members.primary, Stage.NONE, configured, generation=generation)
        puts = [Put(self.keyspace.partition(P0).configuration, record.encode())]
        for node in sorted(members.nodes):
            known = self.positions.get(node, 5)
            position = LogPosition(known, known, True)
            member = MemberRecord(MemberState.RUNNING, f"peer-{node}", "c", True, position=position)
            puts.append(Put(self.keyspace.member(P0, node), member.encode()))
        await self.store.commit(Txn((), tuple(puts)))

    def intent(self) -> ZoneIntent:
        return self.intents[ZONE.zone_id]
