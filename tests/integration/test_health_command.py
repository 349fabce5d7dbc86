"""``zonectl health``: what a supervisor of containers runs beside a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.etcd import EtcdMetastore
from tests.fixtures.api_stub import ApiStub, serve
from tests.fixtures.etcd_server import CALL_S, EtcdServer
from tests.fixtures.ports import free_port


def health(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "app.cli", "health", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


async def test_a_node_and_a_controller_are_healthy_while_their_keys_are_there(own_etcd: EtcdServer) -> None:
    keyspace = Keyspace()
    store = EtcdMetastore([own_etcd.endpoint], CALL_S)
    at = ("--metastore", own_etcd.endpoint)
    try:
        for key, arguments in (
            (keyspace.node("n1"), ("node", "--name", "n1", *at)),
            (keyspace.controller_leader, ("controller", *at)),
        ):
            assert health(*arguments) == (1, f"zonectl health: there is no key {key}\n")
            await store.commit(Txn((), (Put(key, b"{}"),)))
            assert health(*arguments) == (0, "")
    finally:
        await store.close()


def test_nobody_is_healthy_whom_nobody_reaches() -> None:
    address = f"127.0.0.1:{free_port()}"
    for arguments in (
        ("node", "--name", "n1", "--metastore", address),
        ("controller", "--metastore", address),
        ("server", "--address", address),
        ("port", address),
    ):
        code, text = health(*arguments)
        assert code == 1
        assert text.startswith("zonectl health: no ")
        assert address in text


def test_a_server_is_healthy_while_it_is_ready() -> None:
    stub = ApiStub()
    server = serve(stub)
    address = stub.url.removeprefix("http://")
    try:
        for status, expected in (
            (503, (1, f"zonectl health: {address} answers with 503\n")),
            (200, (0, "")),
        ):
            stub.answers["GET /readyz"] = (status, {"ready": status == 200})
            assert health("server", "--address", address) == expected
    finally:
        server.shutdown()
        server.server_close()


def test_a_port_is_healthy_while_somebody_listens(own_etcd: EtcdServer) -> None:
    assert health("port", own_etcd.endpoint) == (0, "")


@pytest.mark.parametrize("arguments", [("node",), ("port", "nowhere"), ("port", "host:port"), ("port",)])
def test_what_is_no_address_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert health(*arguments)[0] == 64
