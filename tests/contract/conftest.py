"""Fixtures of contract tests of controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rebalance.metastore.etcd import EtcdMetastore
from rebalance.ports.metastore import Metastore
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.etcd_server import CALL_S, Etcd


@pytest.fixture(params=["etcd", "memory"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Metastore]:
    if request.param == "etcd":
        etcd_server: Etcd = request.getfixturevalue("etcd_server")
        opened: Metastore = EtcdMetastore([etcd_server.endpoint], CALL_S)
    else:
        opened = MemoryMetastore()
    yield opened
    await opened.close()
