"""Engines of a node's profiles: how they are named, what each gets, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from app.bootstrap.node import engine_names, own_ports, with_engines
from app.configuration.node_settings import profiles_of
from app.configuration.settings import Settings
from catalog.core.zone import Node
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import GroupRecord, NodeRecord
from rebalance.ports.fence import NoGuard
from rebalance.ports.groups import GroupHost
from simulator.control.memory_metastore import MemoryMetastore

PLAIN = Node("n1")
BOTH = Node("n1", profiles=("default", "archive"), engines=(("archive", "acme"),))


@pytest.mark.parametrize(
    ("texts", "profiles", "engines"),
    [
        (["default"], ("default",), ()),
        ([" ssd ", "", "archive = acme"], ("ssd", "archive"), (("archive", "acme"),)),
        (["ssd=etcd"], ("ssd",), ()),
        (["default", "bulk=store"], ("default", "bulk"), (("bulk", "store"),)),
        (["b=x", "a=y"], ("b", "a"), (("a", "y"), ("b", "x"))),
    ],
)
def test_profiles_name_their_engines(
    texts: list[str], profiles: tuple[str, ...], engines: tuple[tuple[str, str], ...]
) -> None:
    assert profiles_of(texts) == (profiles, engines)


@pytest.mark.parametrize("texts", [["=acme"], ["ssd="], ["ssd=a b"], ["ssd", "ssd=acme"]])
def test_what_names_no_profile_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="PROFILE or PROFILE=ENGINE"):
        profiles_of(texts)


def test_engines_share_the_ports_evenly() -> None:
    assert own_ports(PLAIN, range(20000, 20007), "etcd") == range(20000, 20007)
    assert engine_names(BOTH) == ("etcd", "acme")
    stored = Node("n1", profiles=("default", "bulk"), engines=(("bulk", "store"),))
    assert engine_names(stored) == ("etcd",), "a store server has no members"
    assert own_ports(BOTH, range(20000, 20011), "etcd") == range(20000, 20004)
    assert own_ports(BOTH, range(20000, 20011), "acme") == range(20004, 20008)
    # The store server has the last port; shares stay where they were without one.
    assert own_ports(stored, range(20000, 20201), "store") == range(20200, 20201)
    assert own_ports(stored, range(20000, 20201), "etcd") == range(20000, 20200)
    three = Node("n1", engines=(("archive", "acme"), ("bulk", "store")))
    assert own_ports(three, range(20000, 20008), "etcd") == range(20000, 20004)
    assert own_ports(three, range(20000, 20008), "acme") == range(20004, 20007)
    assert own_ports(three, range(20000, 20010), "acme") == range(20004, 20008)
    with pytest.raises(ValueError, match="20000-20002 are too few for engines etcd, acme"):
        own_ports(BOTH, range(20000, 20003), "acme")


def test_members_of_an_engine_without_a_profile_are_not_forgotten(tmp_path: Path) -> None:
    """Their votes would be missing without a word."""
    (tmp_path / "engines" / "acme").mkdir(parents=True)
    settings = Settings(data_dir=tmp_path, node_ports="20000-20099")
    with pytest.raises(ValueError, match="has members of acme, which no profile of this node names"):
        with_engines(PLAIN, settings, cast(GroupHost, None), MemoryMetastore(), Keyspace(), NoGuard())


@pytest.mark.parametrize("node", [PLAIN, BOTH])
def test_a_nodes_engines_are_in_its_record(node: Node) -> None:
    assert NodeRecord.decode(NodeRecord(node, "i", 7).encode()).node == node


@pytest.mark.parametrize("engine", ["etcd", "acme"])
def test_a_groups_engine_is_in_its_record(engine: str) -> None:
    """A record of the default one is what builds wrote that knew no other."""
    record = GroupRecord("t", {"n1": "http://a:1"}, 2, engine)
    assert GroupRecord.decode(record.encode()) == record
    assert (b"engine" in record.encode()) == (engine != "etcd")
