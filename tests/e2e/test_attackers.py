"""Attackers beside an administrator: strangers' chunks of one byte, a low user's long scripts, WebSockets that
were never let in, and silent connections to store servers. Statements and puts take at most so much longer, no
process ends for it, and the memory is given back.

Times without and with attackers are taken by turns, so that other work of the machine is in both.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from tests.e2e.installation import Installation, wait_for
from tests.fixtures.attackers import KINDS, Attackers, Strength, Target
from zonekeeper_client import BlockingZoneClient

SLOWER = 3.0
MEMORY_PART = 0.2
USER, PASSWORD = "low", "the password of low"
SELECT = "SELECT count(*) FROM zones"
LEAST = 5
NONE_WAIT = "\nzonekeeper_statements_waiting 0.0\n"


@dataclass(frozen=True)
class Run:
    """``turns``: of so many seconds with attackers, and half of it without. ``floor_s``: what an answer may
    take on a machine with other work, whatever it takes without."""

    strength: Strength
    turns: int
    seconds: float
    floor_s: float


LONG_S = float(os.environ.get("SOAK_ATTACK_S", "60"))
TURN_S = 10.0
RUNS = [
    pytest.param(Run(Strength(4, 0, 2, 2, 100), 1, 8.0, 0.5), id="strangers"),
    *(
        pytest.param(Run(strength, round(LONG_S / TURN_S), TURN_S, 0.0), id=name, marks=pytest.mark.soak)
        for name, strength in {
            "many strangers": Strength(30, 0, 10, 6, 200),
            "a user": Strength(0, 40, 0, 0, 0),
            "a user, too": Strength(30, 40, 10, 6, 200),
        }.items()
    ),
]

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.thorough("integration/test_hostile_connections has each attack on a server alone"),
]


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def metrics(installation: Installation) -> str:
    return installation.request("GET", "/metrics").raise_for_status().text


class Administrator:
    def __init__(self, installation: Installation, client: BlockingZoneClient) -> None:
        self._installation = installation
        self._client = client
        self._number = 0

    def work(self, seconds: float, taken: dict[str, list[float]]) -> None:
        """Statements, and puts into a zone of groups and one of store servers, in turns; ``taken``: the seconds
        of each, by what it was. What opens connections is counted from the second time on."""
        work: dict[str, Callable[[], object]] = {
            "statement": lambda: self._installation.sql(SELECT),
            "change": lambda: self._installation.sql("CREATE ZONE IF NOT EXISTS grouped"),
            "put": lambda: self._put("GROUPED"),
            "store put": lambda: self._put("STORED"),
        }
        until_s, rounds = time.monotonic() + seconds, 0
        while time.monotonic() < until_s or rounds < LEAST:
            for name, do in work.items():
                begun = time.monotonic()
                do()
                if rounds:
                    taken.setdefault(name, []).append(time.monotonic() - begun)
            rounds += 1

    def _put(self, zone: str) -> None:
        self._number += 1
        self._client.put(zone, f"key-{self._number % 50}", "value", f"attacked-{self._number}")


def of_run(installation: Installation) -> Any:
    return json.loads((installation.directory / "run.json").read_text())


def servers(installation: Installation) -> dict[str, int]:
    """Processes of the installation by their names, with their ids."""
    stores = {
        f"store {process.cmdline()[process.cmdline().index('--name') + 1]}": process.pid
        for process in installation.processes("store serve")
    }
    return {**of_run(installation)["children"], **stores}


def store_ports(installation: Installation) -> list[int]:
    """Ports on which store servers listen."""
    return [
        connection.laddr.port
        for process in installation.processes("store serve")
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


@pytest.mark.slow("attackers go on for some seconds")
def test_attackers_hold_nobody_up(installation: Installation, run: Run) -> None:
    installation.execute("CREATE ZONE IF NOT EXISTS grouped (PARTITIONS 4, REPLICAS 3)")
    installation.execute(
        "CREATE ZONE IF NOT EXISTS stored (PARTITIONS 16, REPLICAS 3) STORAGE PROFILES ['bulk']"
    )
    installation.sql(
        f"CREATE USER IF NOT EXISTS {USER} PASSWORD '{PASSWORD}'; GRANT SEE ON ZONE grouped TO {USER}"
    )
    before_pids = servers(installation)
    (server,) = (psutil.Process(pid) for name, pid in before_pids.items() if name == "server")
    access = installation.access
    health = of_run(installation)["addresses"]["health"]
    target = Target(
        access.url, health, access.login["authority"], (USER, PASSWORD), tuple(store_ports(installation))
    )
    alone: dict[str, list[float]] = {}
    attacked: dict[str, list[float]] = {}
    with (
        BlockingZoneClient([access.url], **installation.login) as client,
        Attackers(target, run.strength) as attackers,
    ):
        administrator = Administrator(installation, client)
        administrator.work(2.0, {})
        memory = most = server.memory_info().rss
        for _ in range(run.turns):
            administrator.work(run.seconds / 2, alone)
            with attackers.attacking():
                administrator.work(run.seconds, attacked)
                most = max(most, server.memory_info().rss)
            wait_for("the end of what attackers have sent", lambda: NONE_WAIT in metrics(installation))
        medians = {name: (statistics.median(alone[name]), statistics.median(attacked[name])) for name in alone}
        print(
            f"\n{dict(attackers.rounds)}\nmedians in ms, alone and attacked: "
            + ", ".join(f"{name} {one * 1e3:.1f} {two * 1e3:.1f}" for name, (one, two) in medians.items())
            + f"\nmemory in MB: {memory >> 20}, {most >> 20} attacked"
        )
        assert servers(installation) == before_pids
        wait_for("the memory", lambda: server.memory_info().rss <= (1 + MEMORY_PART) * memory)
        print(f"{server.memory_info().rss >> 20} after")
        administrator.work(1.0, {})
    assert attackers.failures == []
    assert all(attackers.rounds[kind] for kind in KINDS if getattr(run.strength, kind))
    assert not {
        name: times for name, times in medians.items() if times[1] > max(SLOWER * times[0], run.floor_s)
    }
    installation.sql(f"DROP USER {USER}; DROP ZONE grouped; DROP ZONE stored")
