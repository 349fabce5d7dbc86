"""Installations that many modules share, one running at a time, and fresh ones for those that kill."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import TypeVar

import pytest

from tests.e2e.installation import Installation, wait_for, without_spark
from tests.fixtures.cut_installation import CutInstallation, cut_installation
from tests.fixtures.cut_networks import missing
from tests.fixtures.places import file_of, group_of
from tests.fixtures.strict_steps import STRICT_STEPS

QUICKER = {
    "ZONEKEEPER_QUERY_TIMEOUT_S": "20",
    # Tests let agents stand still, and decide themselves for how long.
    "ZONEKEEPER_UP_NODE_SILENCE_S": "0",
}
SHARED = {"installation": 3, "five_nodes": 5}
"""Fixture -> nodes."""
AnInstallation = TypeVar("AnInstallation", bound=Installation)
STEPS = {"ZONEKEEPER_NODE_STRICT_STEPS": str(STRICT_STEPS)}


class Shared:
    """Starting one is what takes time, and two at once would be in each other's way."""

    def __init__(self, directories: pytest.TempPathFactory) -> None:
        self._directories = directories
        self._running: Installation | None = None
        self._cuttable: CutInstallation | None = None
        self._networks = ExitStack()

    def of(self, nodes: int) -> Installation:
        """The running one when it has so many nodes, else a new one in its place."""
        if self._running is None or self._running.nodes != nodes or not self._running.is_running():
            self.stop()
            directory = self._directories.mktemp("up")
            spark = {} if nodes == SHARED["installation"] else without_spark(directory)
            self._running = Installation(directory / "data", nodes, {**QUICKER, **spark})
            self._running.start()
        return self._running

    def cuttable(self) -> CutInstallation:
        """The running one whose links can be cut, else a new one in the place of any other."""
        if self._cuttable is None:
            self.stop()
            directory = self._directories.mktemp("cuts")
            self._cuttable = self._networks.enter_context(cut_installation(directory, STEPS))
        return self._cuttable

    def is_current(self, whole: Installation) -> bool:
        """Whether no other one took its place."""
        return whole in (self._running, self._cuttable)

    def stop(self) -> None:
        running, self._running, self._cuttable = self._running, None, None
        self._networks.close()
        if running is not None:
            running.stop()


SHARED_OF_SESSION = pytest.StashKey[Shared]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """What is shared stops with its group: a worker goes on with something else."""
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
def installation(shared: Shared) -> Iterator[Installation]:
    """Running, with no zone in it at the start of a module."""
    yield from _cleared(shared, shared.of(SHARED["installation"]))


@pytest.fixture(scope="module")
def five_nodes(shared: Shared) -> Iterator[Installation]:
    """The same with five nodes, and without Spark."""
    yield from _cleared(shared, shared.of(SHARED["five_nodes"]))


@pytest.fixture(scope="module")
def cuttable(shared: Shared) -> Iterator[CutInstallation]:
    """Each process at a site of its own, with no zone in it at the start of a module."""
    if reason := missing():
        pytest.skip(reason)
    yield from _cleared(shared, shared.cuttable())


def _cleared(shared: Shared, whole: AnInstallation) -> Iterator[AnInstallation]:
    yield whole
    if not shared.is_current(whole):
        return
    wait_for("every node", whole.is_whole)
    for zone in whole.get("/api/v1/zones")["zones"]:
        whole.execute(f"DROP ZONE {zone['name']}")
    wait_for("the end of all members", lambda: not whole.processes("etcd", "/members/"))
    wait_for("the end of all mirrors", lambda: not whole.processes("etcd", "/mirrors/"))
