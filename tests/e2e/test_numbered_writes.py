"""Increasing numbers beside faults: 18 writers, 9 readers, one scene after the other, and what the service says
of itself meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.e2e.installation import Installation, wait_for, without_spark
from tests.fixtures.fault_scenes import SCENES, SMALL_DISK, Plan, missing_processes, node_folder
from tests.fixtures.numbered_load import Fault, NumberedLoad, Tally

ZONES = ("NUMBERED", "NUMBERED_BULK")
SLICE = ("members of two nodes stopped, 8 s", "store server killed")
EXPECTED_PART, EXPECTED_ALERT = "spark", "SparkAway"
"""The installation runs without a JVM."""
SILENT_S, SILENT_LOADED_S = 15.0, 30.0
"""A key without an acknowledgement for so long is trouble that a server has to have seen; beside other tests a
put that waits out its own limit looks the same."""
WELL_S = 180.0
WHOLE_S, HEARD_S = 60.0, 10.0
MEMBERS = 4
"""Members of each of three nodes: as many as the zone of groups has partitions."""
LIVELY_S = 3.0

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough("linearizability/test_recorded_history has faults beside numbered writes"),
]


@dataclass
class Words:
    """Reports of the service, once a second. ``ready_in_trouble``: seconds of "ready" after the trouble had to
    be seen; ``quiet_in_trouble``: of those, how many had no alert that fires or is about to."""

    load: NumberedLoad
    installation: Installation
    limit_s: float
    states: Counter[str] = field(default_factory=Counter)
    alerts: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)
    ready_in_trouble: int = 0
    quiet_in_trouble: int = 0
    trouble: int = 0
    seen_from: float | None = None
    """Beginning of a time in which something is known to be missing, in monotonic seconds; None: nothing is."""
    answering_from: float | None = None
    examples: list[str] = field(default_factory=list)

    def _answering_s(self) -> float:
        """A server that has just come back has seen nothing yet."""
        return time.monotonic() - self.answering_from if self.answering_from is not None else 0.0

    @contextmanager
    def heard(self) -> Iterator[None]:
        stopped = threading.Event()
        thread = threading.Thread(target=self._listen, args=(stopped,), name="listener")
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join(60)

    def _listen(self, stopped: threading.Event) -> None:
        while not stopped.wait(1.0):
            try:
                body = self.installation.request("GET", "/readyz", timeout_s=5).json()
                alerts = self.installation.request("GET", "/api/v1/alerts", timeout_s=5).json()["alerts"]
            except (httpx.TransportError, OSError, ValueError, KeyError):
                self.states["no answer"] += 1
                self.answering_from = None
                continue
            if self.answering_from is None:
                self.answering_from = time.monotonic()
            self._note(body["state"], body["degraded"], [row for row in alerts if row["state"] != "RESOLVED"])

    def _note(self, state: str, degraded: Sequence[dict[str, str]], alerts: Sequence[dict[str, str]]) -> None:
        degraded = [part for part in degraded if part["part"] != EXPECTED_PART]
        is_ready = state != "not ready" and not degraded
        self.states["ready" if is_ready else state] += 1
        self.parts |= {re.sub(r"\d+", "#", f"{part['part']}: {part['cause']}") for part in degraded}
        names = {f"{row['name']} {row['state']}" for row in alerts if row["name"] != EXPECTED_ALERT}
        self.alerts |= names
        silent_s = self.load.silent_s()
        is_missing = self.seen_from is not None and time.monotonic() > self.seen_from
        if min(silent_s, self._answering_s()) < self.limit_s and not is_missing:
            return
        self.trouble += 1
        if is_ready:
            self.ready_in_trouble += 1
            self.examples.append(f"ready after {silent_s:.0f} s of silence, alerts {sorted(names)}")
        if not names:
            self.quiet_in_trouble += 1


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    tally: Tally
    words: Words
    well_s: float
    broken: dict[str, Fault]
    missing: str
    """Processes that are not there after ``WHOLE_S``; empty: all are."""

    def line(self) -> str:
        tally, words = self.tally, self.words
        kinds = Counter(fault.value for fault in self.broken.values()) + Counter(
            fault.value for fault, _ in tally.faults
        )
        return (
            f"{self.name:<38} acked {tally.acknowledged:6} refused {tally.refused:4} unknown {tally.unknown:4}"
            f" reads {tally.reads:6} lost {kinds['lost']} overtaken {kinds['overtaken']} wrong {kinds['wrong']}"
            f" stall etcd {tally.longest_s(ZONES[0]):5.1f} store {tally.longest_s(ZONES[1]):5.1f}"
            f" well {self.well_s:5.1f}{self.missing and ' missing '}{self.missing}"
            f" | trouble {words.trouble} ready {words.ready_in_trouble}"
            f" quiet {words.quiet_in_trouble} | {dict(words.states)} {sorted(words.alerts)}"
        )


def run_scene(installation: Installation, load: NumberedLoad, name: str, plan: Plan, limit_s: float) -> Outcome:
    load.turn()
    words = Words(load, installation, limit_s)
    with words.heard():
        with plan.scene(installation):
            begun = time.monotonic()
            words.seen_from = begun + plan.seen_s if plan.lasts else None
            while time.monotonic() - begun < plan.hold_s:
                time.sleep(0.2)
            words.seen_from = None
        mended = time.monotonic()
        try:
            wait_for(f"puts to every key after {name}", lambda: load.silent_s() < LIVELY_S, WELL_S)
            well_s = time.monotonic() - mended
        except AssertionError:
            well_s = float("inf")
        broken = load.read_all() if well_s < WELL_S else {}
        missing = missing_after(installation, WHOLE_S)
        if missing:
            words.seen_from = time.monotonic()
            time.sleep(HEARD_S)
    outcome = Outcome(name, load.turn(), words, well_s, broken, missing)
    print(f"\n{outcome.line()}", flush=True)
    for text in (*words.examples[:3], *map(str, outcome.tally.faults[:3]), *map(str, list(broken.items())[:3])):
        print(f"    {text}", flush=True)
    for text, times in outcome.tally.refusals.most_common(4):
        print(f"    refused {times}: {text}", flush=True)
    for part in sorted(words.parts)[:8]:
        print(f"    said: {part}", flush=True)
    return outcome


def missing_after(installation: Installation, limit_s: float) -> str:
    """Looks at processes, not at what the service says."""
    deadline = time.monotonic() + limit_s
    while missing := ", ".join(missing_processes(installation, MEMBERS)):
        if time.monotonic() > deadline:
            break
        time.sleep(1.0)
    return missing


def run_scenes(installation: Installation, names: Sequence[str], limit_s: float = SILENT_S) -> list[Outcome]:
    installation.execute(f"CREATE ZONE numbered (PARTITIONS {MEMBERS}, REPLICAS 3)")
    installation.execute("CREATE ZONE numbered_bulk (PARTITIONS 8, REPLICAS 3) STORAGE PROFILES ['bulk']")
    load = NumberedLoad(lambda: installation.access, ZONES)
    outcomes = []
    with load.running():
        wait_for("puts to every key", lambda: all(record.acknowledged for record in load.records))
        for name in names:
            outcomes.append(run_scene(installation, load, name, SCENES[name], limit_s))
            if outcomes[-1].well_s > WELL_S:
                break
    return outcomes


def judge(outcomes: Sequence[Outcome]) -> None:
    """Lost 0, overtaken 0, "ready" during trouble 0; wrong only where bytes were flipped; well in the
    end."""
    problems: list[str] = []
    for outcome in outcomes:
        plan = SCENES[outcome.name]
        kinds = {fault for fault, _ in outcome.tally.faults} | set(outcome.broken.values())
        if kinds & ({Fault.LOST, Fault.OVERTAKEN} if plan.flips else set(Fault)):
            problems.append(f"{outcome.name}: {[*outcome.tally.faults[:5], *list(outcome.broken.items())[:5]]}")
        if outcome.words.ready_in_trouble:
            problems.append(f"{outcome.name}: ready in trouble: {outcome.words.examples[:3]}")
        if outcome.well_s > WELL_S:
            problems.append(f"{outcome.name}: not every key takes puts again within {WELL_S:.0f} s")
        if not outcome.tally.acknowledged:
            problems.append(f"{outcome.name}: nothing was acknowledged")
    assert not problems, "\n".join(problems)


@pytest.mark.slow("two faults are waited out")
def test_numbers_beside_two_faults(installation: Installation) -> None:
    judge(run_scenes(installation, SLICE, SILENT_LOADED_S))


@pytest.fixture
def with_small_disk(tmp_path: Path) -> Iterator[Installation]:
    """n3's directory is a small file system of its own, where mounting one is permitted."""
    environment = {
        **without_spark(tmp_path),
        "ZONEKEEPER_UP_NODE_SILENCE_S": "0",
        "ZONEKEEPER_UP_SERVER_SILENCE_S": "0",
    }
    installation = Installation(tmp_path / "data", environment=environment)
    disk = node_folder(installation, "n3")
    disk.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", SMALL_DISK, "tmpfs", str(disk)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        installation.start()
        yield installation
        installation.stop()
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_numbers_beside_every_fault(with_small_disk: Installation) -> None:
    """``SOAK_SCENES``: a pattern of names; default: all of them."""
    pattern = re.compile(os.environ.get("SOAK_SCENES", ""))
    names = [name for name in SCENES if pattern.search(name)]
    if not node_folder(with_small_disk, "n3").is_mount():
        names = [name for name in names if not name.startswith("disk full")]
    outcomes = run_scenes(with_small_disk, names)
    judge(outcomes)
    assert len(outcomes) == len(names)
