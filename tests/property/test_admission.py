"""Admission: caps hold at every step, everything is admitted in the end, and arrays change nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.controllers.moving import NodeNumbers, WaitingLine
from rebalance.controllers.targets import NamedTarget
from rebalance.core.admission.bulk_write import BulkDecisions
from rebalance.core.admission.move_admission import (
    Limits,
    Loads,
    Move,
    Pause,
    Rooms,
    Waiting,
    admit,
    load_of,
    move_of,
)
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.target import StoredTarget, TargetPointer
from tests.fixtures.examples import examples

NODES = ("n1", "n2", "n3")
ZONES = (ZoneId(1), ZoneId(2), ZoneId(7))
NOW_MS = 1_000

caps = st.none() | st.integers(1, 3)
limits_of = st.builds(Limits, caps, caps, caps, caps, caps)
names = st.lists(st.sampled_from(NODES), unique=True, max_size=2).map(lambda found: tuple(sorted(found)))
moves = st.builds(Move, names, names, names)
worlds = st.fixed_dictionaries({zone: st.lists(moves, max_size=7) for zone in ZONES})


@dataclass
class Cluster:
    """Cluster with admissions the simple way: everything is counted anew each time."""

    limits: Limits
    waiting: dict[ZoneId, dict[int, Move]]
    moving: dict[tuple[ZoneId, int], Move] = field(default_factory=dict)
    member_limits: dict[str, int] = field(default_factory=dict)

    def loads(self) -> Loads:
        loads = Loads()
        for (zone, _), move in self.moving.items():
            loads.add(zone, move)
            loads.members.update(move.joins)
        return loads

    def rooms(self) -> Rooms:
        return Rooms(self.limits, self.loads(), self.member_limits, NOW_MS)

    def step(self) -> dict[ZoneId, list[int]]:
        admitted = admit({zone: line.items() for zone, line in self.waiting.items()}, self.rooms())
        for zone, numbers in admitted.items():
            for number in numbers:
                self.moving[zone, number] = self.waiting[zone].pop(number)
                self.check()
        return admitted

    def check(self) -> None:
        """Every cap, after each single beginning."""
        limits, moving = self.limits, self.moving
        for cap, counts in (
            (limits.cluster_moves, Counter({"all": len(moving)})),
            (limits.zone_moves, Counter(zone for zone, _ in moving)),
            (limits.batch_size, Counter(zone for zone, _ in moving)),
            (limits.donor_moves, Counter(node for move in moving.values() for node in move.donors)),
            (limits.receiver_moves, Counter(node for move in moving.values() for node in move.receivers)),
        ):
            assert cap is None or max(counts.values(), default=0) <= cap


@settings(max_examples=examples(400))
@given(limits_of, worlds, st.data())
def test_caps_hold_and_nothing_starves(
    limits: Limits, world: dict[ZoneId, list[Move]], data: st.DataObject
) -> None:
    """Moves end in any order: no cap is passed after any single beginning, a batch begins only when the last
    has ended, what waits has a cause, and in the end everything was admitted, once each."""
    cluster = Cluster(limits, {zone: dict(enumerate(line)) for zone, line in world.items()})
    total = sum(map(len, world.values()))
    for _ in range(2 * total + 1):
        before = {zone for zone, _ in cluster.moving}
        for zone in cluster.step():
            assert limits.batch_size is None or zone not in before
        rooms = cluster.rooms()
        for zone, line in cluster.waiting.items():
            assert all(rooms.cause(zone, move) for move in line.values())
        if not cluster.moving:
            break
        ended = data.draw(st.lists(st.sampled_from(sorted(cluster.moving)), min_size=1, unique=True))
        for each in ended:
            del cluster.moving[each]
    assert not any(cluster.waiting.values())


@given(limits_of, worlds)
def test_zones_share_fairly(limits: Limits, world: dict[ZoneId, list[Move]]) -> None:
    """Zones whose moves load no node: none gets two more than another one that could have had them; the same
    question has the same answer, in whatever order the zones are named."""
    idle = {zone: {number: Move((), ()) for number in range(len(line))} for zone, line in world.items()}
    cluster = Cluster(limits, {zone: dict(line) for zone, line in idle.items()})
    turned = Cluster(limits, {zone: dict(idle[zone]) for zone in reversed(ZONES)})
    admitted = cluster.step()
    assert turned.step() == admitted
    for zone, other in ((a, b) for a in ZONES for b in ZONES):
        if cluster.waiting[zone] and not cluster.rooms().cause_of_zone(zone).startswith(("ZONE_CAP", "BATCH")):
            assert len(admitted.get(other, ())) <= len(admitted.get(zone, ())) + 1


@given(limits_of, worlds, worlds, st.dictionaries(st.sampled_from(NODES), st.integers(0, 3)), st.data())
def test_lines_as_arrays_admit_the_same(
    limits: Limits,
    world: dict[ZoneId, list[Move]],
    others: dict[ZoneId, list[Move]],
    member_limits: dict[str, int],
    data: st.DataObject,
) -> None:
    """The same is admitted also after partitions came to wait for something else, or for nothing."""
    cluster = Cluster(limits, {zone: dict(enumerate(line)) for zone, line in world.items()}, {}, member_limits)
    cluster.moving = {
        (zone, 100 + number): move for zone, line in others.items() for number, move in enumerate(line[:1])
    }
    numbers = NodeNumbers()
    lines = {zone: line_of(zone, line, numbers) for zone, line in cluster.waiting.items() if line}
    for zone, line in lines.items():
        for number in data.draw(st.lists(st.sampled_from(sorted(cluster.waiting[zone])), unique=True)):
            move = data.draw(st.none() | moves)
            line.update(number, move)
            if move is None:
                del cluster.waiting[zone][number]
            else:
                cluster.waiting[zone][number] = move
        assert len(line) == len(cluster.waiting[zone])
    rooms = cluster.rooms()
    found = admit({zone: line.candidates(rooms) for zone, line in lines.items()}, rooms)
    assert found == admit({zone: in_order(line) for zone, line in cluster.waiting.items()}, cluster.rooms())


def in_order(line: dict[int, Move]) -> list[Waiting]:
    return sorted(line.items(), key=lambda waiting: waiting[0])


def line_of(zone: ZoneId, line: dict[int, Move], numbers: NodeNumbers) -> WaitingLine:
    target = StoredTarget(TargetPointer(1, 1, 1, 0, 1, 1, NODES, "local", "rendezvous"), ())
    return WaitingLine(zone, NamedTarget(target, 1), BulkDecisions(target), line, numbers)


peers = st.lists(st.sampled_from(NODES), unique=True, min_size=1).map(tuple)
learners = st.lists(st.sampled_from(("m1", "m2")), unique=True).map(tuple)
assignments = st.builds(Assignments, peers, learners)


@given(assignments, assignments, st.none() | assignments)
def test_a_move_loads_who_gets_and_who_gives(
    stable: Assignments, target: Assignments, planned: Assignments | None
) -> None:
    move = move_of(stable, target)
    assert set(move.joins) == target.nodes - stable.nodes
    assert set(move.receivers) >= set(move.joins)
    assert set(move.receivers) <= target.nodes
    assert set(move.donors) <= stable.nodes
    assert set(move.donors) >= stable.nodes - target.nodes
    assert (move == Move((), ())) == (stable == target)
    whole = load_of(stable, target, planned)
    assert set(whole.receivers) >= set(move.receivers)
    assert set(whole.donors) >= set(move.donors)
    if planned is not None:
        assert set(whole.receivers) >= set(move_of(stable, planned).receivers)


pauses = st.builds(
    Pause, st.text(max_size=5), st.text(max_size=5), st.integers(0, 10), st.none() | st.integers(0, 10)
)


@given(limits_of, st.none() | pauses, st.dictionaries(st.sampled_from(ZONES), pauses), st.integers(0, 11))
def test_limits_are_stored_and_end_by_themselves(
    limits: Limits, pause: Pause | None, zones: dict[ZoneId, Pause], now_ms: int
) -> None:
    paused = replace(limits, pause=pause, zone_pauses=zones)
    assert Limits.decode(paused.encode()) == paused
    rooms = Rooms(paused, Loads(), {}, now_ms)
    whole = pause is not None and pause.holds(now_ms)
    for zone in ZONES:
        own = zone in zones and zones[zone].holds(now_ms)
        assert rooms.cause_of_zone(zone).startswith("PAUSED") == (whole or own)
    end = paused.next_end_ms(now_ms)
    if end is not None:
        assert end > now_ms
        assert any(each.holds(end - 1) and not each.holds(end) for each in (*zones.values(), pause) if each)
    no_caps = replace(Limits(), pause=pause, zone_pauses=zones)
    assert no_caps.holds(now_ms) == any(each.holds(now_ms) for each in (*zones.values(), pause) if each)
