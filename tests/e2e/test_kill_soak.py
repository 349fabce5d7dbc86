"""Many kills, one after the other, on one installation that moves all the time (``make soak``)."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.e2e.installation import Installation, wait_for, writing
from tests.fixtures.installation_kills import kill_metastore, kill_parent, kill_server, kill_spark

KILLS = int(os.environ.get("SOAK_KILLS", "100"))
SEED = int(os.environ.get("SOAK_SEED", "1"))


@pytest.mark.row("I3-016", "I3-034", "I3-060")
@pytest.mark.soak
def test_many_kills(tmp_path: Path) -> None:
    """I3-016, I3-034, I3-060: whatever is killed, at whatever moment: it converges, every acknowledged put is
    there, and in the end no process is left."""
    chooser = random.Random(SEED)
    whole = Installation(tmp_path / "data")
    whole.start()
    whole.execute("CREATE ZONE soaked (PARTITIONS 4, REPLICAS 1)")
    begun = time.monotonic()
    puts = refused = 0
    longest_s = 0.0
    for number in range(KILLS):
        wait_for("the whole installation", whole.is_whole)
        kill = chooser.choice((kill_parent, kill_server, kill_metastore, kill_spark))
        replicas = chooser.choice((1, 2, 3))
        with writing(whole, "SOAKED") as writer:
            (altered,) = whole.sql(f"ALTER ZONE soaked SET (REPLICAS {replicas})")
            time.sleep(chooser.uniform(0, 3))
            if kill is kill_spark:
                wait_for("a JVM", lambda: whole.processes("java", "org.apache.spark"))
            kill(whole)
            wait_for(f"convergence after kill {number}", lambda r=altered: whole.converged(r), 180)
            before = len(writer.acknowledged)
            wait_for("a write", lambda w=writer, n=before: len(w.acknowledged) > n)
        writer.read_back()
        partitions = whole.partitions("soaked")
        assert [len(each["stable"]["peers"]) for each in partitions] == [replicas] * 4
        assert all(each["pending"] is None for each in partitions)
        puts, refused = puts + len(writer.acknowledged), refused + len(writer.errors)
        longest_s = max(longest_s, writer.longest_stall_s)
        print(
            f"{number + 1}/{KILLS} {kill.__name__} to {replicas} replicas: {len(writer.acknowledged)} puts",
            flush=True,
        )
    whole.stop()
    print(
        f"{KILLS} kills in {time.monotonic() - begun:.0f} s, seed {SEED}: {puts} acknowledged puts, all there; "
        f"{refused} refused or unknown; longest stall {longest_s:.1f} s"
    )
