"""Pace at which a store server asks for what fills its copies."""

from __future__ import annotations

from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import ByteRates
from rebalance.core.partition_maps.partition_map import NO_RECORD
from rebalance.core.partition_maps.topology_version import NO_VERSION
from rebalance.store.core.filling import FillPace
from rebalance.store.core.log_records import StoredRow
from rebalance.store.core.store_messages import SupplyBatch, SupplyStage

KIB = 1 << 10


def batch(size: int) -> SupplyBatch:
    rows = (StoredRow(b"", b"x" * size, NO_RECORD),)
    return SupplyBatch((ZoneId(1), 0), NO_VERSION, SupplyStage.ROWS, NO_RECORD, rows=rows)


def received(rates: ByteRates, suppliers: str, receivers: int, seconds: int) -> dict[str, int]:
    """Bytes that one of ``receivers`` gets from each supplier in so many seconds, in batches of 16 KiB."""
    pace, sums = FillPace(rates), dict.fromkeys(suppliers, 0)
    for now_ms in range(0, 1_000 * seconds, 10):
        for supplier in suppliers:
            if pace.may_ask(supplier, receivers, now_ms):
                pace.took(supplier, batch(16 * KIB))
                sums[supplier] += 16 * KIB
    return sums


def test_without_limits_everything_is_asked_for() -> None:
    assert received(ByteRates(), "a", 3, 1) == {"a": 100 * 16 * KIB}


def test_a_node_receives_no_more_than_its_rate() -> None:
    """Over T seconds at most the rate times T + 1, and one batch more."""
    sums = received(ByteRates(node_bytes_s=300 * KIB), "abc", 3, 10)
    assert 300 * KIB * 10 <= sum(sums.values()) <= 300 * KIB * 11 + 3 * 16 * KIB


def test_from_one_supplier_it_takes_an_equal_part() -> None:
    """Three servers that ask the same one take a node's rate together."""
    (total,) = received(ByteRates(node_bytes_s=300 * KIB), "a", 3, 10).values()
    assert 100 * KIB * 10 <= total <= 100 * KIB * 11 + 16 * KIB


def test_who_is_filled_alone_takes_all_of_a_rate() -> None:
    """One supplier is enough for that; the same holds of the cluster's rate."""
    for rates in (ByteRates(node_bytes_s=300 * KIB), ByteRates(cluster_bytes_s=300 * KIB)):
        (total,) = received(rates, "a", 1, 10).values()
        assert 300 * KIB * 10 <= total <= 300 * KIB * 11 + 16 * KIB


def test_the_cluster_s_rate_is_shared_by_all_servers() -> None:
    sums = received(ByteRates(cluster_bytes_s=400 * KIB), "ab", 4, 10)
    assert 100 * KIB * 10 <= sum(sums.values()) <= 100 * KIB * 11 + 2 * 16 * KIB


def test_the_lower_one_holds() -> None:
    rates = ByteRates(cluster_bytes_s=4_000 * KIB, node_bytes_s=100 * KIB)
    assert sum(received(rates, "abc", 4, 10).values()) <= 100 * KIB * 11 + 3 * 16 * KIB


def test_a_limit_that_goes_holds_nothing_back() -> None:
    pace = FillPace(ByteRates(node_bytes_s=1))
    pace.took("a", batch(KIB))
    assert not pace.may_ask("a", 3, 0)
    pace.rates = ByteRates()
    assert pace.may_ask("a", 3, 0)
