"""Statements and questions that only zones of store servers have, in an installation as it comes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.installation import Installation, wait_for

pytestmark = pytest.mark.timeout(600)


def rows(installation: Installation, sql: str) -> list[list[Any]]:
    data: list[list[Any]] = installation.sql(sql)[0]["data"]
    return data


@pytest.mark.row("PME-007", "PME-008", shows="service")
@pytest.mark.slow("an installation starts, and each node's store server with it")
def test_a_zone_rests_and_wakes_and_its_exchanges_and_copies_are_shown(installation: Installation) -> None:
    """PME-008, PME-007: keys are refused with a code of their own meanwhile, and are all there afterwards."""
    installation.execute(
        "CREATE ZONE quiet (PARTITIONS 8, REPLICAS 2, PARTITION LOSS POLICY 'READ_ONLY_SAFE') "
        "STORAGE PROFILES ['bulk']"
    )
    assert installation.zonectl("kv", "put", "quiet", "key", "value").returncode == 0
    ((name, state, is_changed, exchange, detail),) = rows(installation, "CALL system.deactivate_zone('quiet')")
    assert (name, state, is_changed, detail) == ("QUIET", "DEACTIVATED", True, "")
    refused = installation.zonectl("kv", "get", "quiet", "key")
    assert refused.returncode != 0
    assert "ZONE_DEACTIVATED" in refused.stderr
    state_of = "SELECT zone_state, zone_partition_loss_policy FROM zones WHERE zone_name = 'QUIET'"
    assert rows(installation, state_of) == [["DEACTIVATED", "READ_ONLY_SAFE"]]
    ((_, _, is_changed, _, detail),) = rows(installation, "CALL system.deactivate_zone('quiet')")
    assert (is_changed, detail) == (False, "the zone is DEACTIVATED already; nothing was changed")
    rows(installation, "CALL system.activate_zone('quiet')")
    wait_for("the key", lambda: installation.zonectl("kv", "get", "quiet", "key").stdout.strip() == "value")
    shown = f"SELECT cause, zones, state, type FROM exchanges WHERE exchange = '{exchange}'"
    wait_for("the exchange", lambda: rows(installation, shown) == [["DEACTIVATE", "QUIET", "DONE", "ALL"]])
    copies = "SELECT count(*), count_if(is_primary) FROM store_copies WHERE zone_name = 'QUIET' AND reason = ''"
    wait_for("16 owners", lambda: rows(installation, copies) == [[16, 8]])
    lost = installation.zonectl("recovery", "reset-lost", "quiet")
    assert lost.returncode != 0
    assert "RECOVERY_NOT_NEEDED" in lost.stderr
    installation.sql("DROP ZONE quiet")
