"""No controller lives: zones of store servers are read and written on, also when a node dies then."""

from __future__ import annotations

import time

import pytest

from tests.e2e.installation import wait_for
from tests.fixtures.cut_installation import CONTROLLER, CutInstallation
from zonekeeper_client import BlockingZoneClient, ClientError

KEYS = tuple(f"key-{number}" for number in range(32))
AT_REST_S = 120

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("a node and the controller are killed"),
    pytest.mark.thorough("simulation/test_store_seeds has servers die without one"),
]


def test_a_store_zone_goes_on_when_a_node_dies_without_a_controller(cuttable: CutInstallation) -> None:
    """The server of the API fails it in the ring, and lets it join again when it is back."""
    cuttable.execute("CREATE ZONE unled (PARTITIONS 8, REPLICAS 3) STORAGE PROFILES ['bulk']", AT_REST_S)
    wait_for("copies in sync", lambda: in_sync(cuttable) == 24, AT_REST_S)
    gone = cuttable.partitions("unled")[0]["leader"]
    left = set(KEYS)
    with BlockingZoneClient([cuttable.url], **cuttable.login) as client:
        for key in KEYS:
            client.put("UNLED", key, "before")
        cuttable.sites.kill(CONTROLLER)
        try:
            wait_for("no leader", lambda: cuttable.get("/readyz")["controller"] is None)
            cuttable.sites.kill(gone)
            begun = time.monotonic()
            wait_for("every key", lambda: not written(client, left))
            print(f"every partition takes puts again after {time.monotonic() - begun:.1f} s")
            assert {item.value for key in KEYS if (item := client.get("UNLED", key))} == {"after"}
            assert {part["leader"] for part in cuttable.partitions("unled")} <= {"n1", "n2", "n3"} - {gone}
            cuttable.start_nodes(gone)
            wait_for("its copies in sync", lambda: in_sync(cuttable) == 24, AT_REST_S)
            assert cuttable.get("/readyz")["controller"] is None
        finally:
            if not cuttable.sites.runs(gone):
                cuttable.start_nodes(gone)
            cuttable.start_controller()
            wait_for("the controller", lambda: cuttable.get("/readyz")["controller"])
    wait_for("all nodes", cuttable.is_whole)
    cuttable.execute("DROP ZONE unled", AT_REST_S)


def in_sync(installation: CutInstallation) -> int:
    copies = [copy for part in installation.partitions("unled") for copy in part["copies"]]
    return sum(copy["state"] == "HEALTHY" for copy in copies)


def written(client: BlockingZoneClient, left: set[str]) -> set[str]:
    """Puts each of ``left``, and keeps those that were not acknowledged."""
    for key in sorted(left):
        try:
            client.put("UNLED", key, "after")
        except ClientError:
            continue
        left.discard(key)
    return left
