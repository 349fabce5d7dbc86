"""Installations that many modules share, one running at a time, and fresh ones for those that kill."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import TypeVar

import pytest

from tests.e2e.installation import SPARK, Installation, wait_for, without_spark
from tests.fixtures.cut_installation import CutInstallation, cut_installation
from tests.fixtures.cut_networks import missing
from tests.fixtures.fenced_trial import LEASES
from tests.fixtures.judged_alerts import QUICK_ALERTS
from tests.fixtures.needs import need
from tests.fixtures.places import file_of, group_of
from tests.fixtures.shifted_clock import ShiftedClock
from tests.fixtures.shifted_clock import missing as no_shifted_clock
from tests.fixtures.strict_steps import STRICT_STEPS

QUICKER = {
    # One of the tests asks what has no end.
    "ZONEKEEPER_QUERY_TIMEOUT_S": "5",
    # Tests let agents stand still, and decide themselves for how long.
    "ZONEKEEPER_UP_NODE_SILENCE_S": "0",
    **QUICK_ALERTS,
}
NODES, MORE_NODES = 3, 5
AnInstallation = TypeVar("AnInstallation", bound=Installation)


class Shared:
    """Starting one is what takes time, and two at once would be in each other's way."""

    def __init__(self, directories: pytest.TempPathFactory) -> None:
        self._directories = directories
        self._running: Installation | None = None
        self._spark = False
        self._cuttable: CutInstallation | None = None
        self.clock: ShiftedClock | None = None
        """Clock of the controller whose links can be cut; None: no process can have a clock of its own."""
        self._networks = ExitStack()

    def of(self, nodes: int, *, spark: bool = False) -> Installation:
        """The running one when it has so many nodes and is with Spark or without, else a new one in its
        place."""
        running = self._running
        if running is None or (running.nodes, self._spark) != (nodes, spark) or not running.is_running():
            self.stop()
            directory = self._directories.mktemp("up")
            environment = QUICKER if spark else {**QUICKER, **without_spark(directory)}
            self._running, self._spark = Installation(directory / "data", nodes, environment), spark
            self._running.start()
            running = self._running
        return running

    def cuttable(self) -> CutInstallation:
        """The running one whose links can be cut, else a new one in the place of any other."""
        if self._cuttable is None:
            self.stop()
            directory = self._directories.mktemp("cuts")
            environment = {**LEASES, "ZONEKEEPER_NODE_STRICT_STEPS": str(STRICT_STEPS)}
            environment["ZONEKEEPER_NODE_PROFILES"] = "default,bulk=store"
            self.clock = None if no_shifted_clock() else ShiftedClock(directory)
            own = self.clock.environment if self.clock is not None else None
            self._cuttable = self._networks.enter_context(
                cut_installation(directory / "sites", environment, own)
            )
        return self._cuttable

    def is_current(self, whole: Installation) -> bool:
        """True unless another installation took its place."""
        return whole in (self._running, self._cuttable)

    def stop(self) -> None:
        running, self._running, self._cuttable = self._running, None, None
        self._networks.close()
        if running is not None:
            running.stop()


SHARED_OF_SESSION = pytest.StashKey[Shared]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Stop what is shared with the group that it belongs to: a worker goes on with another group."""
    yield
    shared = item.session.stash.get(SHARED_OF_SESSION, None)
    if shared is not None and (nextitem is None or group_of(file_of(nextitem)) != group_of(file_of(item))):
        shared.stop()


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    shared = Shared(tmp_path_factory)
    request.session.stash[SHARED_OF_SESSION] = shared
    yield shared
    shared.stop()


@pytest.fixture(scope="module")
def installation(request: pytest.FixtureRequest, shared: Shared) -> Iterator[Installation]:
    """Running, with no zone in it at the start of a module. Its placement is the kernel's own, but for tests
    with the marker ``WITH_SPARK``."""
    spark = getattr(request, "param", "") == SPARK
    whole = shared.of(NODES, spark=spark)
    if spark:
        wait_for("Spark", lambda: whole.get("/readyz")["spark"] == "ready")
    yield from _cleared(shared, whole)


@pytest.fixture(scope="module")
def five_nodes(shared: Shared) -> Iterator[Installation]:
    """The same with five nodes, always without Spark."""
    yield from _cleared(shared, shared.of(MORE_NODES))


@pytest.fixture(scope="module")
def cuttable(shared: Shared) -> Iterator[CutInstallation]:
    """Each process at a site of its own, with short leases, and no zone in it at the start of a module."""
    need(missing())
    yield from _cleared(shared, shared.cuttable())


@pytest.fixture
def clock_or_none(shared: Shared, cuttable: CutInstallation) -> Iterator[ShiftedClock | None]:
    """Clock of the controller of ``cuttable`` alone, set right again afterwards; None: it has the machine's."""
    yield shared.clock
    if shared.clock is not None:
        shared.clock.jump(0)


@pytest.fixture
def clock(clock_or_none: ShiftedClock | None) -> ShiftedClock:
    """The same, for tests that show nothing without it."""
    if clock_or_none is None:
        pytest.skip(no_shifted_clock())
    return clock_or_none


def _cleared(shared: Shared, whole: AnInstallation) -> Iterator[AnInstallation]:
    yield whole
    if not shared.is_current(whole):
        return
    wait_for("every node", whole.is_whole)
    for zone in whole.get("/api/v1/zones")["zones"]:
        whole.execute(f"DROP ZONE {zone['name']}")
    wait_for("the end of all members", lambda: not whole.processes("etcd", "/members/"))
    wait_for("the end of all mirrors", lambda: not whole.processes("etcd", "/mirrors/"))
