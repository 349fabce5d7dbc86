"""Limits by address are limits of a client: an IPv6 network of 64 bits is one, whichever addresses it sends
from."""

from __future__ import annotations

from functools import partial

import pytest

from app.sql.statements.statement_line import LineLimits, QueryClient, QueryLine
from catalog.core.authorisation import LOCAL, Principal
from catalog.core.errors import RefusedError
from rebalance.hosting.client_connections import ConnectionPlaces, network_of

NETWORK = [f"2001:db8:1:2::{number:x}" for number in range(1, 5)]
NEXT_DOOR = "2001:db8:1:3::1"


def test_one_network_has_the_connections_of_one_address() -> None:
    places = ConnectionPlaces(3, 100)
    taken = [places.take(address, fail_if_called) for address in NETWORK]
    assert [place is not None for place in taken] == [True, True, True, False]
    assert places.take(NEXT_DOOR, fail_if_called)
    assert taken[0] is not None
    for _ in range(2):
        taken[0].give_back()
    assert places.open == 3
    assert places.take(NETWORK[3], fail_if_called)
    assert places.take(NETWORK[3], fail_if_called) is None


def test_of_those_who_have_not_said_who_they_are_the_oldest_gives_way() -> None:
    places, gone = ConnectionPlaces(2, 100, newest_first=True), list[str]()
    for name in "abcd":
        assert places.take(NETWORK[0], partial(gone.append, name))
    assert (gone, places.open) == (["a", "b"], 2)


def test_where_all_places_are_taken_whoever_has_the_most_gives_way() -> None:
    places, gone = ConnectionPlaces(3, 4), list[str]()
    for name in "abc":
        assert places.take(NETWORK[0], partial(gone.append, name))
    assert places.take(NEXT_DOOR, partial(gone.append, "next door"))
    assert places.take("192.0.2.1", partial(gone.append, "elsewhere"))
    assert (gone, places.open) == (["a"], 4)
    # It has two, and whoever comes has none.
    assert places.take("192.0.2.2", partial(gone.append, "there"))
    assert gone == ["a", "b"]
    assert places.take(NETWORK[0], fail_if_called) is None


def test_whoever_is_exempt_takes_no_place() -> None:
    places = ConnectionPlaces(1, 1, is_exempt=lambda address: address == "192.0.2.9")
    assert places.take("192.0.2.1", fail_if_called)
    for _ in range(3):
        assert places.take("192.0.2.9", fail_if_called)
    assert places.open == 1


def fail_if_called() -> None:
    raise AssertionError("nobody has to give way")


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


def test_of_one_user_only_so_many_run_at_once_wherever_they_are_sent_from() -> None:
    line = QueryLine(LineLimits(places=10, kept=0, running_of_user=2))
    mallory, anna = Principal(LOCAL, "mallory"), Principal(LOCAL, "anna")
    tickets = [
        line.arrive(QueryClient(address, principal=mallory), is_cheap=True) for address in (*NETWORK, NEXT_DOOR)
    ]
    assert len(line.admit()) == 2
    line.arrive(QueryClient(NEXT_DOOR, principal=anna), is_cheap=True)
    assert [ticket.client.principal for ticket in line.admit()] == [anna]
    line.leave(tickets[0].number)
    assert [ticket.client.principal for ticket in line.admit()] == [mallory]
    assert len(line.waiting()) == len(tickets) - 3


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
