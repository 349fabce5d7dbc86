"""Progress of an operation over every life that its partitions may have (VOL-104)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import (
    Observed,
    decide_on_configuration_applied,
    decide_on_trigger,
    decode_trigger,
    encode_trigger,
)
from rebalance.core.assignments.withdrawal import decide_on_withdrawal
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    MemberRecord,
    MemberRole,
    MemberState,
    MirrorRecord,
    Stage,
)
from rebalance.core.keyspace.txn import Delete, KeyValue, Operation, Put
from rebalance.core.moves.move_status import MoveState, PartitionView
from rebalance.core.operations.operation import (
    PartitionStep,
    Tally,
    advance,
    estimate,
    is_finished,
    step_of,
    stuck,
)
from tests.fixtures.examples import examples

PARTITIONS = 3
EVENT, EARLIER, LATER = 20, 10, 30
NODES = ("n1", "n2", "n3")
TARGET = Assignments(("n1", "n2"), ("n3",))
STABLE = Assignments(("n1",))
NUMBERS = st.integers(0, PARTITIONS - 1)


@dataclass
class Partition:
    """Partition with its assignment keys as decisions leave them, and its members' reports."""

    number: int
    revision: int = 1
    keys: dict[str, KeyValue] = field(default_factory=dict)
    mirrors: dict[str, MemberState] = field(default_factory=dict)
    founded: bool = False
    size: int = 100

    def __post_init__(self) -> None:
        self.names = Keyspace().partition(PartitionId(ZoneId(1), self.number))

    def write(self, operations: tuple[Operation, ...]) -> None:
        self.revision += 1
        for each in operations:
            if isinstance(each, Put):
                self.keys[each.key] = KeyValue(each.key, each.value, 1, self.revision, 1)
            elif isinstance(each, Delete):
                self.keys.pop(each.key, None)

    @property
    def observed(self) -> Observed:
        names = self.names
        found = (self.keys.get(name) for name in (names.stable, names.pending, names.planned, names.trigger))
        return Observed(names, *found)

    def view(self) -> PartitionView:
        seen = self.observed
        trigger = decode_trigger(seen.trigger.value) if seen.trigger else 0
        stable, pending, planned = (
            Assignments.decode(item.value) if item is not None else None
            for item in (seen.stable, seen.pending, seen.planned)
        )
        members = {node: MemberRecord(MemberState.RUNNING, "p", "c") for node in NODES[:2]}
        members |= {
            node: MemberRecord.of_mirror(MirrorRecord(state, "m")) for node, state in self.mirrors.items()
        }
        voters = {node: ConfiguredMember(node, MemberRole.VOTER, "p") for node in (stable or TARGET).peers}
        return PartitionView(
            target=TARGET,
            stable=stable,
            pending=pending,
            planned=planned,
            processed=trigger >= EVENT,
            recovered=trigger > EVENT,
            members=members,
            configuration=(
                ConfigurationRecord(1, "n1", Stage.NONE, voters, size_bytes=self.size) if self.founded else None
            ),
        )


class Progress(RuleBasedStateMachine):
    """Partitions live by the real decisions; whoever looks keeps the tally of the look before."""

    @initialize(created=st.booleans())
    def begin(self, created: bool) -> None:
        self.partitions = [Partition(number) for number in range(PARTITIONS)]
        self.alive = frozenset(NODES)
        self.tally = Tally()
        self.at_ms = 0
        self.seen_there: set[int] = set()
        self.steps: list[PartitionStep] = []
        for each in self.partitions:
            if not created:
                each.founded = True
                stable = Put(each.names.stable, STABLE.encode())
                each.write((stable, Put(each.names.trigger, encode_trigger(EARLIER))))

    def commit(self, number: int, decision) -> None:
        if decision.transaction is not None:
            self.partitions[number].write(decision.transaction.success)

    @rule(number=NUMBERS, event=st.sampled_from((EVENT, EARLIER)))
    def an_event_is_handled(self, number: int, event: int) -> None:
        target = TARGET if event == EVENT else Assignments(("n2",))
        self.commit(number, decide_on_trigger(self.partitions[number].observed, target, event))

    @rule(number=NUMBERS)
    def the_group_switches(self, number: int) -> None:
        seen = self.partitions[number].observed
        if seen.pending is not None:
            self.commit(number, decide_on_configuration_applied(seen, Assignments.decode(seen.pending.value)))

    @rule(number=NUMBERS)
    def it_is_withdrawn(self, number: int) -> None:
        self.commit(number, decide_on_withdrawal(self.partitions[number].observed, EVENT, LATER))

    @rule(number=NUMBERS)
    def the_group_is_founded(self, number: int) -> None:
        self.partitions[number].founded = True

    @rule(number=NUMBERS, state=st.sampled_from(MemberState))
    def a_mirror_tells(self, number: int, state: MemberState) -> None:
        self.partitions[number].mirrors["n3"] = state

    @rule(number=NUMBERS, size=st.integers(0, 1_000))
    def it_grows_or_is_tidied_up(self, number: int, size: int) -> None:
        self.partitions[number].size = size

    @rule(node=st.sampled_from(NODES))
    def a_node_comes_or_goes(self, node: str) -> None:
        self.alive ^= {node}

    @precondition(lambda self: hasattr(self, "partitions"))
    @rule(later_ms=st.integers(0, 5_000))
    def somebody_looks(self, later_ms: int) -> None:
        self.at_ms += later_ms
        views = [each.view() for each in self.partitions]
        self.steps = [step_of(number, view, self.alive, 2) for number, view in enumerate(views)]
        before, self.tally = self.tally, advance(self.tally, self.steps, self.at_ms)
        for step, view in zip(self.steps, views, strict=True):
            if step.state is MoveState.DONE:
                self.seen_there.add(step.partition)
                assert view.pending is None
                assert view.planned is None
                assert view.recovered or view.stable == TARGET
            else:
                assert step.cause, "whatever is not there says why"
        pairs = zip(before.numbers, self.tally.numbers, strict=True)
        assert all(earlier <= later for earlier, later in pairs), "nothing runs backwards"
        if is_finished(self.steps):
            assert self.seen_there == set(range(PARTITIONS))
            assert self.tally.done == self.tally.total

    @precondition(lambda self: hasattr(self, "partitions"))
    @invariant()
    def what_is_told_is_possible(self) -> None:
        assert self.tally.done <= len(self.seen_there) <= PARTITIONS
        assert self.tally.bytes_total == 0, "the estimate is made when it begins, and not by looks"
        guess = estimate(self.tally, 0, self.at_ms)
        assert guess.left_s is None or guess.left_s >= 0
        assert guess.rate is None or guess.rate > 0
        assert sum(each.count for each in stuck(self.steps)) == sum(
            step.state is MoveState.WAITING for step in self.steps
        )


TestProgress = Progress.TestCase
TestProgress.settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)


def test_the_estimate_follows_the_pace() -> None:
    half = Tally(total=8, done=4, bytes_total=4_000, bytes_done=1_000)
    found = estimate(half, 1_000, 11_000)
    assert (found.rate, found.left_s) == (100.0, 30.0)
    unknown = estimate(Tally(total=8, done=2), 1_000, 11_000)
    assert (unknown.rate, unknown.left_s) == (None, 30.0)
    assert estimate(half, 1_000, 21_000).rate == 50.0, "slower while nothing ends"
    assert estimate(half, None, 11_000).left_s is None
