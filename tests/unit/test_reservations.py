"""What is known of members from their reservations alone."""

from __future__ import annotations

from pathlib import Path

from catalog.core.zone import ZoneId
from rebalance.core.keys import PartitionId
from rebalance.groups.reservations import FOLDERS, Reservations, without_tls

PORTS = range(20_000, 20_010)


def test_members_and_mirrors_of_an_earlier_release_are_counted(tmp_path: Path) -> None:
    """A member goes on as it began, whatever those speak that come after it."""
    assert without_tls(tmp_path) == 0
    for number, (scheme, plain) in enumerate((("http", 2), ("https", 2))):
        members = Reservations(tmp_path, PORTS, probe=lambda *_: True, scheme=scheme)
        mirrors = members.beside(FOLDERS[1])
        for book in (members, mirrors):
            book.open()
            book.reserve(PartitionId(ZoneId(3), number))
        members.close()
        assert without_tls(tmp_path) == plain
