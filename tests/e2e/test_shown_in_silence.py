"""The metastore hangs, and is killed: what is shown of partitions is what puts find."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from rebalance.groups.calls.key_hash import partition_of
from tests.e2e.installation import Installation, wait_for
from tests.fixtures.fault_scenes import held_down, metastore, suspended

PARTITIONS = 3
ZONES = ("GROUPED", "FENCED", "KEPT")
"""Zones of groups, whose members need no metastore, or stop where it hangs; and of store servers, which stop
without one."""
EXPECTED = {
    "hangs": {"GROUPED": "SERVING", "FENCED": "NOT_SERVING", "KEPT": "NOT_SERVING"},
    "killed": {"GROUPED": "SERVING", "KEPT": "NOT_SERVING"},
}
KEYS = {
    number: next(key for key in map(str, range(10_000)) if partition_of(key, PARTITIONS) == number)
    for number in range(PARTITIONS)
}
WELL = frozenset({"AVAILABLE"})
PUT_S = 2.0
NEAR_S = 20.0
"""An answer counts for 15 s, and takes 2 s; a put's outcome within so long of what was shown."""
LIMIT_S = 300

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough("unit/test_silent_answers has what is shown then"),
]


@dataclass
class Puts:
    """Every partition is written all the time; ``outcomes`` by zone and partition: when, and whether it was
    acknowledged."""

    installation: Installation
    outcomes: dict[tuple[str, int], list[tuple[float, bool]]] = field(
        default_factory=lambda: {(zone, number): [] for zone in ZONES for number in range(PARTITIONS)}
    )

    @contextmanager
    def going_on(self) -> Iterator[None]:
        stopped = threading.Event()
        threads = [threading.Thread(target=self._put, args=(*place, stopped)) for place in self.outcomes]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stopped.set()
            for thread in threads:
                thread.join(10 * PUT_S)

    def _put(self, zone: str, number: int, stopped: threading.Event) -> None:
        path, headers = f"/api/v1/zones/{zone}/kv/{KEYS[number]}", {"Zonekeeper-Timeout": str(PUT_S)}
        with self.installation.access.client(4 * PUT_S) as client:
            while not stopped.wait(0.2):
                try:
                    answer = client.put(path, json={"value": uuid.uuid4().hex}, headers=headers)
                    is_done = answer.status_code == httpx.codes.OK
                except httpx.TransportError:
                    is_done = False
                self.outcomes[zone, number].append((time.monotonic(), is_done))

    def are_acknowledged_since(self, moment: float) -> bool:
        """One of each partition."""
        return all(
            any(is_done for at, is_done in outcomes if at > moment) for outcomes in self.outcomes.values()
        )

    def near(self, place: tuple[str, int], moment: float) -> set[bool]:
        return {is_done for at, is_done in self.outcomes[place] if abs(at - moment) <= NEAR_S}


@dataclass
class Shown:
    """``states``: zone, partition, when, and what ``recovery/states`` said."""

    installation: Installation
    states: list[tuple[str, int, float, str]] = field(default_factory=list)

    def now(self) -> set[tuple[str, frozenset[str]]]:
        """States of each zone's partitions."""
        found = set()
        for zone in ZONES:
            rows = self.installation.get(f"/api/v1/zones/{zone}/recovery/states")["partitions"]
            self.states += [(zone, row["partition"], time.monotonic(), row["state"]) for row in rows]
            found.add((zone, frozenset(row["state"] for row in rows)))
        return found

    def silent_since(self) -> set[str | None]:
        paths = ("zones", "nodes", "zones/GROUPED/partitions", "zones/KEPT", "operations", "nodes/n1/can-stop")
        return {self.installation.get(f"/api/v1/{path}")["metastore_silent_since"] for path in paths}


@pytest.mark.slow("etcd hangs and is killed until partitions were asked; store servers start anew each time")
@pytest.mark.parametrize("way", ["hangs", "killed"])
def test_partitions_are_shown_as_puts_find_them(installation: Installation, way: str) -> None:
    options = f"PARTITIONS {PARTITIONS}, REPLICAS 3"
    fenced = f"{options}, CONSISTENCY MODE 'HIGH_AVAILABILITY'"
    for zone in (f"grouped ({options})", f"fenced ({fenced})", f"kept ({options}) STORAGE PROFILES ['bulk']"):
        installation.execute(f"CREATE ZONE IF NOT EXISTS {zone}", LIMIT_S)
    shown, puts = Shown(installation), Puts(installation)
    wait_for("all well", lambda: {states for _, states in shown.now()} == {WELL}, LIMIT_S)
    assert shown.silent_since() == {None}
    with puts.going_on():
        wait_for("puts", lambda: all(found and found[-1][1] for found in puts.outcomes.values()), LIMIT_S)
        shown.states.clear()
        with silent(installation, way):
            wanted = {(zone, frozenset({state})) for zone, state in EXPECTED[way].items()}
            wait_for("answers of all partitions", lambda: wanted <= shown.now(), LIMIT_S, pause_s=0.5)
            (since,) = shown.silent_since()
            assert since is not None
            query = "SELECT DISTINCT zone_name, partition_state FROM global_zone_partition_states"
            (told,) = installation.sql(query)
            assert {(zone, state) for zone, state in told["data"]} >= {*EXPECTED[way].items()}
            time.sleep(3 * PUT_S)  # so that puts have found the same
        wait_for("all well", lambda: {states for _, states in shown.now()} == {WELL}, LIMIT_S)
        # What was shown last is compared with puts that were sent since.
        shown_well = time.monotonic()
        wait_for("puts", lambda: puts.are_acknowledged_since(shown_well), NEAR_S)
    assert shown.silent_since() == {None}
    for zone, number, moment, state in shown.states:
        outcomes = puts.near((zone, number), moment)
        if state in ("SERVING", "AVAILABLE", "DEGRADED"):
            assert True in outcomes, (zone, number, moment)
        elif state == "NOT_SERVING":
            assert False in outcomes, (zone, number, moment)


def silent(installation: Installation, way: str) -> AbstractContextManager[None]:
    """Silence the metastore for the length of the block: suspend it, or end each one that is started anew."""
    if way == "hangs":
        return suspended(metastore(installation))
    return held_down(lambda: installation.processes("--name zonekeeper "))
