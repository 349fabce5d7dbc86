"""``zonectl health``: a check that one process of an installation does its work, for its supervisor."""

from __future__ import annotations

import asyncio
import http.client
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from app.cli.exits import ExitCode, UsageError
from app.cli.options import MetastoreOption, argument, group, make_settings, setting

if TYPE_CHECKING:
    from app.configuration.settings import Settings
    from rebalance.core.keyspace.keys import Keyspace

PROBE_S = 4.0

app = group("Check one process of an installation. Exit code 0: it is healthy; 1: it is not.")


@app.command()
def server(
    address: Annotated[
        str, setting("--address", "Address of the API.", "HOST:PORT", of="HEALTH_")
    ] = "127.0.0.1:7400",
) -> int:
    """Check that a server accepts statements.

    \b
    Example:
      zonectl health server --address 127.0.0.1:7400
    """
    host, port = _address(address)
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_S)
    try:
        connection.request("GET", "/readyz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return _result(f"no answer from {address}: {error}")
    finally:
        connection.close()
    return _result("" if status == http.HTTPStatus.OK else f"{address} answers with {status}")


@app.command()
def controller(metastore: MetastoreOption = None) -> int:
    """Check that a controller leads; it may be another one.

    \b
    Example:
      zonectl health controller --metastore etcd1:2379,etcd2:2379,etcd3:2379
    """
    settings = make_settings(metastore=metastore)
    return _key_result(settings, lambda keyspace: keyspace.controller_leader)


@app.command()
def node(
    name: Annotated[str | None, setting("--name", "Name of the node.", "NAME", of="NODE_")] = None,
    metastore: MetastoreOption = None,
) -> int:
    """Check that a data node is registered, which ends with its lease.

    \b
    Example:
      zonectl health node --name n1 --metastore etcd1:2379,etcd2:2379,etcd3:2379
    """
    settings = make_settings(node_name=name, metastore=metastore)
    if not settings.node_name:
        raise UsageError("zonectl health node: give --name, or set ZONEKEEPER_NODE_NAME")
    known_name = settings.node_name
    return _key_result(settings, lambda keyspace: keyspace.node(known_name))


@app.command()
def port(address: Annotated[str, argument("HOST:PORT", "Address that a process listens on.")]) -> int:
    """Check that a process accepts connections.

    \b
    Example:
      zonectl health port spark-master:7077
    """
    try:
        socket.create_connection(_address(address), PROBE_S).close()
    except OSError as error:
        return _result(f"no connection to {address}: {error}")
    return _result("")


def _address(text: str) -> tuple[str, int]:
    """Host and port of an address. Raises UsageError."""
    try:
        parts = urlsplit(f"//{text}")
        if parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise UsageError(f"zonectl health: an address is HOST:PORT, not {text!r}")


def _result(fault: str) -> int:
    if fault:
        print(f"zonectl health: {fault}", file=sys.stderr)
    return ExitCode.FAILED if fault else ExitCode.OK


def _key_result(settings: Settings, key_of: Callable[[Keyspace], str]) -> int:
    """Exit code of a check that a process has its key in the metastore."""
    from app.bootstrap.stores import open_metastore
    from rebalance.core.keyspace.keys import Keyspace
    from rebalance.ports.metastore import MetastoreError

    key = key_of(Keyspace(settings.metastore_prefix))

    async def is_there() -> bool:
        async with AsyncExitStack() as stack, asyncio.timeout(PROBE_S):
            return await open_metastore(settings, stack).get(key) is not None

    try:
        return _result("" if asyncio.run(is_there()) else f"there is no key {key}")
    except (MetastoreError, TimeoutError) as error:
        return _result(f"no answer from {settings.metastore}: {error or type(error).__name__}")
