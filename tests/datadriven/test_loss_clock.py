"""Time for which the voters of one partition have been lost, against a script, in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    LogPosition,
    MemberRecord,
    MemberRole,
    MemberState,
    Stage,
)
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.recovery.loss_clock import AbsentNode, Hearing, LossClock, ResetRule, judge
from rebalance.core.topology.fencing import FenceRecord
from tests.datadriven.runner import Block, run_script

PROBE_S = 0.5
LIMIT_MS = 2_500
FENCE_S = 6


def names(arguments: dict[str, str], name: str) -> tuple[str, ...]:
    return tuple(filter(None, arguments.get(name, "").split(",")))


@dataclass(slots=True)
class Play:
    """``new`` begins a partition whose members all live; every other command goes on at the second ``at``.
    The metastore answers twice a second unless ``silent`` says that it has not since."""

    view: PartitionView = field(default_factory=lambda: PartitionView(None, None, None, None, processed=True))
    fences: dict[str, tuple[int, FenceRecord]] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    clock: LossClock = field(default_factory=LossClock)
    hearing: Hearing = field(default_factory=lambda: Hearing(LIMIT_MS))
    rule: ResetRule = field(default_factory=lambda: ResetRule(10))
    now_s: float = 0.0
    term: int = 1
    revision: int = 0

    def execute(self, block: Block) -> str:
        arguments = dict(block.arguments)
        if block.command == "new":
            self._new(arguments)
            return "ok"
        self._advance(float(arguments.pop("at")), is_silent="silent" in arguments)
        getattr(self, f"_{block.command}")(arguments)
        return self._judged(names(arguments, "absent"), names(arguments, "missing"))

    def _new(self, arguments: dict[str, str]) -> None:
        voters, learners = names(arguments, "voters"), names(arguments, "learners")
        leaving = names(arguments, "leaving")
        members = {
            name: ConfiguredMember(
                name,
                MemberRole.VOTER if name in voters else MemberRole.LEARNER,
                f"peer-{name}",
                name in leaving,
            )
            for name in (*voters, *learners)
        }
        record = MemberRecord(MemberState.RUNNING, "", "", True, position=LogPosition(5, 5, True))
        pending = names(arguments, "pending")
        self.view = PartitionView(
            target=Assignments(voters),
            stable=Assignments(voters),
            pending=Assignments(pending) if pending else None,
            planned=None,
            processed=True,
            members={name: replace(record, peer_url=f"peer-{name}") for name in members},
            configuration=ConfigurationRecord(1, voters[0], Stage.NONE, members),
        )
        self.clock, self.hearing, self.fences = LossClock(), Hearing(LIMIT_MS), {}
        self.now_s, self.term, self.revision = 0.0, 1, 0
        self.rule = ResetRule(int(arguments.get("reset", "10")), 1_000 * int(arguments.get("grace", "0")))
        self.nodes = dict.fromkeys(members, "1")
        unfenced = names(arguments, "unfenced")
        for name in members:
            if name not in unfenced:
                self._publish(name, "1", FENCE_S)

    def _advance(self, to_s: float, *, is_silent: bool) -> None:
        while not is_silent and self.now_s + PROBE_S < to_s:
            self.now_s += PROBE_S
            self._answered()
        self.now_s = to_s
        self._answered()

    def _answered(self) -> None:
        self.hearing = self.hearing.answered(self._now_ms, self.term)

    @property
    def _now_ms(self) -> int:
        return round(1_000 * self.now_s)

    def _publish(self, name: str, incarnation: str, fence_s: int) -> None:
        self.revision += 1
        self.fences[name] = self.revision, FenceRecord(incarnation, 1_000 * fence_s)

    def _look(self, arguments: dict[str, str]) -> None:
        pass

    def _lead(self, arguments: dict[str, str]) -> None:
        self.clock = LossClock()

    def _noticed(self, arguments: dict[str, str]) -> None:
        self.clock = self.clock.noticed(self._now_ms, names(arguments, "node"))

    def _elected(self, arguments: dict[str, str]) -> None:
        self.term += 1
        self._answered()

    def _limits(self, arguments: dict[str, str]) -> None:
        self.rule = replace(self.rule, reset_s=int(arguments["reset"]))

    def _fence(self, arguments: dict[str, str]) -> None:
        """Publish a fence as a node does: when it registers, and when it follows the limits."""
        name, fence_s = arguments["node"], int(arguments.get("s", FENCE_S))
        self._publish(name, arguments.get("incarnation", self.nodes[name]), fence_s)

    def _restarted(self, arguments: dict[str, str]) -> None:
        """Topology has seen the node under another incarnation."""
        self.nodes[arguments["node"]] += "'"

    def _judged(self, absent: tuple[str, ...], missing: tuple[str, ...]) -> str:
        alive = frozenset(self.nodes) - {*absent, *missing}
        seen = {}
        for name in (*absent, *missing):
            revision, record = self.fences.get(name, (0, None))
            seen[name] = AbsentNode(self.nodes[name], record, revision, name not in missing)
        self.clock = self.clock.looked(self._now_ms, seen, alive)
        since_ms = self.hearing.unbroken_since_ms(self._now_ms)
        assert since_ms is not None
        loss = judge(self.view, alive, seen, self.clock, since_ms, self.rule)
        if loss is None:
            return "a majority lives"
        lost = "?" if loss.since_ms is None else f"{loss.since_ms / 1_000:g}"
        if loss.due_ms is None:
            return f"lost since {lost}, never due: {loss.cause}"
        now = " now" if loss.is_due(self._now_ms) else ""
        unfenced = f", without {','.join(loss.unfenced)}" if loss.unfenced else ""
        return f"lost since {lost}, due at {loss.due_ms / 1_000:g}{now}: {','.join(loss.silent)}{unfenced}"


@pytest.mark.row("M11", "H1", "H2")
def test_script() -> None:
    """H1, H2."""
    run_script("loss_clock.txt", Play().execute)
