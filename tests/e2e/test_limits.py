"""Limits of moves over real nodes and real groups."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from app.security.administrator import LOCAL_ADMIN
from tests.e2e.installation import Installation, wait_for, writing

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.thorough("integration/test_rebalance_limits has the same cap beside a controller"),
]

PARTITIONS = 8
CAP = 2
SAMPLES = 20
PAUSE_S = 0.1


class Samples:
    """Samples of all partitions of a zone, taken again and again, each at one revision: moves under way, and
    causes of those that wait."""

    def __init__(self, installation: Installation, zone: str) -> None:
        self._installation = installation
        self._zone = zone
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples")
        self.moving: list[int] = []
        self.causes: set[str] = set()

    def __enter__(self) -> Samples:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(120)

    def _run(self) -> None:
        while not self._stop.is_set():
            found = self._installation.partitions(self._zone)
            self.moving.append(sum(each["pending"] is not None for each in found))
            self.causes |= {each["status"]["cause"] for each in found if each["status"]["state"] == "WAITING"}
            time.sleep(PAUSE_S)


@pytest.mark.slow("eight moves, two at a time")
def test_two_of_eight_move_at_once(installation: Installation) -> None:
    """Paused nothing begins; with a cap of two all eight arrive, never more than two at once in any sample,
    while a writer goes on without an error."""
    installation.execute(f"CREATE ZONE capped (PARTITIONS {PARTITIONS}, REPLICAS 1)")
    pause = ("rebalance", "pause", "--reason", "inventory")
    assert installation.zonectl(*pause).returncode == 0
    (result,) = installation.sql("ALTER ZONE capped SET (REPLICAS 2)")
    waits = f"PAUSED: by {LOCAL_ADMIN}: inventory"
    wait_for("the cause", lambda: {p["status"]["cause"] for p in installation.partitions("capped")} == {waits})
    limited = installation.zonectl("rebalance", "limits", "--cluster-moves", str(CAP))
    assert limited.returncode == 0, limited.stderr
    with writing(installation, "CAPPED") as writer, Samples(installation, "capped") as samples:
        wait_for("samples", lambda: len(samples.moving) >= SAMPLES)
        assert set(samples.moving) == {0}
        assert installation.zonectl("rebalance", "resume").returncode == 0
        wait_for("convergence", lambda: installation.converged(result), 300)
    assert max(samples.moving) == CAP
    assert f"CLUSTER_CAP: {CAP}/{CAP}" in samples.causes
    assert writer.errors == []
    writer.read_back()
    for partition in installation.partitions("capped"):
        assert len(partition["stable"]["peers"]) == 2
        assert partition["pending"] is None
    print(f"{len(samples.moving)} samples, {len(writer.acknowledged)} puts")
    assert installation.zonectl("rebalance", "limits", "--cluster-moves", "none").returncode == 0
    installation.execute("DROP ZONE capped")
