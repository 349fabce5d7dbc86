"""Evidence that the metastore has no majority: the addresses whose refusals count."""

from __future__ import annotations

from typing import cast

from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.majority import EtcdMajority
from tests.fixtures.ports import free_block


class Advertised:
    """List of voters of a metastore that is reached at another address than its members advertise."""

    def __init__(self, *urls: str) -> None:
        self._urls = urls

    async def voters(self) -> tuple[tuple[str, ...], ...]:
        return tuple((url,) for url in self._urls)


async def test_an_address_where_no_member_was_ever_seen_is_no_evidence() -> None:
    """etcd advertises localhost by default: on a machine without a member it refuses at all times."""
    ports = free_block(2)
    metastore = Advertised(*(f"http://localhost:{port}" for port in ports))
    probe = EtcdMajority(cast(EtcdMetastore, metastore))
    await probe.remember()
    assert not await probe.no_majority()
