"""Shared fixtures: real servers on free ports, started once a run."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from rebalance.core.keyspace.keys import Keyspace
from rebalance.metastore.etcd import EtcdMetastore
from tests.fixtures.etcd_server import CALL_S, Etcd, EtcdServer, SharedEtcd, etcd_endpoint, running_etcd
from tests.fixtures.shared_server import run_directory, shared_by_workers

pytest_plugins = [
    "tests.fixtures.api_stub",
    "tests.fixtures.databases",
    "tests.fixtures.durations",
    "tests.fixtures.ended_runs",
    "tests.fixtures.ledger",
    "tests.fixtures.places",
    "tests.fixtures.previous_build",
    "tests.fixtures.promtool",
]

# The same examples in each run, so that what fails fails again; `make soak` draws others, and twice as many.
# Nothing depends on how fast an example is drawn or run: a machine may be busy.
_AT_ANY_PACE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", _AT_ANY_PACE, derandomize=True, max_examples=50)
settings.register_profile("random", _AT_ANY_PACE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

_prefixes = itertools.count(1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """The machine's end of all networks that tests make is there before a browser loads anything."""
    networks = sys.modules.get("tests.fixtures.cut_networks")
    if networks is not None and any(item.get_closest_marker("hosted") for item in session.items):
        networks.missing()


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedEtcd]:
    """One etcd for the run: tests keep apart by prefix. For one to be killed there is ``own_etcd``."""
    with shared_by_workers(run_directory(tmp_path_factory), "etcd", etcd_endpoint) as endpoint:
        yield SharedEtcd(endpoint)


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """An etcd of the test's own, to be killed and restarted."""
    with running_etcd() as server:
        yield server


@pytest.fixture
def keyspace() -> Keyspace:
    return Keyspace(f"test-{os.getpid()}-{next(_prefixes)}/")


@pytest.fixture
async def metastore(etcd_server: Etcd) -> AsyncIterator[EtcdMetastore]:
    """A client of the run's etcd; keep to the ``keyspace`` fixture's prefix."""
    client = EtcdMetastore([etcd_server.endpoint], CALL_S)
    yield client
    await client.close()
