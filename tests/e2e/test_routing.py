"""The routing map of a whole installation, and programs that use it."""

from __future__ import annotations

import pytest

from rebalance.groups.calls.key_hash import partition_of
from tests.e2e.installation import Installation
from zonekeeper_client import BlockingZoneClient, Mode, ZoneNotFoundError

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.thorough("linearizability/test_recorded_history has both ways during moves"),
]

KEYS = [f"key-{number}" for number in range(40)]


@pytest.mark.slow("programs go on during a move of all partitions")
def test_programs_read_and_write_by_the_map(installation: Installation) -> None:
    """Straight to the groups and through the server, each sees what the other wrote, before and after a
    rebalance; the map is sent again only when it has changed."""
    installation.execute("CREATE ZONE routed (PARTITIONS 4, REPLICAS 1)")
    path = "/api/v1/zones/ROUTED/routing"
    first = installation.request("GET", path)
    assert first.status_code == 200
    assert [len(each["voters"]) for each in first.json()["partitions"]] == [1] * 4
    assert int(first.headers["zonekeeper-map-version"]) == first.json()["version"]
    servers = [installation.url]
    with (
        BlockingZoneClient(servers, mode=Mode.DIRECT, tls=installation.tls, **installation.login) as direct,
        BlockingZoneClient(servers, **installation.login) as routed,
    ):
        for key in KEYS:
            stored = direct.put("routed", key, f"direct {key}", f"op-{key}")
            assert stored.partition == partition_of(key, 4)
            assert routed.put("routed", key, "not again", f"op-{key}").repeated
            found = routed.get("ROUTED", key)
            assert found is not None
            assert found.value == f"direct {key}"
        tag = first.headers["etag"]
        same = installation.request("GET", path, headers={"If-None-Match": f'"other", {tag}'})
        assert same.status_code == 304
        assert not same.content
        assert int(same.headers["zonekeeper-map-version"]) >= first.json()["version"]
        installation.execute("ALTER ZONE routed SET (REPLICAS 3)")
        changed = installation.request("GET", path, headers={"If-None-Match": tag})
        assert changed.status_code == 200
        assert changed.json()["version"] > first.json()["version"]
        assert [len(each["voters"]) for each in changed.json()["partitions"]] == [3] * 4
        for key in KEYS:
            assert direct.get("ROUTED", key) == routed.get("ROUTED", key)
        assert direct.get("ROUTED", "no such key") is routed.get("ROUTED", "no such key") is None
        installation.execute("DROP ZONE routed")
        for client in (direct, routed):
            with pytest.raises(ZoneNotFoundError, match=r"ZONE_NOT_FOUND \(\d+, 42704\)"):
                client.put("ROUTED_NO_MORE", "k", "v")
    missing = installation.request("GET", path)
    assert (missing.status_code, missing.json()["name"]) == (404, "ZONE_NOT_FOUND")
