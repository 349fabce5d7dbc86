"""Members as their reservations alone show them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.files.reservations import FOLDERS, Reservation, Reservations, without_tls
from rebalance.ports.groups import NoPlaceError

PORTS = range(20_000, 20_010)


def test_members_and_mirrors_of_an_earlier_release_are_counted(tmp_path: Path) -> None:
    """A member goes on as it began, whatever those speak that come after it."""
    assert without_tls(tmp_path) == 0
    for number, (scheme, plain) in enumerate((("http", 2), ("https", 2))):
        members = Reservations(tmp_path, PORTS, probe=lambda *_: True, scheme=scheme)
        mirrors = members.beside(FOLDERS[1])
        for reservations in (members, mirrors):
            reservations.open()
            reservations.reserve(PartitionId(ZoneId(3), number))
        members.close()
        assert without_tls(tmp_path) == plain


def test_a_port_beside_the_members_is_none_of_theirs(tmp_path: Path) -> None:
    """A range that was once the members' alone has a pair of theirs at its end for good."""
    reservations = Reservations(tmp_path, PORTS, probe=lambda *_: True)
    reservations.open()
    assert reservations.single_port(PORTS[-1]) == PORTS[-1]
    taken = {reservations.reserve(PartitionId(ZoneId(3), number)).peer_port for number in range(4)}
    assert reservations.single_port(PORTS[-1]) == PORTS[-1]
    last = reservations.reserve(PartitionId(ZoneId(3), 4))
    assert PORTS[-1] == last.client_port
    with pytest.raises(NoPlaceError):
        reservations.single_port(PORTS[-1])
    reservations.forget(PartitionId(ZoneId(3), 0))
    assert reservations.single_port(PORTS[-1]) == min(taken)
    reservations.close()


def test_a_url_that_the_group_lists_is_not_given_to_a_new_member(tmp_path: Path) -> None:
    """The directory is gone, or its node has died between two steps: on the old URL an empty member would be
    taken for the one that has voted."""

    def reserved(listed: frozenset[str] = frozenset()) -> Reservation:
        reservations = Reservations(tmp_path / "n1", PORTS, probe=lambda *_: True)
        reservations.open()
        held = reservations.reserve(PartitionId(ZoneId(3), 0), listed)
        reservations.close()
        return held

    before = reserved()
    shutil.rmtree(tmp_path / "n1")
    after = reserved(frozenset({before.endpoints.peer_url, "http://other:1", "http://without.a.port"}))
    assert after.peer_port == before.peer_port + 2
