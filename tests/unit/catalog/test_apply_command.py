"""Changes of the catalog by statements, and refusals in the order in which they are checked."""

from __future__ import annotations

import pytest

from catalog.core.errors import ErrorKind
from catalog.core.quorum import ALL_REPLICAS, consensus_size, effective_replicas
from catalog.core.snapshot import (
    CatalogSnapshot,
    EntryKind,
    StatementWarning,
    ZoneDefaults,
    ZoneEntry,
    apply_command,
)
from catalog.core.zone import Node, Zone, ZoneId
from catalog.filters.json_path import JSON_PATH
from tests.unit.catalog.commands import catalog, change, command, nodes, refusal, zone


@pytest.mark.row("IEP-013")
def test_create_takes_every_default() -> None:
    """IEP-013: one replica unless said otherwise; PARTITIONS from the setting."""
    created = apply_command(
        CatalogSnapshot(), command("CREATE ZONE z"), nodes(3), ZoneDefaults(partitions=7), filters=JSON_PATH
    )
    assert created.after == Zone(ZoneId(1), "Z", 7, 1, None, ("default",))
    assert created.quorum == 1
    assert created.data_nodes == ("n1", "n2", "n3")
    assert created.applied


@pytest.mark.row("IEP-020", "IEP-021")
@pytest.mark.parametrize(("count", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (100, 3)])
def test_derived_quorum(count: int, quorum: int) -> None:
    """IEP-020, IEP-021: the default follows the data nodes. It is not stored as if a statement had named it."""
    created = change("CREATE ZONE z (REPLICAS ALL)", topology=nodes(count))
    assert created.quorum == created.effect["params"]["quorum_size"] == quorum
    assert created.after is not None
    assert created.after.quorum_size is None


@pytest.mark.row("IEP-015", "IEP-016", "IEP-017", "IEP-019", "IEP-029")
@pytest.mark.parametrize(("quorum", "voters"), [(2, 3), (3, 5)])
def test_consensus_size(quorum: int, voters: int) -> None:
    """IEP-015, IEP-016, IEP-017, IEP-019, IEP-029: 2q - 1 of the replicas vote; q is stored and shown."""
    created = change(f"CREATE ZONE z (REPLICAS 7, QUORUM SIZE {quorum})", topology=nodes(10))
    assert created.after is not None
    assert created.after.quorum_size == created.effect["params"]["quorum_size"] == quorum
    assert consensus_size(quorum, created.after.replicas, len(created.data_nodes)) == voters


@pytest.mark.row("IEP-033", "IEP-034")
def test_the_example_of_iep_133() -> None:
    """IEP-033, IEP-034: seven nodes, a replica on each: 3 vote and 4 learn."""
    made = change("CREATE ZONE 'MY_ZONE' WITH REPLICAS = ALL, QUORUM_SIZE = 2", topology=nodes(7))
    assert made.after is not None
    voters = consensus_size(2, made.after.replicas, len(made.data_nodes))
    assert (voters, effective_replicas(made.after.replicas, len(made.data_nodes)) - voters) == (3, 4)


@pytest.mark.row("IEP-022", "IEP-023", "IEP-024", "IEP-025")
@pytest.mark.parametrize(
    ("replicas", "quorum", "kind"),
    [
        ("3", 1, ErrorKind.QUORUM_BELOW_MINIMUM),
        ("5", 4, ErrorKind.QUORUM_ABOVE_MAXIMUM),
        ("5", 3, None),
        ("2", 2, None),
        ("1", 1, None),
        ("ALL", 1, ErrorKind.QUORUM_BELOW_MINIMUM),
        ("ALL", 6, ErrorKind.QUORUM_EXCEEDS_DATA_NODES),
        ("9", 5, None),
        ("11", 6, ErrorKind.QUORUM_EXCEEDS_DATA_NODES),
    ],
)
def test_quorum_bounds(replicas: str, quorum: int, kind: ErrorKind | None) -> None:
    """IEP-022, IEP-023, IEP-024, IEP-025: raised, never clamped, and no zone is made."""
    sql = f"CREATE ZONE z (REPLICAS {replicas}, QUORUM SIZE {quorum})"
    if kind is None:
        assert zone(sql, topology=nodes(5)).quorum_size == quorum
    else:
        assert refusal(sql, topology=nodes(5))[0] is kind


@pytest.mark.row("IEP-022", "IEP-023")
@pytest.mark.parametrize("replicas", range(1, 13))
def test_every_quorum_within_its_bounds_is_accepted(replicas: int) -> None:
    """S175, S176, S179, IEP-022, IEP-023: CREATE and ALTER take each size from min(2, r) to ceil(r / 2), or the
    lower bound where that is more, and no other; without one the default is derived."""
    topology = nodes(20)
    lowest = min(2, replicas)
    highest = max(lowest, (replicas + 1) // 2)
    made = change(f"CREATE ZONE z (REPLICAS {replicas})", topology=topology)
    assert made.quorum == (min(2, replicas) if replicas <= 4 else 3)
    assert consensus_size(made.quorum, replicas, 20) == {1: 1, 2: 2, 3: 3, 4: 3}.get(replicas, 5)
    snapshot = catalog(f"CREATE ZONE z (REPLICAS {replicas})", topology=topology)
    for quorum in range(1, replicas + 3):
        create = f"CREATE ZONE y (REPLICAS {replicas}, QUORUM SIZE {quorum})"
        alter = f"ALTER ZONE z SET QUORUM SIZE {quorum}"
        if lowest <= quorum <= highest:
            assert zone(create, topology=topology).quorum_size == quorum
            assert zone(alter, snapshot, topology).quorum_size == quorum
        else:
            kinds = {ErrorKind.QUORUM_BELOW_MINIMUM, ErrorKind.QUORUM_ABOVE_MAXIMUM}
            assert refusal(create, topology=topology)[0] in kinds
            assert refusal(alter, snapshot, topology)[0] in kinds


@pytest.mark.row("IEP-026")
def test_refusals_of_a_quorum_say_what_would_be_accepted() -> None:
    """IEP-026."""
    assert refusal("CREATE ZONE z (REPLICAS 5, QUORUM SIZE 9)")[1] == (
        "with REPLICAS 5 QUORUM SIZE must be from 2 to 3, not 9"
    )
    assert refusal("CREATE ZONE z (REPLICAS 9, QUORUM SIZE 4)")[1] == (
        "QUORUM SIZE 4 needs 4 data nodes, but 3 data nodes match now"
    )
    snapshot = catalog("CREATE ZONE z (REPLICAS 5, QUORUM SIZE 3)")
    assert refusal("ALTER ZONE z SET REPLICAS 4", snapshot) == (
        ErrorKind.QUORUM_CONFLICTS_WITH_REPLICAS,
        "the zone has QUORUM SIZE 3, and REPLICAS 4 allows 2: "
        "alter both, as in SET (REPLICAS 4, QUORUM SIZE 2)",
    )


@pytest.mark.row("IEP-031")
def test_alter_changes_what_it_names() -> None:
    """IEP-031: ALL to a number and back, and the quorum."""
    snapshot = catalog("CREATE ZONE z (PARTITIONS 4, REPLICAS 3)", topology=nodes(5))
    altered = zone("ALTER ZONE z SET (REPLICAS ALL, QUORUM SIZE 3)", snapshot, nodes(5))
    assert (altered.partitions, altered.replicas, altered.quorum_size) == (4, ALL_REPLICAS, 3)
    back = change("ALTER ZONE z SET (REPLICAS 3, QUORUM SIZE 2)", snapshot, nodes(5))
    assert back.before == snapshot.zone("Z")
    assert back.after is not None
    assert (back.after.replicas, back.after.quorum_size) == (3, 2)


def test_a_derived_quorum_follows_replicas() -> None:
    """Decision 1: only an explicit quorum is stored, so an ALTER of REPLICAS derives it anew."""
    snapshot = catalog("CREATE ZONE z")
    assert change("ALTER ZONE z SET REPLICAS 3", snapshot).quorum == 2


def test_nodes_that_left_do_not_refuse_other_changes() -> None:
    """Decision 3: a stored quorum above what is left is overridden later, and refuses no other statement."""
    snapshot = catalog("CREATE ZONE z (REPLICAS 5, QUORUM SIZE 3)", topology=nodes(5))
    assert zone("ALTER ZONE z SET REPLICAS 6", snapshot, nodes(2)).replicas == 6


@pytest.mark.row("I3-003", "I3-012")
def test_partitions_cannot_be_altered() -> None:
    """I3-003, I3-012: the event exists in the model and is refused with its reason; nothing is written."""
    snapshot = catalog("CREATE ZONE z")
    kind, reason = refusal("ALTER ZONE z SET (REPLICAS 2, PARTITIONS 10)", snapshot)
    assert kind is ErrorKind.PARTITIONS_NOT_ALTERABLE
    assert reason == "the number of partitions is fixed when a zone is created; nothing was changed"
    assert refusal("ALTER ZONE IF EXISTS ghost SET PARTITIONS=2")[0] is ErrorKind.PARTITIONS_NOT_ALTERABLE


def test_the_same_again_is_told_and_makes_no_version() -> None:
    """Decision 12: what touches no parameter writes nothing."""
    snapshot = catalog("CREATE ZONE z (REPLICAS 3)")
    again = change("ALTER ZONE z SET REPLICAS 3", snapshot)
    assert not again.applied
    assert [warning.name for warning in again.warnings] == ["NOTHING_CHANGED"]
    assert again.entries == ()
    assert snapshot.after(again.entries) is snapshot


def zone_named(snapshot: CatalogSnapshot, name: str) -> Zone:
    found = snapshot.zone(name)
    assert found
    return found


def test_drop_keeps_the_last_parameters_and_ids_are_never_used_again() -> None:
    snapshot = catalog("CREATE ZONE a (REPLICAS 2)", "CREATE ZONE b")
    (entry,) = change("DROP ZONE a", snapshot).entries
    assert entry == ZoneEntry(EntryKind.DROPPED, zone_named(snapshot, "A"))
    emptied = catalog("CREATE ZONE a", "CREATE ZONE b", "DROP ZONE b", "DROP ZONE a")
    assert (emptied.version, emptied.zones, emptied.next_zone_id) == (4, (), 3)
    assert zone("CREATE ZONE a", emptied).zone_id == 3


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE ZONE IF NOT EXISTS z (REPLICAS 2)",
        "ALTER ZONE IF EXISTS y SET REPLICAS 2",
        "DROP ZONE IF EXISTS y",
    ],
)
def test_if_exists_does_nothing_and_says_so(sql: str) -> None:
    nothing = change(sql, catalog("CREATE ZONE z"))
    assert (nothing.applied, nothing.entries, nothing.effect) == (False, (), {"op": "noop"})


@pytest.mark.row("IEP-032")
@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ('CREATE ZONE "  " (REPLICAS 0, REPLICAS 0)', ErrorKind.NAME_INVALID),
        (f"DROP ZONE IF EXISTS {'z' * 129}", ErrorKind.NAME_TOO_LONG),
        ("CREATE ZONE z WITH REPLICAS=-1, REPLICAS=1, STORAGE_PROFILES='no'", ErrorKind.OPTION_DUPLICATE),
        ("CREATE ZONE z WITH REPLICAS=-1, STORAGE_PROFILES='no'", ErrorKind.OPTION_OUT_OF_RANGE),
        ("CREATE ZONE z WITH QUORUM_SIZE=2.5, STORAGE_PROFILES='no'", ErrorKind.OPTION_TYPE),
        ("CREATE ZONE z WITH REPLICAS=1, STORAGE_PROFILES=1", ErrorKind.OPTION_TYPE),
        ("CREATE ZONE z WITH STORAGE_PROFILES=' ,, '", ErrorKind.STORAGE_PROFILES_EMPTY),
        ("CREATE ZONE z$1 WITH BACKUPS=1", ErrorKind.NAME_INVALID),
        ("CREATE ZONE z WITH REPLICAS=1, REPLICAS=2, BACKUPS=1", ErrorKind.OPTION_UNKNOWN),
        ("CREATE ZONE z (AUTO SCALE OFF, AUTO SCALE UP 5)", ErrorKind.OPTION_DUPLICATE),
        ("CREATE ZONE z WITH DATA_NODES_FILTER=1, REPLICAS=0", ErrorKind.OPTION_TYPE),
        (
            "CREATE ZONE z WITH CONSISTENCY_MODE=' x', STORAGE_PROFILES='no'",
            ErrorKind.OPTION_OUT_OF_RANGE,
        ),
        (
            "CREATE ZONE z (NODES FILTER '$[') STORAGE PROFILES ['no']",
            ErrorKind.STORAGE_PROFILE_UNKNOWN,
        ),
        ("CREATE ZONE z (NODES FILTER 'not a path', REPLICAS 0)", ErrorKind.FILTER_INVALID),
        ("CREATE ZONE z (NODES FILTER '$.region', REPLICAS 0)", ErrorKind.FILTER_MATCHES_NO_NODE),
        ("CREATE ZONE IF NOT EXISTS z (NODES FILTER '$.region')", ErrorKind.FILTER_MATCHES_NO_NODE),
        ("ALTER ZONE IF EXISTS ghost SET (NODES FILTER '$[')", ErrorKind.FILTER_INVALID),
        ("CREATE ZONE z (AUTO SCALE UP 2147483648)", ErrorKind.OPTION_OUT_OF_RANGE),
        ("CREATE ZONE z WITH DATA_NODES_AUTO_ADJUST_SCALE_DOWN=-1", ErrorKind.OPTION_OUT_OF_RANGE),
        ("ALTER ZONE z SET (CONSISTENCY MODE 'x')", ErrorKind.OPTION_NOT_ALTERABLE),
        ("ALTER ZONE z SET STORAGE_PROFILES='default'", ErrorKind.OPTION_NOT_ALTERABLE),
        ("CREATE ZONE z (REPLICAS 0) STORAGE PROFILES ['no']", ErrorKind.STORAGE_PROFILE_UNKNOWN),
        ("CREATE ZONE z (REPLICAS 0, QUORUM SIZE 9)", ErrorKind.OPTION_OUT_OF_RANGE),
        ("CREATE ZONE z (REPLICAS 2147483648)", ErrorKind.OPTION_OUT_OF_RANGE),
        ("CREATE ZONE IF NOT EXISTS z (PARTITIONS 65001)", ErrorKind.OPTION_OUT_OF_RANGE),
        ("CREATE ZONE IF NOT EXISTS z (QUORUM SIZE 2)", ErrorKind.QUORUM_ABOVE_MAXIMUM),
        ("CREATE ZONE z (REPLICAS 9, QUORUM SIZE 5)", ErrorKind.ZONE_ALREADY_EXISTS),
        ("ALTER ZONE y SET (QUORUM SIZE 9)", ErrorKind.ZONE_NOT_FOUND),
        ("ALTER ZONE z SET (REPLICAS 9, QUORUM SIZE 5)", ErrorKind.QUORUM_EXCEEDS_DATA_NODES),
        ('DROP ZONE "z"', ErrorKind.ZONE_NOT_FOUND),
    ],
)
def test_the_first_refusal_in_the_order_of_checks(sql: str, kind: ErrorKind) -> None:
    """IEP-032 among them: a quorum of another type than int."""
    assert refusal(sql, catalog("CREATE ZONE z"))[0] is kind


@pytest.mark.row("IEP-012")
def test_data_nodes_hold_all_profiles() -> None:
    """IEP-012: profiles decide which live nodes a zone uses, and with them the derived quorum."""
    topology = (
        Node("a", profiles=("fast", "slow")),
        Node("b", profiles=("fast",)),
        Node("c", profiles=("fast", "slow")),
    )
    sql = "CREATE ZONE z (REPLICAS ALL) STORAGE PROFILES ['slow', 'fast']"
    assert change(sql, topology=topology).data_nodes == ("a", "c")
    assert refusal("CREATE ZONE z", topology=topology) == (
        ErrorKind.STORAGE_PROFILE_UNKNOWN,
        "no live node has the storage profile 'default'; they have fast, slow",
    )
    assert "no node is alive" in refusal("CREATE ZONE z", topology=())[1]


def test_more_replicas_than_nodes_is_a_warning() -> None:
    (warning,) = change("CREATE ZONE z (REPLICAS 5)").warnings
    assert warning == StatementWarning(
        "REPLICAS_ABOVE_DATA_NODES",
        "REPLICAS 5, but 3 data nodes match now: each partition has 3 replicas until more nodes join",
    )
    assert change("CREATE ZONE z (REPLICAS ALL)").warnings == ()


STORED_QUORUM = "CREATE ZONE z (REPLICAS 5, QUORUM SIZE 3)"
REGIONS = tuple(Node(f"n{n}", (("region", "EU" if n < 3 else "US"),)) for n in range(1, 6))


def test_an_alter_may_not_make_the_stored_quorum_impossible() -> None:
    """Refused as CREATE refuses it, with the same code; one that is impossible already refuses nothing else."""
    before = catalog(STORED_QUORUM, topology=REGIONS)
    two = "ALTER ZONE z SET (NODES FILTER '$[?(@.region == ''EU'')]')"
    kind, message = refusal(two, before, REGIONS)
    assert kind is ErrorKind.QUORUM_EXCEEDS_DATA_NODES
    assert "2 data nodes match then and 5 now" in message
    assert zone(f"{two[:-1]}, REPLICAS 3, QUORUM SIZE 2)", before, REGIONS).quorum_size == 2
    assert zone("ALTER ZONE z SET (NODES FILTER '$[?(@.region == ''US'')]')", before, REGIONS).quorum_size == 3
    # Nodes have gone: what is about something else, or brings no fewer, goes on.
    left = REGIONS[:2]
    assert zone("ALTER ZONE z SET (AUTO SCALE DOWN 5)", before, left).auto_scale_down == 5
    assert zone(two, before, left).quorum_size == 3
    assert refusal("ALTER ZONE z SET (NODES FILTER '$[?(@.region == ''US'')]')", before, left[:1])[0] is (
        ErrorKind.FILTER_MATCHES_NO_NODE
    )


@pytest.mark.parametrize(
    ("created", "statement", "names"),
    [
        ("", "CREATE ZONE z", []),
        ("", "CREATE ZONE z (REPLICAS 3)", []),
        ("", "CREATE ZONE z (REPLICAS 2)", ["NO_MAJORITY_AFTER_LOSS"]),
        ("", "CREATE ZONE z (REPLICAS 9)", ["REPLICAS_ABOVE_DATA_NODES"]),
        ("", "CREATE ZONE z (REPLICAS 3, NODES FILTER '{eu}')", ["REPLICAS_ABOVE_DATA_NODES", "LOSS"]),
        ("REPLICAS 3", "ALTER ZONE z SET (NODES FILTER '{eu}')", ["REPLICAS_ABOVE_DATA_NODES", "LOSS"]),
        ("REPLICAS ALL", "ALTER ZONE z SET (NODES FILTER '{eu}')", ["NO_MAJORITY_AFTER_LOSS"]),
        ("REPLICAS 3", "ALTER ZONE z SET (REPLICAS 1)", ["NO_MAJORITY_AFTER_LOSS"]),
        ("REPLICAS 3", "ALTER ZONE z SET (AUTO SCALE UP 3)", []),
        ("REPLICAS 1", "ALTER ZONE z SET (NODES FILTER '{eu}')", []),
        ("REPLICAS 1", "ALTER ZONE z SET (REPLICAS 5)", []),
    ],
)
def test_what_leaves_too_few_replicas_warns(created: str, statement: str, names: list[str]) -> None:
    """Fewer data nodes than replicas; and no majority after the loss of one, unless one replica is all that was
    ever asked for."""
    before = catalog(f"CREATE ZONE z ({created})", topology=REGIONS) if created else None
    sql = statement.replace("{eu}", "$[?(@.region == ''EU'')]")
    warnings = [warning.name for warning in change(sql, before, REGIONS).warnings]
    assert warnings == [{"LOSS": "NO_MAJORITY_AFTER_LOSS"}.get(name, name) for name in names]


def test_a_zone_of_store_servers_needs_no_majority() -> None:
    """Each partition is served by one owner that is in sync, so that two replicas bring no warning."""
    stored = tuple(Node(f"n{n}", engines=(("default", "store"),)) for n in range(1, 4))
    assert change("CREATE ZONE z (REPLICAS 2)", topology=stored).warnings == ()
