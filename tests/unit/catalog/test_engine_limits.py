"""What a good statement is still refused for: the engine of today."""

from __future__ import annotations

import re

import pytest

from catalog.core.engine_limits import check_engine_can, check_member_limits, spread_members
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import Change, Topology
from tests.unit.catalog.commands import catalog, change, nodes


def refused(changed: Change, topology: Topology) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        check_engine_can(changed, topology)
    return error.value


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (3, "REPLICAS ALL"),
        (5, "REPLICAS ALL"),
        (3, "REPLICAS 3, QUORUM SIZE 2"),
        (5, "REPLICAS 5"),
        (3, "REPLICAS 100"),
        (2, "REPLICAS 2"),
        (1, "REPLICAS 1"),
        (4, "REPLICAS ALL, QUORUM SIZE 3"),
    ],
)
def test_every_replica_votes(count: int, options: str) -> None:
    topology = nodes(count)
    check_engine_can(change(f"CREATE ZONE z ({options})", topology=topology), topology)


@pytest.mark.parametrize("count", range(4, 12))
@pytest.mark.parametrize("replicas", ["ALL", "4", "5", "6", "7", "8", "9"])
def test_learners_are_refused_with_what_avoids_them(count: int, replicas: str) -> None:
    """Whatever the refusal proposes is accepted."""
    topology = nodes(count)
    changed = change(f"CREATE ZONE z (REPLICAS {replicas}, QUORUM SIZE 2)", topology=topology)
    error = refused(changed, topology)
    assert error.kind is ErrorKind.LEARNERS_NOT_SUPPORTED
    assert error.kind.sqlstate == "0A000"
    assert (error.line, error.column) == (1, 16 + len(f"REPLICAS {replicas}, "))
    proposed = re.search(r"(REPLICAS (\d+) with )?QUORUM SIZE (\d+) avoids", error.message)
    assert proposed
    fitting = f"CREATE ZONE z (REPLICAS {proposed[2] or replicas}, QUORUM SIZE {proposed[3]})"
    check_engine_can(change(fitting, topology=topology), topology)


def test_statements_that_change_nothing_are_not_asked() -> None:
    snapshot = catalog("CREATE ZONE z (REPLICAS ALL)", topology=nodes(6))
    for sql in ("ALTER ZONE z SET REPLICAS ALL", "DROP ZONE z", "CREATE ZONE IF NOT EXISTS z"):
        check_engine_can(change(sql, snapshot, nodes(6)), nodes(6))
        check_member_limits(change(sql, snapshot, nodes(6)), nodes(6), {"n1": 1000}, {"n1": 1000})


def test_member_limit_names_the_node_and_what_would_fit() -> None:
    topology = nodes(3, member_limit=100)
    changed = change("CREATE ZONE z (PARTITIONS 50, REPLICAS 3)", topology=topology)
    wanted = dict.fromkeys(changed.data_nodes, 50)
    check_member_limits(changed, topology, {"n1": 50}, wanted)
    with pytest.raises(RefusedError) as error:
        check_member_limits(changed, topology, {"n1": 51, "n2": 75}, wanted)
    assert error.value.kind is ErrorKind.NODE_MEMBER_LIMIT
    assert error.value.kind.sqlstate == "54000"
    assert error.value.message == (
        "node n2 holds 75 replication-group members of other zones and may hold 100; "
        "zone Z would need 50 there; there is room for 25, so about PARTITIONS 25 fits"
    )
    assert error.value.column == 16
    with pytest.raises(RefusedError, match="no zone fits before nodes are added"):
        check_member_limits(changed, topology, {"n3": 100}, wanted)


def test_spread_of_members_is_an_upper_estimate() -> None:
    changed = change("CREATE ZONE z (PARTITIONS 10, REPLICAS 2)", topology=nodes(3))
    assert changed.after is not None
    assert spread_members(changed.after, changed.data_nodes) == {"n1": 7, "n2": 7, "n3": 7}
    assert spread_members(changed.after, ()) == {}
