"""Limits by address are limits of a client: an IPv6 network of 64 bits is one, whichever addresses it sends
from."""

from __future__ import annotations

import pytest

from app.client_network import network_of
from app.edge.connection_count import ConnectionCount
from app.edge.trust import Trust
from app.sql.query_line import LineLimits, QueryClient, QueryLine
from catalog.core.errors import RefusedError

NETWORK = [f"2001:db8:1:2::{number:x}" for number in range(1, 5)]
NEXT_DOOR = "2001:db8:1:3::1"


def test_one_network_has_the_connections_of_one_address() -> None:
    count = ConnectionCount(3, Trust())
    assert [count.take(address) for address in NETWORK] == [True, True, True, False]
    assert count.take(NEXT_DOOR)
    count.give_back(NETWORK[0])
    assert count.take(NETWORK[3])


def test_one_network_does_not_fill_the_line() -> None:
    line = QueryLine(LineLimits(places=1, kept=0, waiting_max=10, of_address=3, of_client=2))
    for address in NETWORK[:3]:
        line.arrive(QueryClient(address, "anna"), is_cheap=True)
    with pytest.raises(RefusedError, match="of this address"):
        line.arrive(QueryClient(NETWORK[3], "anna"), is_cheap=True)
    line.arrive(QueryClient(NEXT_DOOR, "berta"), is_cheap=True)


def test_what_has_waited_in_another_line_is_not_refused_in_this_one() -> None:
    line = QueryLine(LineLimits(places=1, kept=0, waiting_max=1, of_address=1, of_client=1))
    client = QueryClient("192.0.2.1", "anna")
    line.arrive(client, is_cheap=True)
    with pytest.raises(RefusedError, match="wait already"):
        line.arrive(client, is_cheap=True)
    line.arrive(client, is_cheap=True, has_waited=True)
    assert len(line.waiting()) == 2


def test_of_two_networks_each_gets_a_place_however_many_addresses_one_sends_from() -> None:
    line = QueryLine(LineLimits(places=2, kept=0))
    for address in NETWORK:
        line.arrive(QueryClient(address, "anna"), is_cheap=True)
    line.arrive(QueryClient(NEXT_DOOR, "berta"), is_cheap=True)
    assert [ticket.client.user for ticket in line.admit()] == ["anna", "berta"]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8:1:2::7", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_what_counts_as_one_address(address: str, network: str) -> None:
    assert network_of(address) == network
