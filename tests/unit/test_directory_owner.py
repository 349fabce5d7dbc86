"""Ownership of directories: what a node does with one that has no name, its own, another node's, another
installation's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.groups.files.reservations import Reservations
from rebalance.hosting.directory_owner import OWNER_FILE, ForeignDirectoryError, node_directories, owner_of
from rebalance.metastore.own_directory import OwnDirectory, installation_of
from rebalance.ports.metastore import MetastoreUnavailableError
from simulator.control.memory_metastore import MemoryMetastore

KEYS = Keyspace()


class SilentMetastore(MemoryMetastore):
    """``is_silent``: nothing is answered."""

    is_silent = True

    async def get(self, key: str):  # type: ignore[no-untyped-def]  # as the base has it
        if self.is_silent:
            raise MetastoreUnavailableError("silent")
        return await super().get(key)


def directory(path: Path, metastore: MemoryMetastore, node: str = "n1") -> OwnDirectory:
    path.mkdir(exist_ok=True)
    return OwnDirectory(node, lambda: node_directories(path), metastore, KEYS)


def named(path: Path) -> str:
    owner = owner_of(path)
    return str(owner) if owner is not None else ""


async def test_directories_of_an_earlier_release_get_the_name_of_their_node(tmp_path: Path) -> None:
    """All at the first start, and those that are made later with them."""
    metastore, data_dir = MemoryMetastore(), tmp_path / "n1"
    parts = ("store", "members/1-0", "mirrors/1-1", "members/.doomed")
    for part in parts:
        (data_dir / part).mkdir(parents=True)
    assert await directory(data_dir, metastore).why_foreign() == ""
    installation = await installation_of(metastore, KEYS)
    expected = f"n1 of installation {installation}"
    assert [named(data_dir / part) for part in ("", *parts)] == [expected] * 4 + [""]
    reservations = Reservations(data_dir, range(20_000, 20_010))
    reservations.open()
    reservations.reserve(PartitionId(ZoneId(7), 3))
    reservations.close()
    assert named(data_dir / "members/7-3") == expected
    assert await directory(data_dir, metastore).why_foreign() == ""


@pytest.mark.parametrize("part", ["", "store", "members/1-0", "mirrors/1-0"])
async def test_a_directory_of_another_node_is_refused_with_both_names(tmp_path: Path, part: str) -> None:
    """Each of a node's directories has its own name."""
    metastore = MemoryMetastore()
    for node in ("n1", "n2"):
        (tmp_path / node / part).mkdir(parents=True, exist_ok=True)
        assert await directory(tmp_path / node, metastore, node).why_foreign() == ""
    content = (tmp_path / "n2" / part / OWNER_FILE).read_bytes()
    (tmp_path / "n1" / part / OWNER_FILE).write_bytes(content)
    installation = await installation_of(metastore, KEYS)
    assert await directory(tmp_path / "n1", metastore).why_foreign() == (
        f"FOREIGN_DIRECTORY: {tmp_path / 'n1' / part} is the directory of node n2 of installation "
        f"{installation}, and this is node n1: start each node with its own directory"
    )
    assert (tmp_path / "n1" / part / OWNER_FILE).read_bytes() == content


async def test_a_directory_of_another_installation_is_refused_with_both_names(tmp_path: Path) -> None:
    ours, others = MemoryMetastore(), MemoryMetastore()
    for metastore, name in ((ours, "ours"), (others, "others")):
        await metastore.commit(Txn((), (Put(KEYS.installation, name.encode()),)))
    assert await directory(tmp_path, others).why_foreign() == ""
    assert await directory(tmp_path, ours).why_foreign() == (
        f"FOREIGN_DIRECTORY: {tmp_path} is the directory of node n1 of installation others, "
        "and this is node n1 of installation ours: start each node with its own directory"
    )


async def test_a_metastore_that_was_made_anew_gets_the_name_that_directories_have(tmp_path: Path) -> None:
    assert await directory(tmp_path, MemoryMetastore()).why_foreign() == ""
    anew = MemoryMetastore()
    assert await directory(tmp_path, anew).why_foreign() == ""
    assert named(tmp_path) == f"n1 of installation {await installation_of(anew, KEYS)}"


async def test_a_silent_metastore_names_a_directory_later(tmp_path: Path) -> None:
    """The node starts meanwhile, but not on another node's directory; of another installation it ends."""
    metastore = SilentMetastore()
    own = directory(tmp_path, metastore)
    assert await own.why_foreign() == ""
    assert named(tmp_path) == ""
    metastore.is_silent = False
    async with asyncio.timeout(60):
        await own.name()
    assert named(tmp_path).startswith("n1 of installation ")
    metastore.is_silent = True
    assert "is the directory of node n1" in await directory(tmp_path, metastore, "n2").why_foreign()
    other = MemoryMetastore()
    await other.commit(Txn((), (Put(KEYS.installation, b"other"),)))
    with pytest.raises(ForeignDirectoryError, match="this is node n1 of installation other"):
        await directory(tmp_path, other).name()


@pytest.mark.parametrize("content", ["", "{}", '{"node": "n1"}', "[]"])
async def test_a_name_that_cannot_be_read_is_nobodys(tmp_path: Path, content: str) -> None:
    (tmp_path / OWNER_FILE).write_text(content)
    why = await directory(tmp_path, MemoryMetastore()).why_foreign()
    assert why.startswith(f"FOREIGN_DIRECTORY: {tmp_path / OWNER_FILE} cannot be read, so the owner")
    assert (tmp_path / OWNER_FILE).read_text() == content


async def test_what_a_name_says_is_readable(tmp_path: Path) -> None:
    metastore = MemoryMetastore()
    await metastore.commit(Txn((), (Put(KEYS.installation, b"abc"),)))
    await directory(tmp_path, metastore).why_foreign()
    assert json.loads((tmp_path / OWNER_FILE).read_text()) == {"v": 1, "node": "n1", "installation": "abc"}
