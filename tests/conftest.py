"""Shared fixtures: real servers on free ports, started once a session."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from rebalance.core.keys import Keyspace
from rebalance.metastore.etcd import EtcdMetastore
from tests.fixtures.etcd_server import CALL_S, EtcdServer, start_etcd_server, stop_etcd_server

pytest_plugins = ["tests.fixtures.api_stub", "tests.fixtures.databases"]

# The same examples in each run, so that what fails fails again; `make soak` draws others.
# Nothing depends on how fast an example is drawn or run: a machine may be busy.
_AT_ANY_PACE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", _AT_ANY_PACE, derandomize=True)
settings.register_profile("random", _AT_ANY_PACE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# What a script starts in its background ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_prefixes = itertools.count(1)


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[EtcdServer]:
    """One etcd for the session: tests keep apart by prefix. Do not kill it; use ``own_etcd`` for that."""
    server = start_etcd_server()
    yield server
    stop_etcd_server(server)


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """An etcd of the test's own, to be killed and restarted."""
    server = start_etcd_server()
    yield server
    stop_etcd_server(server)


@pytest.fixture
def keyspace() -> Keyspace:
    return Keyspace(f"test-{os.getpid()}-{next(_prefixes)}/")


@pytest.fixture
async def metastore(etcd_server: EtcdServer) -> AsyncIterator[EtcdMetastore]:
    """A client of the session's etcd; keep to the ``keyspace`` fixture's prefix."""
    client = EtcdMetastore([etcd_server.endpoint], CALL_S)
    yield client
    await client.close()
