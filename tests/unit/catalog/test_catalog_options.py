"""Filter, timers, mode and algorithm: stored and shown by the catalog, refused where the engine cannot act."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import (
    TIMER_OFF,
    ConsistencyMode,
    DistributionAlgorithm,
    LossPolicy,
    Node,
    Strategy,
    Zone,
    ZoneId,
    ZoneIntent,
)
from catalog.core.zone_options import may_use, option_in_the_way
from catalog.filters.json_path import JSON_PATH
from parser.render import render_zone
from tests.unit.catalog.commands import catalog, change, refusal, zone

EVERY_OPTION = (
    "CREATE ZONE z (PARTITIONS 4, REPLICAS ALL, QUORUM SIZE 2, AUTO SCALE UP 5, AUTO SCALE DOWN 60, "
    "NODES FILTER '$[?(@.region == ''EU'')]', DISTRIBUTION ALGORITHM 'balanced', "
    "CONSISTENCY MODE 'HIGH_AVAILABILITY', REBALANCE STRATEGY 'update') STORAGE PROFILES ['default']"
)
NODES = (
    Node("n1", (("region", "EU"), ("tier", "4"))),
    Node("n2", (("region", "EU"),)),
    Node("n3", (("region", "US"),)),
    Node("n4"),
)
STORES = tuple(Node(f"n{n}", profiles=("default", "bulk"), engines=(("bulk", "store"),)) for n in (1, 2, 3))


@pytest.mark.row("IEP-014", "IEP-015", "IEP-030")
def test_every_option_is_stored_and_rendered() -> None:
    """IEP-014, IEP-015, IEP-030: and SHOW CREATE ZONE makes the same zone again."""
    made = zone(EVERY_OPTION, topology=NODES)
    assert made == Zone(
        ZoneId(1), "Z", 4, ALL_REPLICAS, 2, ("default",), 5, 60, "$[?(@.region == 'EU')]",
        ConsistencyMode.HIGH_AVAILABILITY, DistributionAlgorithm.BALANCED, Strategy.UPDATE,
    )  # fmt: skip
    assert render_zone(made) == EVERY_OPTION.replace("CREATE ZONE z", "CREATE ZONE Z")
    plain = zone("CREATE ZONE z")
    assert render_zone(plain) == (
        "CREATE ZONE Z (PARTITIONS 25, REPLICAS 1, AUTO SCALE UP 0, AUTO SCALE DOWN OFF, NODES FILTER '$..*', "
        "DISTRIBUTION ALGORITHM 'rendezvous', CONSISTENCY MODE 'STRONG_CONSISTENCY') "
        "STORAGE PROFILES ['default']"
    )
    assert zone(render_zone(plain)) == plain


@pytest.mark.parametrize(
    ("created", "altered", "before", "after"),
    [
        ("(REBALANCE STRATEGY 'cancel')", "(REPLICAS 2)", Strategy.CANCEL, Strategy.CANCEL),
        ("(REBALANCE STRATEGY ' Update ')", "REBALANCE STRATEGY 'queue'", Strategy.UPDATE, Strategy.QUEUE),
        ("WITH REBALANCE_STRATEGY='update'", "rebalance_strategy='DEFAULT'", Strategy.UPDATE, None),
        ("", "(REPLICAS 2, REBALANCE STRATEGY 'update')", None, Strategy.UPDATE),
        ("(REBALANCE STRATEGY 'default')", "REPLICAS=2", None, None),
    ],
)
def test_a_strategy_of_the_zones_own(
    created: str, altered: str, before: Strategy | None, after: Strategy | None
) -> None:
    """Each form sets it, 'default' takes it away, and nothing else touches it. It goes with the intent."""
    snapshot = catalog(f"CREATE ZONE z {created}")
    assert snapshot.zones[0].strategy is before
    changed = change(f"ALTER ZONE z SET {altered}", snapshot)
    assert changed.after is not None
    assert changed.after.strategy is after
    assert changed.effect["params"].get("rebalance_strategy") == (after.value if after else None)
    for strategy, zone_of in ((before, snapshot.zones[0]), (after, changed.after)):
        encoded = ZoneIntent(3, zone_of).encode()
        assert ZoneIntent.decode(encoded).zone == zone_of
        assert (b'"strategy"' in encoded) is (strategy is not None), "absent where not set, as before it came"


@pytest.mark.parametrize(
    ("option", "kind", "message"),
    [
        (
            "(REBALANCE STRATEGY 'fast')",
            ErrorKind.OPTION_OUT_OF_RANGE,
            "REBALANCE STRATEGY is 'queue', 'update', 'cancel' or 'default', not 'fast'",
        ),
        (
            "WITH REBALANCE_STRATEGY=3",
            ErrorKind.OPTION_TYPE,
            "REBALANCE STRATEGY takes a string, not 3",
        ),
        (
            "(REBALANCE STRATEGY 'queue', REBALANCE STRATEGY 'queue')",
            ErrorKind.OPTION_DUPLICATE,
            "REBALANCE STRATEGY is given twice",
        ),
        (
            "(REBALANCE STRATEGY update)",
            ErrorKind.SYNTAX_ERROR,
            "expected a single-quoted string for REBALANCE STRATEGY, found update",
        ),
    ],
)
def test_a_strategy_that_is_none(option: str, kind: ErrorKind, message: str) -> None:
    found, told = refusal(f"CREATE ZONE z {option}")
    assert found is kind
    assert message in told


@pytest.mark.row("IEP-012")
def test_the_filter_chooses_the_data_nodes() -> None:
    """IEP-012: and with them the derived quorum (decision 1), at CREATE and at ALTER of the filter."""
    made = change("CREATE ZONE z (REPLICAS ALL, NODES FILTER '$.region')", topology=NODES)
    assert (made.data_nodes, made.quorum) == (("n1", "n2", "n3"), 2)
    snapshot = catalog("CREATE ZONE z (REPLICAS ALL)", topology=NODES)
    altered = change("ALTER ZONE z SET (NODES FILTER '$.tier')", snapshot, NODES)
    assert (altered.data_nodes, altered.quorum) == (("n1",), 1)
    kind, message = refusal("CREATE ZONE z (REPLICAS 3, QUORUM SIZE 2, NODES FILTER '$.tier')", topology=NODES)
    assert kind is ErrorKind.QUORUM_EXCEEDS_DATA_NODES
    assert message == "QUORUM SIZE 2 needs 2 data nodes, but 1 data node matches now"


def test_what_is_wrong_with_a_filter() -> None:
    """S167: one that no living node matches is refused, and changes nothing."""
    kind, message = refusal("CREATE ZONE z (NODES FILTER '$[?(@.region = 3)]')", topology=NODES)
    assert kind is ErrorKind.FILTER_INVALID
    assert message == "NODES FILTER is not a JSONPath filter: unexpected token '=' (at character 14)"
    assert refusal("ALTER ZONE z SET (NODES FILTER '$.zone')", catalog("CREATE ZONE z"), NODES) == (
        ErrorKind.FILTER_MATCHES_NO_NODE,
        "none of the 4 live nodes matches the filter $.zone; $..* matches every node",
    )
    for text, kind in (("$..*", ErrorKind.FILTER_MATCHES_NO_NODE), ("$[", ErrorKind.FILTER_INVALID)):
        assert refusal(f"ALTER ZONE z SET (NODES FILTER '{text}')", topology=())[0] is kind


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("$[?(@.region != ''US'')]", "(now: n4)"),
        ("$[?(@.region && @.region != ''US'')]", None),
        ("$[?(@.tier nin [1] && @.region == ''EU'')]", "(now: n2)"),
        ("$[?(@.region == ''EU'')]", None),
        ("$[?(!@.region)]", None),
        ("$[?(@.colour != ''red'')]", "(now: n1, n2, n3, n4)"),
    ],
)
def test_a_negative_comparison_that_matches_nodes_without_the_attribute_warns(
    expression: str, names: str | None
) -> None:
    warnings = change(f"CREATE ZONE z (NODES FILTER '{expression}')", topology=NODES).warnings
    assert [warning.name for warning in warnings] == ["FILTER_MATCHES_MISSING_ATTRIBUTE"] * bool(names)
    assert all((names or "") in warning.message for warning in warnings)


def test_other_warnings() -> None:
    assert change("CREATE ZONE z WITH DISTRIBUTION_ALGORITHM=''").warnings == ()
    assert zone("CREATE ZONE z (DISTRIBUTION ALGORITHM 'Balanced')").algorithm is DistributionAlgorithm.BALANCED
    apart = (Node("n1", profiles=("a",)), Node("n2", profiles=("b",)))
    made = change("CREATE ZONE z STORAGE PROFILES ['a', 'b']", topology=apart)
    assert [warning.name for warning in made.warnings] == ["NO_DATA_NODES"]
    filtered = change("CREATE ZONE z (REPLICAS 3, NODES FILTER '$.tier')", topology=NODES)
    assert [warning.name for warning in filtered.warnings] == [
        "REPLICAS_ABOVE_DATA_NODES",
        "NO_MAJORITY_AFTER_LOSS",
    ]


@pytest.mark.row("IEP-052", "IEP-053")
@pytest.mark.parametrize("replicas", ["3", "ALL"])
def test_timers_are_immediate_up_and_never_down_by_default(replicas: str) -> None:
    """IEP-052, IEP-053: also with REPLICAS ALL."""
    made = change(f"CREATE ZONE z (REPLICAS {replicas})", topology=NODES)
    assert made.after is not None
    assert (made.after.auto_scale_up, made.after.auto_scale_down) == (0, TIMER_OFF)


@pytest.mark.parametrize("mode", ["STRONG_CONSISTENCY", "HIGH_AVAILABILITY"])
def test_options_are_kept_by_a_change_of_others(mode: str) -> None:
    given = (
        f"CREATE ZONE z (AUTO SCALE UP 9, AUTO SCALE DOWN 7, CONSISTENCY MODE '{mode}', "
        "DISTRIBUTION ALGORITHM 'rendezvous')"
    )
    kept = change("ALTER ZONE z SET REPLICAS 2", catalog(given)).after
    assert kept is not None
    assert (kept.auto_scale_up, kept.auto_scale_down, kept.consistency_mode.value) == (9, 7, mode)


@pytest.mark.parametrize(
    "written", ["(DISTRIBUTION ALGORITHM 'balancd')", "WITH DISTRIBUTION_ALGORITHM='balancd'"]
)
def test_an_algorithm_that_does_not_exist_is_refused_with_those_that_do(written: str) -> None:
    with pytest.raises(RefusedError) as refused:
        change(f"CREATE ZONE z {written}")
    assert refused.value.kind is ErrorKind.OPTION_OUT_OF_RANGE
    assert refused.value.message == "DISTRIBUTION ALGORITHM is 'rendezvous' or 'balanced', not 'balancd'"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("(PARTITIONS 99999999999999999999999999)", "not 99999999999999999999999999"),
        ("(REPLICAS 99999999999999999999999999)", "not 99999999999999999999999999"),
        ("(AUTO SCALE UP 99999999999999999999999999)", "not 99999999999999999999999999"),
        ("(REPLICAS 3, QUORUM SIZE 99999999999999999999999999)", "not 99999999999999999999999999"),
        ("WITH PARTITIONS=-99999999999999999999999999", "negative: -99999999999999999999999999"),
        ("WITH PARTITIONS=1e30", "not 1e30"),
        ("WITH REPLICAS=+99999999999999999999.0", "not +99999999999999999999.0"),
        ("(PARTITIONS " + "9" * 5_000 + ")", "not " + "9" * 37 + "..."),
    ],
)
def test_a_number_is_echoed_as_written(options: str, shown: str) -> None:
    with pytest.raises(RefusedError) as refused:
        change(f"CREATE ZONE z {options}")
    assert refused.value.message.endswith(shown)


def test_empty_profiles_between_commas_are_skipped() -> None:
    assert zone("CREATE ZONE z WITH STORAGE_PROFILES='default,, '").storage_profiles == ("default",)


@pytest.mark.parametrize(
    ("created", "altered", "before", "after"),
    [
        ("(PARTITION LOSS POLICY 'IGNORE')", "(REPLICAS 2)", LossPolicy.IGNORE, LossPolicy.IGNORE),
        (
            "(PARTITION LOSS POLICY 'read_only_safe')",
            "PARTITION LOSS POLICY 'READ_WRITE_ALL'",
            LossPolicy.READ_ONLY_SAFE,
            LossPolicy.READ_WRITE_ALL,
        ),
        (
            "WITH PARTITION_LOSS_POLICY='READ_ONLY_ALL', STORAGE_PROFILES='bulk'",
            "partition_loss_policy='default'",
            LossPolicy.READ_ONLY_ALL,
            None,
        ),
        ("", "(PARTITION LOSS POLICY 'READ_WRITE_SAFE')", None, LossPolicy.READ_WRITE_SAFE),
    ],
)
def test_a_loss_policy_of_the_zones_own(
    created: str, altered: str, before: LossPolicy | None, after: LossPolicy | None
) -> None:
    """Each form sets it, 'default' takes it away, nothing else touches it. It goes with the intent."""
    profiles = "" if "PROFILES" in created else "STORAGE PROFILES ['bulk']"
    snapshot = catalog(f"CREATE ZONE z {created} {profiles}", topology=STORES)
    assert snapshot.zones[0].loss_policy is before
    changed = change(f"ALTER ZONE z SET {altered}", snapshot, STORES)
    assert changed.after is not None
    assert changed.after.loss_policy is after
    assert changed.effect["params"].get("partition_loss_policy") == (after.value if after else None)
    for policy, zone_of in ((before, snapshot.zones[0]), (after, changed.after)):
        encoded = ZoneIntent(3, zone_of).encode()
        assert ZoneIntent.decode(encoded).zone == zone_of
        assert (b'"loss_policy"' in encoded) is (policy is not None), "absent where not set, as before it came"


BULK = "STORAGE PROFILES ['bulk']"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "CREATE ZONE z (PARTITION LOSS POLICY 'IGNORE')",
            "the engine etcd of zone Z has no PARTITION LOSS POLICY; accepted: "
            "a storage profile of the engine store, or no such option",
        ),
        (
            "ALTER ZONE kept SET (REPLICAS 2, PARTITION LOSS POLICY 'READ_WRITE_SAFE')",
            "the engine etcd of zone KEPT has no PARTITION LOSS POLICY; accepted: "
            "a storage profile of the engine store, or no such option",
        ),
        (
            f"CREATE ZONE z (CONSISTENCY MODE 'HIGH_AVAILABILITY', QUORUM SIZE 2, REPLICAS 3) {BULK}",
            "the engine store of zone Z has no CONSISTENCY MODE 'HIGH_AVAILABILITY'; accepted: "
            "'STRONG_CONSISTENCY'",
        ),
    ],
)
def test_an_option_that_the_engine_does_not_have_is_refused(sql: str, message: str) -> None:
    snapshot = catalog("CREATE ZONE kept", topology=STORES)
    assert refusal(sql, snapshot, STORES) == (ErrorKind.ENGINE_UNSUPPORTED, message)


@pytest.mark.parametrize(
    "options",
    [
        "PARTITION LOSS POLICY 'READ_ONLY_SAFE'",
        "CONSISTENCY MODE 'STRONG_CONSISTENCY'",
        "REPLICAS 3, QUORUM SIZE 2",
        "REPLICAS ALL",
        "AUTO SCALE DOWN 5, DISTRIBUTION ALGORITHM 'balanced', REBALANCE STRATEGY 'cancel'",
    ],
)
def test_an_option_that_the_engine_has_is_taken(options: str) -> None:
    assert change(f"CREATE ZONE z ({options}) {BULK}", topology=STORES).applied


def test_a_node_whose_engine_lacks_an_option_of_the_zone_is_no_data_node() -> None:
    """The engine of a profile is known once a node has it: until then nothing can be refused."""
    kept = Zone(ZoneId(1), "Z", 4, 1, None, ("bulk",), loss_policy=LossPolicy.IGNORE)
    etcd = Node("n4", profiles=("default", "bulk"))
    assert not may_use(kept, etcd, JSON_PATH)
    assert may_use(kept, STORES[0], JSON_PATH)
    assert option_in_the_way(kept, (etcd,)) == "ENGINE_UNSUPPORTED: PARTITION LOSS POLICY"
    assert option_in_the_way(kept, ()) == ""
    fenced = replace(kept, loss_policy=None, consistency_mode=ConsistencyMode.HIGH_AVAILABILITY)
    assert may_use(fenced, etcd, JSON_PATH)
    assert not may_use(fenced, STORES[0], JSON_PATH)
