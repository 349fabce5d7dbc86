"""Questions to a running installation, over REST and by command line."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from tests.e2e.installation import Installation, wait_for
from tests.fixtures.installation_dumps import all_over, catalog_dump, etcd_dump

pytestmark = pytest.mark.timeout(600)


def ask(installation: Installation, sql: str) -> list[dict[str, Any]]:
    (result,) = installation.sql(sql)
    names = [column["name"] for column in result["columns"]]
    return [dict(zip(names, row, strict=True)) for row in result["data"]]


@pytest.mark.row("PME-076", "PME-080", "IEP-011", "IEP-015")
def test_select_show_explain(installation: Installation) -> None:
    """IEP-011, IEP-015, PME-076, PME-080: questions see real groups; EXPLAIN changes nothing and says what then
    happens."""
    installation.execute("CREATE ZONE asked (PARTITIONS 2, REPLICAS 3)")
    states = "SELECT DISTINCT partition_state FROM global_zone_partition_states WHERE zone_name = 'ASKED'"
    assert ask(installation, states) == [{"PARTITION_STATE": "AVAILABLE"}]
    (zone,) = ask(installation, "SHOW ZONES LIKE 'asked'")
    assert (zone["QUORUM_SIZE"], zone["VOTERS"], zone["DATA_NODES"]) == (2, 3, 3)
    leaders = "SELECT count(*) AS n FROM system.assignments WHERE zone_name = 'ASKED' AND is_leader"
    assert ask(installation, leaders) == [{"N": 2}]
    assert len(ask(installation, "EXPLAIN PARTITION asked.1")) == 3

    (affinity,) = ask(
        installation, "SELECT count(*) AS n FROM affinity WHERE zone_name = 'ASKED' AND ideal = effective"
    )
    assert affinity == {"N": 2}

    wait_for("the end of the operations", lambda: all_over(installation))
    catalog, keys = catalog_dump(installation), etcd_dump(installation)
    explained = ask(installation, "EXPLAIN ALTER ZONE asked SET (REPLICAS 1)")
    assert sum(row["REPLICAS"] for row in explained if row["SECTION"] == "REMOVE") == 4
    assert catalog_dump(installation) == catalog
    assert etcd_dump(installation) == keys

    installation.execute("ALTER ZONE asked SET (REPLICAS 1)")
    # Sizes are the groups' own, as the leaders' nodes report them.

    def added() -> list[dict[str, Any]]:
        grown = ask(installation, "EXPLAIN ALTER ZONE asked SET (REPLICAS 3)")
        return [row for row in grown if row["SECTION"] == "ADD"]

    wait_for("the sizes", lambda: all(row["BYTES"] >= row["REPLICAS"] * 16_384 for row in added()))
    assert sum(row["REPLICAS"] for row in added()) == 4
    assert all(row["NOTE"] == "new replicas, copied within their groups" for row in added())
    stable = "SELECT node_name FROM assignments WHERE zone_name = 'ASKED' AND is_stable"
    assert len(ask(installation, stable)) == 2
    wait_for("the end of the operation", lambda: not ask(installation, "SELECT * FROM operations"))
    installation.execute("DROP ZONE asked")


def test_by_command_line(installation: Installation) -> None:
    done = installation.zonectl("sql", "-e", "SELECT node_name FROM nodes ORDER BY 1", "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert list(csv.reader(io.StringIO(done.stdout))) == [["NODE_NAME"], ["n1"], ["n2"], ["n3"]]
    failed = installation.zonectl("sql", "-e", "SELECT *\nFROM 'x.csv'", "--format", "json")
    assert failed.returncode == 1
    problem = json.loads(failed.stderr)
    assert (problem["name"], problem["line"], problem["column"]) == ("VIEW_NOT_FOUND", 2, 6)


def test_a_query_bomb_is_ended_and_the_server_goes_on(installation: Installation) -> None:
    bomb = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"
    response = installation.request("POST", "/api/v1/statements", {"sql": bomb}, 60)
    assert response.json()["name"] in ("QUERY_TIMEOUT", "QUERY_MEMORY_LIMIT")
    assert ask(installation, "SELECT 1 AS one") == [{"ONE": 1}]
