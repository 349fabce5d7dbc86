"""What nodes do after the metastore was adopted: what they may forget, and what they must keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from rebalance.core.epoch import EpochRecord
from rebalance.core.keys import Keyspace
from rebalance.core.records import ConfigurationRecord, ConfiguredMember, MemberRole, Stage
from rebalance.core.txn import KeyValue
from rebalance.nodes.registration import NodeFile, Registration
from rebalance.nodes.removal import why_kept
from rebalance.simulation.memory_metastore import MemoryMetastore

URL = "http://127.0.0.1:1"
ZONE = Zone(ZoneId(1), "Z", 4, 3, None, ("default",))


def key(value: bytes, revision: int) -> KeyValue:
    return KeyValue("key", value, revision, revision, 1)


def epoch(number: int) -> KeyValue:
    return key(EpochRecord(number).encode(), 50)


def configuration(revision: int, *urls: str) -> KeyValue:
    members = {f"n{n}": ConfiguredMember(str(n), MemberRole.VOTER, url, False) for n, url in enumerate(urls)}
    return key(ConfigurationRecord(1, "n0", Stage.STABLE, members, "").encode(), revision)


def intent(dropped: bool) -> KeyValue:
    return key(ZoneIntent(3, ZONE, dropped).encode(), 49)


@pytest.mark.row("I3-049", shows="core")
@pytest.mark.parametrize(
    ("now", "published", "wanted", "words"),
    [
        (None, None, None, ""),
        (epoch(1), configuration(40), intent(False), ""),
        (epoch(2), configuration(49), intent(False), "has not published"),
        (epoch(2), None, intent(False), "has not published"),
        (epoch(2), None, None, "has not published"),
        (epoch(2), configuration(49), intent(True), ""),
        (epoch(2), configuration(51, URL), intent(False), "counts it"),
        (epoch(2), configuration(51, "http://127.0.0.1:2"), intent(False), ""),
    ],
)
def test_what_is_kept(
    now: KeyValue | None, published: KeyValue | None, wanted: KeyValue | None, words: str
) -> None:
    """I3-049: data is destroyed on the word of the catalog, or of the group after the adoption."""
    why = why_kept(URL, now, published, wanted)
    assert words in why
    assert bool(why) == bool(words)


async def test_only_an_adoption_lowers_what_a_node_has_seen(tmp_path: Path) -> None:
    """Across restarts too."""

    def registration() -> Registration:
        return Registration(MemoryMetastore(), Keyspace(), Node("n1"), tmp_path)

    node = registration()
    node.saw(100)
    node.saw(7)
    node.adopted(1, 7)
    assert node.revision_floor == 100
    node.adopted(2, 8)
    assert node.revision_floor == 8
    again = registration()
    assert (again.epoch, again.revision_floor) == (2, 8)
    again.adopted(2, 3)
    assert again.revision_floor == 8


def test_a_file_of_a_node_from_before_epochs(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"v":1,"incarnation":"a","revision":5}')
    assert NodeFile.read(path) == NodeFile("a", 5, 1)
