"""A zone that store servers keep, in an installation as it comes."""

from __future__ import annotations

import pytest

from tests.e2e.installation import Installation, wait_for

pytestmark = pytest.mark.timeout(600)


@pytest.mark.slow("an installation starts, and each node's store server with it")
def test_a_zone_in_the_profile_bulk_is_created_and_altered(installation: Installation) -> None:
    """More copies on a node than it may have members, and none of them is one."""

    def is_done(kind: str) -> bool:
        operations = installation.get("/api/v1/operations")["operations"]
        return [each["state"] for each in operations if (each["zone"], each["kind"]) == ("KEPT", kind)] == [
            "DONE"
        ]

    installation.sql("CREATE ZONE kept (PARTITIONS 128, REPLICAS 3) STORAGE PROFILES ['bulk']")
    wait_for("its creation", lambda: is_done("CREATE_ZONE"), 120)
    installation.sql("ALTER ZONE kept SET (REPLICAS 2)")
    wait_for("the change", lambda: is_done("ALTER_ZONE"), 120)
    partitions = installation.partitions("kept")
    assert {len(partition["stable"]["peers"]) for partition in partitions} == {2}
    assert not any(partition["members"] for partition in partitions)
    installation.sql("DROP ZONE kept")
