"""kill -9 of the controller that leads, again and again, while hundreds of groups are moved over etcd."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from catalog.core.zone import Zone
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.etcd_server import EtcdServer
from tests.fixtures.fault_rig import ZONE_ID, FaultRig, fault_rig

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow("controllers are killed again and again during moves"),
    pytest.mark.thorough("test_operation_kills kills the leading controller once"),
]

PARTITIONS, PARTITIONS_SOAK = 400, 1_000
NODES = 7
CONTROLLERS = 2
KILLS = 5
KILLS_SOAK = int(os.environ.get("SOAK_KILLS", "200"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
REPLICAS = (1, 2, 3, 5)
LEADER_S = 120.0
FINISH_S = 240.0
ARRIVAL_S = 0.2


@dataclass
class Tally:
    kills: int = 0
    half_written: int = 0
    with_moves: int = 0
    operations: int = 0
    begun: float = field(default_factory=time.monotonic)


def kill(rig: FaultRig, tally: Tally) -> None:
    leader = rig.leader()
    if leader is None:
        return  # it lost its lease by itself
    rig.controllers.kill(leader)
    tally.kills += 1
    tally.with_moves += bool(rig.missing())


async def kill_many(rig: FaultRig, kills: int, partitions: int) -> Tally:
    """Half of the kills hit while the assignments of an event are being written, as far as the machine lets
    us; the others come at any moment of a rebalance. Most operations live through several kills."""
    chooser, tally = rig.chooser, Tally()
    await rig.publish(Zone(ZONE_ID, "KILLED", partitions, 1, None, ("default",)))
    await rig.until("the first assignments", lambda: not rig.missing(), FINISH_S)
    while tally.kills < kills:
        await rig.until("a leader", lambda: rig.leader() is not None, LEADER_S)
        assert rig.intent is not None
        if not rig.missing() or chooser.random() < 0.4:
            others = [each for each in REPLICAS if each != rig.intent.zone.replicas]
            await rig.alter(replicas=chooser.choice(others))
            tally.operations += 1
        if rig.triggered() < partitions and chooser.random() < 0.6:
            rig.strike_at(chooser.randrange(1, partitions // 3), lambda: kill(rig, tally))
            # Nothing is written where an ALTER is taken back before anybody has placed it.
            await rig.until("a kill within the writes", lambda: rig.is_struck or not rig.missing(), FINISH_S)
            rig.disarm()
            # What was on its way has arrived; the next leader is not there yet.
            await rig.sleep(ARRIVAL_S)
            tally.half_written += 0 < rig.triggered() < partitions
        else:
            await rig.sleep(chooser.uniform(0, 1.0))
            kill(rig, tally)
        # Whoever was killed comes back and stands by.
        while len(rig.controllers.processes) < CONTROLLERS:
            rig.controllers.start()
    await rig.finish(FINISH_S)
    return tally


async def kill_and_show(
    etcd: EtcdServer, keyspace: Keyspace, directory: Path, kills: int, partitions: int
) -> None:
    endpoints = [etcd.endpoint]
    async with fault_rig(
        endpoints, keyspace, directory, nodes=NODES, controllers=CONTROLLERS, seed=SEED
    ) as rig:
        tally = await kill_many(rig, kills, partitions)
        assert tally.with_moves
        print(
            f"{tally.kills} kills of the leading controller in {time.monotonic() - tally.begun:.0f} s, seed "
            f"{SEED}: {tally.with_moves} during a rebalance, {tally.half_written} left an event half written; "
            f"{tally.operations} operations, {rig.auditor.switches:,} stable switches, "
            f"{rig.trace.steps:,} revisions audited"
        )


@pytest.mark.row("I3-004", "I3-016", "I3-060")
async def test_controller_is_killed(own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path) -> None:
    """I3-004, I3-016, I3-060: finish the same operation under the next leader without breaking an invariant."""
    await kill_and_show(own_etcd, keyspace, tmp_path, KILLS, PARTITIONS)


@pytest.mark.row("I3-004", "I3-016", "I3-060")
@pytest.mark.soak
async def test_controller_is_killed_many_times(
    own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """I3-004, I3-016, I3-060: the same, 200 times."""
    await kill_and_show(own_etcd, keyspace, tmp_path, KILLS_SOAK, PARTITIONS_SOAK)
