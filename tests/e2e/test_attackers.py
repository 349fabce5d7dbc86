"""Attackers beside an administrator: strangers' chunks of one byte, a low user's long scripts, WebSockets that
nobody has let in, and silent connections to store servers. Statements and puts take at most so much longer, no
process ends for it, and the memory is given back."""

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

from app.client.blocking import BlockingZoneClient
from tests.e2e.installation import Installation, wait_for
from tests.fixtures.attackers import Attackers, Strength

SLOWER = 3.0
MEMORY_PART = 0.2
USER, PASSWORD = "low", "the password of low"
SELECT = "SELECT count(*) FROM zones"
WARM_UP = 5


@dataclass(frozen=True)
class Run:
    """``floor_s``: what an answer may take on a machine with other work, whatever it takes without."""

    strength: Strength
    seconds: float
    floor_s: float


LONG_S = float(os.environ.get("SOAK_ATTACK_S", "60"))
RUNS = [
    pytest.param(Run(Strength(4, 0, 2, 2, 100), 8.0, 0.5), id="strangers"),
    pytest.param(Run(Strength(30, 0, 10, 6, 200), LONG_S, 0.0), id="many strangers", marks=pytest.mark.soak),
    pytest.param(Run(Strength(30, 40, 10, 6, 200), LONG_S, 0.0), id="a user, too", marks=pytest.mark.soak),
]

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


class Administrator:
    """``seconds``: of each answer, by what was asked for."""

    def __init__(self, installation: Installation, client: BlockingZoneClient) -> None:
        self._installation = installation
        self._client = client
        self._number = 0

    def medians(self, seconds: float) -> dict[str, float]:
        """Of statements, and of puts into a zone of groups and one of store servers, in turns."""
        work: dict[str, Callable[[], object]] = {
            "statement": lambda: self._installation.sql(SELECT),
            "change": lambda: self._installation.sql("CREATE ZONE IF NOT EXISTS grouped"),
            "put": lambda: self._put("GROUPED"),
            "store put": lambda: self._put("STORED"),
        }
        taken: dict[str, list[float]] = {name: [] for name in work}
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s or len(taken["statement"]) < WARM_UP:
            for name, do in work.items():
                begun = time.monotonic()
                do()
                taken[name].append(time.monotonic() - begun)
        return {name: statistics.median(each[1:]) for name, each in taken.items()}

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
    """On which store servers listen."""
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
    attackers = Attackers(access.url, access.verify, of_run(installation)["addresses"]["health"])
    with BlockingZoneClient([access.url], **installation.login) as client:
        administrator = Administrator(installation, client)
        administrator.medians(2.0)
        alone = administrator.medians(run.seconds / 2)
        memory = server.memory_info().rss
        with attackers.attacking(run.strength, (USER, PASSWORD), store_ports(installation)):
            attacked = administrator.medians(run.seconds)
            most = server.memory_info().rss
        assert servers(installation) == before_pids
        wait_for("the memory", lambda: server.memory_info().rss <= (1 + MEMORY_PART) * memory)
        administrator.medians(1.0)
    print(
        f"\n{dict(attackers.rounds)}\nmedians in ms, alone and attacked: "
        + ", ".join(f"{name} {alone[name] * 1e3:.1f} {attacked[name] * 1e3:.1f}" for name in alone)
        + f"\nmemory in MB: {memory >> 20}, {most >> 20} attacked, {server.memory_info().rss >> 20} after"
    )
    assert attackers.failures == []
    kinds = ("chunks", "upgrades", "stores", *(["scripts"] if run.strength.scripts else []))
    assert all(attackers.rounds[kind] for kind in kinds)
    slower = {name: (alone[name], attacked[name]) for name in alone}
    assert not {name: times for name, times in slower.items() if times[1] > max(SLOWER * times[0], run.floor_s)}
    installation.sql(f"DROP USER {USER}; DROP ZONE grouped; DROP ZONE stored")
