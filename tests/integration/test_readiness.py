"""``/readyz`` of a real server: without a leader, and while its etcd stands still; a real controller leads."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.controller_process import controlling
from tests.fixtures.etcd_server import EtcdServer

pytestmark = pytest.mark.timeout(600)

WAIT_S = 240.0
NOBODY_SERVES = {"NOT_SERVING"}
"""Causes while the metastore is silent: no node is known, and so none can be asked."""


def answer(server: ApiServer) -> tuple[int, dict[str, Any]]:
    found = httpx.get(f"{server.url}/readyz", trust_env=False, timeout=30)
    body: dict[str, Any] = found.json()
    return found.status_code, body


def parts(server: ApiServer) -> list[str]:
    return [each["part"] for each in answer(server)[1]["degraded"]]


def states(server: ApiServer) -> set[str]:
    """States of the partitions of ORDERS."""
    address = f"{server.url}/api/v1/zones/orders/recovery/states"
    found = httpx.get(address, trust_env=False, timeout=30).raise_for_status().json()
    return {each["state"] for each in found["partitions"]}


def until(condition: Callable[[], bool], tell: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, tell()
        time.sleep(0.1)


def create_zone(server: ApiServer, name: str) -> int:
    body = {"sql": f"CREATE ZONE {name} (PARTITIONS 2)"}
    return httpx.post(f"{server.url}/api/v1/statements", json=body, trust_env=False, timeout=60).status_code


@pytest.mark.slow("each part is stopped and started in turn")
def test_what_is_degraded_is_named(own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path) -> None:
    """200 throughout: statements are taken without a leader, and while etcd is silent."""
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    with serving(tmp_path, own_etcd, keyspace, url) as (server,):
        until(lambda: answer(server)[0] == 200 and len(parts(server)) == 1, lambda: answer(server))
        status, body = answer(server)
        assert (status, body["state"], body["ready"], body["controller"]) == (200, "degraded", True, None)
        cause = "NO_LEADER: no controller leads, so nothing is placed or moved"
        (degraded,) = body["degraded"]
        assert (degraded["part"], degraded["cause"], degraded["severity"]) == ("controller", cause, "page")
        assert create_zone(server, "orders") == 200

        with controlling(tmp_path, own_etcd, keyspace):
            until(lambda: "controller" not in parts(server), lambda: answer(server))
            assert answer(server)[1]["controller"].endswith(tuple("0123456789"))
        until(lambda: parts(server) == ["controller"], lambda: answer(server))

        own_etcd.process.send_signal(signal.SIGSTOP)
        try:
            until(lambda: "metastore" in parts(server), lambda: answer(server))
            status, body = answer(server)
            assert (status, body["state"], body["ready"]) == (200, "degraded", True)
            silent = "the metastore does not answer: no answer within 1 s"
            assert f"METASTORE_UNAVAILABLE: {silent}" in [each["cause"] for each in body["degraded"]]
            assert create_zone(server, "later") == 200
            until(lambda: states(server) == NOBODY_SERVES, lambda: str(states(server)))
            until(lambda: answer(server)[1]["queue"]["outbox_oldest_seconds"] > 0, lambda: answer(server))
        finally:
            own_etcd.process.send_signal(signal.SIGCONT)
        until(lambda: parts(server) == ["controller"], lambda: answer(server))
        until(lambda: answer(server)[1]["queue"]["outbox_oldest_seconds"] == 0, lambda: answer(server))
        until(lambda: not states(server) & {"UNKNOWN", *NOBODY_SERVES}, lambda: str(states(server)))
        own_etcd.process.kill()
        until(lambda: states(server) == NOBODY_SERVES, lambda: str(states(server)))
