"""Data made by a founding takes the place of the member's once its generation is noted, not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.files.reservations import Reservations

P0 = PartitionId(ZoneId(3), 0)


def reservations(directory: Path) -> Reservations:
    opened = Reservations(directory, range(20_000, 20_010), probe=lambda *_: True)
    opened.open()
    return opened


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "of").write_text(text)


@pytest.mark.parametrize(("noted", "kept"), [(False, "old"), (True, "new")])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_founding_that_was_cut_off(tmp_path: Path, *, noted: bool, kept: str, restarts: bool) -> None:
    """The node dies before or after its generation is noted; or it lives and looks again."""
    held = reservations(tmp_path)
    held.reserve(P0)
    write(held.data(P0), "old")
    write(held.founded_data(P0, 9), "new")
    if noted:
        held.prepare(P0, "t", {"n1": "u"}, "new", generation=9, founding_revision=40)
    if restarts:
        held.close()
        held = reservations(tmp_path)
    else:
        held.settle_founding(P0)
    assert (held.data(P0) / "of").read_text() == kept
    assert not held.founded_data(P0, 9).exists()
    found = held.get(P0)
    assert found is not None
    assert (found.generation, found.founding_revision) == ((9, 40) if noted else (0, 0))
    held.settle_founding(P0)
    assert (held.data(P0) / "of").read_text() == kept
    held.close()
