"""Refusals of statements that are otherwise good: limits of what the nodes of today can hold."""

from __future__ import annotations

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import check_member_limits
from tests.unit.catalog.commands import catalog, change, nodes


@pytest.mark.row("IEP-019", "IEP-033", "IEP-034")
@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("replicas", ["ALL", "1", "2", "3", "4", "5", "7", "100"])
def test_any_number_of_voters_and_learners_is_accepted(count: int, replicas: str) -> None:
    """IEP-019, IEP-033, IEP-034: replicas beyond the voters are learners, and no number of them is refused."""
    topology = nodes(count)
    assert change(f"CREATE ZONE z (REPLICAS {replicas})", topology=topology).applied
    if replicas in ("ALL", "4", "5", "7", "100") and count > 1:
        assert change(f"CREATE ZONE z (REPLICAS {replicas}, QUORUM SIZE 2)", topology=topology).applied


def test_statements_that_change_nothing_are_not_asked() -> None:
    snapshot = catalog("CREATE ZONE z (REPLICAS ALL)", topology=nodes(6))
    for sql in ("ALTER ZONE z SET REPLICAS ALL", "DROP ZONE z", "CREATE ZONE IF NOT EXISTS z"):
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
        "node n2 holds 75 replicas of other zones and may hold 100; "
        "zone Z would need 50 there; there is room for 25, so about PARTITIONS 25 fits"
    )
    assert error.value.column == 16
    with pytest.raises(RefusedError, match="no zone fits before nodes are added"):
        check_member_limits(changed, topology, {"n3": 100}, wanted)
