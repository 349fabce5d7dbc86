"""Known scenarios of statements that come one after another, with everything real."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.installation import Installation, wait_for, writing
from tests.fixtures.installation_dumps import etcdctl, etcdctl_command

pytestmark = pytest.mark.timeout(600)
COMPACTIONS = 10
ROUNDS_MAX = 20


def peers(installation: Installation, zone: str) -> list[list[str]]:
    return [sorted(each["stable"]["peers"]) for each in installation.partitions(zone)]


@pytest.mark.thorough("integration/test_node_scenarios overtakes them by targets")
@pytest.mark.parametrize(
    ("wanted", "statements"),
    [
        (3, ["ALTER ZONE moves SET (REPLICAS 2)", "ALTER ZONE moves SET (REPLICAS 3)"]),
        (2, [f"ALTER ZONE moves SET (REPLICAS {number})" for number in (2, 3, 2)]),
        (1, ["ALTER ZONE moves SET (REPLICAS 3)", "ALTER ZONE moves SET (REPLICAS 1)"]),
    ],
    ids=["S033", "S034", "there and back"],
)
def test_statements_that_overtake_their_moves(
    installation: Installation, wanted: int, statements: list[str]
) -> None:
    """S033, S034, S039, S040: the last one counts; pending and planned are gone in the end."""
    installation.execute("CREATE ZONE moves (PARTITIONS 2, REPLICAS 1)")
    installation.execute("; ".join(statements))

    def rests(partition: dict[str, Any]) -> bool:
        return (
            len(partition["stable"]["peers"]) == wanted
            and not partition["pending"]
            and not partition["planned"]
        )

    wait_for("the last size, and nothing after it", lambda: all(map(rests, installation.partitions("MOVES"))))
    installation.execute("DROP ZONE moves")


def test_a_filter_shrinks_a_zone(installation: Installation) -> None:
    """S041: three replicas, and a filter that one node passes."""
    installation.execute("CREATE ZONE shrunk (PARTITIONS 2, REPLICAS 3)")
    names = {name for group in peers(installation, "SHRUNK") for name in group}
    assert len(names) == 3
    nodes = installation.get("/api/v1/nodes")["nodes"]
    attribute, value = next(iter(nodes[0]["attributes"].items()))
    passing = sorted(each["name"] for each in nodes if each["attributes"].get(attribute) == value)
    installation.execute(f"""ALTER ZONE shrunk SET (NODES FILTER '$[?(@.{attribute} == "{value}")]')""")
    wait_for("the filter", lambda: all(group == passing[:3] for group in peers(installation, "SHRUNK")))
    installation.execute("DROP ZONE shrunk")


@pytest.mark.row("IEP-009")
def test_filter_and_profile_choose_the_nodes_of_a_replicated_zone(installation: Installation) -> None:
    """IEP-009: members are those that match; a node that does not gets none."""
    nodes = installation.get("/api/v1/nodes")["nodes"]
    matching = {each["name"] for each in nodes if each["attributes"].get("region") == "EU"}
    assert matching
    assert len(matching) < len(nodes)
    installation.execute(
        "CREATE ZONE chosen (PARTITIONS 2, REPLICAS ALL, NODES FILTER '$[?(@.region == \"EU\")]') "
        "STORAGE PROFILES ['ssd']"
    )
    for partition in installation.partitions("CHOSEN"):
        assert {*partition["stable"]["peers"], *partition["stable"]["learners"]} == matching
    installation.execute("DROP ZONE chosen")


@contextmanager
def compacting(installation: Installation) -> Iterator[list[int]]:
    """Compacts the metastore's whole history all the time; yields the revisions."""
    ended, revisions = threading.Event(), [0]

    def compact() -> None:
        while not ended.wait(0.05):
            status = etcdctl(installation, "endpoint", "status", "-w", "fields")
            revision = int(next(line for line in status.splitlines() if '"Revision"' in line).split(":")[1])
            command = [*etcdctl_command(installation), "compact", str(revision)]
            if (
                revision > revisions[-1]
                and subprocess.run(command, capture_output=True, check=False).returncode == 0
            ):
                revisions.append(revision)

    thread = threading.Thread(target=compact, name="compaction")
    thread.start()
    try:
        yield revisions
    finally:
        ended.set()
        thread.join(120)


@pytest.mark.thorough("contract/test_metastore reads on after a compaction")
def test_compaction_of_the_metastore_during_moves(installation: Installation) -> None:
    """S042: no history is needed; watches that lose their place read again."""
    installation.execute("CREATE ZONE compacted (PARTITIONS 2, REPLICAS 1)")
    with compacting(installation) as revisions, writing(installation, "COMPACTED") as writer:
        # A compaction needs processes of its own, and the moves may be faster.
        for _ in range(ROUNDS_MAX):
            installation.execute("ALTER ZONE compacted SET (REPLICAS 3)")
            installation.execute("ALTER ZONE compacted SET (REPLICAS 2)")
            assert {len(each) for each in peers(installation, "COMPACTED")} == {2}
            if len(revisions) > COMPACTIONS:
                break
    assert len(revisions) > COMPACTIONS
    assert writer.errors == []
    writer.read_back()
    installation.execute("DROP ZONE compacted")
