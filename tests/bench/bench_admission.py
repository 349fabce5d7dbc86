"""Admission of 65,000 waiting partitions: all at the first time, and when one move has ended."""

from __future__ import annotations

import random

from catalog.core.zone import ZoneId
from rebalance.controllers.moving import NodeNumbers, WaitingLine
from rebalance.controllers.targets import NamedTarget
from rebalance.core.admission.bulk_write import BulkDecisions
from rebalance.core.admission.limit_options import CAPS
from rebalance.core.admission.move_admission import Limits, Loads, Rooms, admit, move_of
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.target import StoredTarget, TargetPointer
from tests.bench.figures import report, timed

PARTITIONS, NODES = 65_000, 100
NAMES = tuple(f"node-{number}" for number in range(NODES))
ZONE = ZoneId(1)


def test_admission() -> None:
    """ALTER from one replica to three; each limit alone, and two together."""
    chooser = random.Random(1)
    orders = (tuple(chooser.sample(NAMES, 3)) for _ in range(PARTITIONS))
    moves = {number: move_of(Assignments(order[:1]), Assignments(order)) for number, order in enumerate(orders)}
    target = StoredTarget(TargetPointer(1, 1, 1, 0, 1, 1, NAMES, "local", "rendezvous"), ())
    line = WaitingLine(ZONE, NamedTarget(target, 1), BulkDecisions(target), moves, NodeNumbers())
    member_limits = dict.fromkeys(NAMES, PARTITIONS)
    for limits in (
        Limits(cluster_moves=8),
        Limits(receiver_moves=2),
        Limits(donor_moves=8, receiver_moves=8),
        Limits(cluster_moves=2_000, receiver_moves=100),
    ):

        def admitted(loads: Loads, limits: Limits = limits) -> list[int]:
            rooms = Rooms(limits, loads, member_limits, 0)
            return admit({ZONE: line.candidates(rooms)}, rooms).get(ZONE, [])

        begun = admitted(Loads())
        loads = Loads()
        for number in begun[1:]:
            loads.add(ZONE, moves[number])
        given = ((name, getattr(limits, name)) for name in CAPS)
        caps = ", ".join(f"{name} {cap}" for name, cap in given if cap is not None)
        report(f"{caps}: the first", timed(lambda: admitted(Loads()), 9), note=f"{len(begun)} admitted")
        report(f"{caps}: one has ended", timed(lambda loads=loads: admitted(loads), 9))
