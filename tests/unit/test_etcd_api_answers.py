"""Ends of calls to a member: a closed connection is no cancellation."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from rebalance.groups.calls.etcd_api import CallFailedError, EtcdApi, FailureKind


@pytest.fixture
async def silent() -> AsyncIterator[EtcdApi]:
    """API of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        api = EtcdApi(f"http://127.0.0.1:{listener.getsockname()[1]}")
        yield api
        await api.close()


async def test_a_call_on_a_connection_that_is_closed_has_failed(silent: EtcdApi) -> None:
    """Another task stops the member meanwhile: the caller's task goes on."""
    asking = asyncio.create_task(silent.status(timeout_s=30))
    await asyncio.sleep(0.1)
    await silent.close()
    with pytest.raises(CallFailedError, match="the connection was closed") as failed:
        await asking
    assert failed.value.kind is FailureKind.NO_ANSWER


async def test_a_cancelled_caller_is_cancelled(silent: EtcdApi) -> None:
    asking = asyncio.create_task(silent.status(timeout_s=30))
    await asyncio.sleep(0.1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await silent.status(timeout_s=30)
