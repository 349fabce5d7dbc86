"""Cut networks with whole processes: an installation on eight machines of the kernel's, whose links are cut in
every direction while clients put and get, and while voters join and leave."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.e2e.installation import Installation, wait_for
from tests.fixtures.cut_installation import SITES, STORES, CutInstallation
from tests.fixtures.cut_judgement import CONVERGENCE_S
from tests.fixtures.cut_kinds import KINDS
from tests.fixtures.cut_networks import interfaces, missing
from tests.fixtures.cut_run import WITH_ALL, CutRun, Outcome, prepare, without
from tests.fixtures.needs import need
from tests.fixtures.strict_steps import STRICT_STEPS
from tests.linearizability.load import BUSY_PAUSE_S

pytestmark = pytest.mark.timeout(900)

SEED = int(os.environ.get("SOAK_SEED", "1"))
SOAK_S = float(os.environ.get("SOAK_CUTS_S", "600"))
SHORT_S = (5.0, 6.0)
ONWARD_S = 60.0
"""Seconds for a move, an election of the metastore's, and its clients' search for the new leader."""
SLICE = ("joiner_from_leader_while_copying",)
"""Kinds of cuts in every run; all kinds take turns in the long one."""
ROOT = Path(__file__).parents[2]
HOLDER = """
import pathlib, sys, time
from tests.fixtures.cut_installation import cut_installation
with cut_installation(pathlib.Path(sys.argv[1])) as whole:
    whole.execute("CREATE ZONE held (PARTITIONS 1, REPLICAS 3)")
    print(whole.mark, flush=True)
    time.sleep(600)
"""
BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.fixture(scope="module")
def whole(cuttable: CutInstallation) -> CutInstallation:
    prepare(cuttable)
    return cuttable


@pytest.mark.thorough("test_fenced_zones and integration/test_fence cut single links")
@pytest.mark.slow("each cut lasts longer than leases, and ends with a convergence")
async def test_a_slice_of_cuts(whole: CutInstallation, tmp_path: Path) -> None:
    """No acknowledged put of a STRONG_CONSISTENCY zone is lost, histories are linearizable, and 30 s after the
    cut's end everything is well or names its cause."""
    await strike(CutRun(whole, SEED, tmp_path, SHORT_S), SLICE)


@pytest.mark.thorough("test_a_new_leader_of_the_metastore_and_a_silence_begin_again loses a member")
@pytest.mark.parametrize(
    "store", [STORES[0], *(pytest.param(each, marks=pytest.mark.soak) for each in STORES[1:])]
)
def test_a_move_goes_on_while_a_member_of_the_metastore_is_cut_off(whole: CutInstallation, store: str) -> None:
    """Cut a member of the metastore off from the two others only: every process reaches it, and those that
    watch there are sent on when it has known of no leader for a while."""
    whole.execute(WITH_ALL, CONVERGENCE_S)
    for other in STORES:
        if other != store:
            whole.networks.cut(store, other)
    begun = time.monotonic()
    try:
        whole.execute(without("n3"), ONWARD_S)
    finally:
        whole.networks.heal()
    print(f"{store}: {time.monotonic() - begun:.1f} s")


@pytest.mark.soak
def test_nothing_is_left_of_an_installation_whose_test_was_killed(tmp_path: Path) -> None:
    """No process of it and of its nodes, and no network."""
    need(missing())
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "held")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        held, own = Installation(tmp_path), f"zk{process.pid}-"
        try:
            assert process.stdout is not None
            held.mark = process.stdout.readline().strip()
            assert len(held.processes()) > len(SITES), "the members of groups, too"
            assert own in interfaces()
        finally:
            process.send_signal(signal.SIGKILL)
    held.assert_nothing_is_left()
    wait_for("the end of the network", lambda: own not in interfaces())


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S + 3_600)
async def test_every_kind_of_cut(whole: CutInstallation, tmp_path: Path) -> None:
    """Strike as in the short run, with every kind of cut, again and again until the time is over."""
    run, chooser = CutRun(whole, SEED, tmp_path, pause_s=BUSY_PAUSE_S), random.Random(SEED)
    names = os.environ["SOAK_CUTS"].split(",") if "SOAK_CUTS" in os.environ else list(BY_NAME)
    begun = time.monotonic()
    outcomes: list[Outcome] = []
    while not outcomes or time.monotonic() - begun < SOAK_S:
        chooser.shuffle(names)
        outcomes += await strike(run, tuple(names))
    converged = [outcome.converged_s for outcome in outcomes]
    print(
        f"{len(outcomes)} cuts of {len(names)} kinds in {time.monotonic() - begun:.0f} s, seed {SEED}, "
        f"steps checked by {'etcd' if STRICT_STEPS else 'the nodes'}: well "
        f"after {statistics.median(converged):.1f} s (median), at most {max(converged):.1f} s; "
        f"{sum(outcome.puts for outcome in outcomes)} puts, "
        f"{sum(outcome.unknown for outcome in outcomes)} of unknown outcome, all linearizable"
    )


async def strike(run: CutRun, names: tuple[str, ...]) -> list[Outcome]:
    print(f"seed {SEED}", flush=True)
    outcomes = []
    with capture_logs():
        for name in names:
            outcomes.append(await run.strike(BY_NAME[name]))
            print(outcomes[-1], flush=True)
    return outcomes
