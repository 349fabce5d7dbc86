"""One description of a row: what it says is in REST, SQL, the console, the command line and the documents."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from pydantic import TypeAdapter
from typing_extensions import is_typeddict

import app.contract
from app.cli.output import table_columns
from app.cli.status import zone_parameters
from app.console.fragments import titles
from app.console.grids import details, grid_columns
from app.contract.columns import Facts, body_of, sql_columns, without_sums
from app.contract.nodes import DrainBody, LossBody, NodeBody
from app.contract.operations import RememberedOperation
from app.contract.zones import ZoneBody, zone_row
from app.sql.views.system_views import SYSTEM_VIEWS
from app.sql.views.view_registry import SystemView, view_of
from app.views.operation_views import OperationViews
from catalog.core.messages import ZoneOption
from catalog.core.zone import (
    ConsistencyMode,
    DistributionAlgorithm,
    LossPolicy,
    Strategy,
    Zone,
    ZoneId,
)
from catalog.core.zone_changes import zone_params
from catalog.core.zone_options import ZONE_OPTIONS, OptionKind, ZoneOptionRow
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.moves.drain import Drain
from rebalance.core.operations.operation import Operation, OperationKind


class _Later(Enum):
    COLOUR = "LIFE COLOUR"


EXTRA = ZoneOptionRow(_Later.COLOUR, OptionKind.TEXT, "an option of a later build", "none", field="life")
ZONE = Zone(
    ZoneId(7),
    "ORDERS",
    partitions=8,
    replicas=3,
    quorum_size=2,
    storage_profiles=("default", "ssd"),
    consistency_mode=ConsistencyMode.HIGH_AVAILABILITY,
    algorithm=DistributionAlgorithm.BALANCED,
    strategy=Strategy.CANCEL,
    loss_policy=LossPolicy.READ_ONLY_SAFE,
    life="green",
)
VALUES = {
    "voters": 3,
    "learners": 0,
    "data_nodes": ("n1",),
    "is_default": False,
    "zone_state": "ACTIVE",
    "catalog_version": 4,
}


def shown_in_sql(row: type, facts: Facts) -> dict[str, Any]:
    view = view_of("ANY", row, lambda _: [facts])
    (cells,) = view.rows(None)
    return dict(zip((column.name for column in view.columns), cells, strict=True))


def described() -> dict[tuple[tuple[str, str], ...], type]:
    """Every row of the contract by the columns that it has in SQL."""
    modules = [import_module(f"app.contract.{each.name}") for each in iter_modules(app.contract.__path__)]
    rows = [each for module in modules for each in vars(module).values() if is_typeddict(each)]
    return {tuple((sql, one.sql_kind) for sql, one in sql_columns(row).items()): row for row in rows}


@pytest.mark.parametrize("view", SYSTEM_VIEWS, ids=lambda view: view.name)
def test_the_columns_of_each_view_are_those_of_a_row(view: SystemView) -> None:
    row = described()[tuple((column.name, column.type.value) for column in view.columns)]
    assert {column.comment for column in view.columns} == {one.about.text for one in sql_columns(row).values()}
    assert [column.sums for column in view.columns] == [one.about.sums for one in sql_columns(row).values()]


@pytest.mark.parametrize("extra", [(), (EXTRA,)], ids=["shipped", "with one more"])
def test_an_option_of_zones_is_shown_wherever_zones_are(extra: tuple[ZoneOptionRow, ...]) -> None:
    options = (*ZONE_OPTIONS, *extra)
    row = zone_row(options)
    facts = Facts(ZONE, VALUES)
    body: Any = body_of(row, facts)
    in_sql = shown_in_sql(row, facts)
    schema = TypeAdapter(row).json_schema()["properties"]
    detail, of_statement = details(row, body), zone_params(ZONE, 2, options)
    for option in options:
        name = option.name.lower()
        assert schema[name]["description"]
        assert in_sql[option.old_key or f"ZONE_{option.name}"] is not None
        assert detail[name.replace("_", " ").capitalize()]
        assert f"{name}=" in zone_parameters(body, row)
        assert name in of_statement
    assert TypeAdapter(row).validate_python(body) == body
    assert in_sql["ZONE_DISTRIBUTION_ALGORITHM"] == body["distribution_algorithm"] == "balanced"
    assert ("life_colour" in body) == bool(extra)
    if extra:
        assert in_sql["ZONE_LIFE_COLOUR"] == detail["Life colour"] == of_statement["life_colour"] == "green"


def test_every_option_has_its_column_in_the_shipped_view_and_schema() -> None:
    (zones,) = (view for view in SYSTEM_VIEWS if view.name == "ZONES")
    names = {column.name for column in zones.columns}
    assert {option.old_key or f"ZONE_{option.name}" for option in ZONE_OPTIONS} <= names
    schema = TypeAdapter(ZoneBody).json_schema()
    assert {option.name.lower() for option in ZONE_OPTIONS} <= set(schema["properties"])
    assert len(ZONE_OPTIONS) == len(ZoneOption)


def test_words_stand_for_numbers_in_rest_and_not_in_sql() -> None:
    everywhere = replace(ZONE, replicas=2_147_483_647, quorum_size=None, strategy=None)
    facts = Facts(everywhere, VALUES)
    body: Any = body_of(ZoneBody, facts)
    in_sql = shown_in_sql(ZoneBody, facts)
    assert (body["replicas"], in_sql["ZONE_REPLICAS"]) == ("ALL", 2_147_483_647)
    assert (body["auto_scale_down"], in_sql["DATA_NODES_AUTO_ADJUST_SCALE_DOWN"]) == ("OFF", 2_147_483_647)
    assert body["quorum_size"] is body["rebalance_strategy"] is in_sql["ZONE_REBALANCE_STRATEGY"] is None
    shown = details(ZoneBody, body)
    assert (shown["Quorum size"], shown["Rebalance strategy"]) == ("derived", "default")
    assert shown["Storage profiles"] == in_sql["ZONE_STORAGE_PROFILES"] == "default, ssd"
    assert "rebalance_strategy" not in zone_parameters(body)


def test_a_node_of_which_nothing_is_known_has_empty_fields() -> None:
    held = {"name": "n1", "alive": False, "members": 1, "copies": 2}
    drain = body_of(DrainBody, Facts(Drain("anna", "disks", 0), {"state": "DRAINING"}))
    facts = Facts(None, {**held, "drain": drain})
    body = body_of(NodeBody, facts)
    assert (body["attributes"], body["profiles"], body["weight"], body["pid"]) == ({}, [], None, None)
    assert drain == {"state": "DRAINING", "by": "anna", "reason": "disks", "since": "1970-01-01T00:00:00Z"}
    in_sql = shown_in_sql(NodeBody, facts)
    assert (in_sql["ATTRIBUTES"], in_sql["STORAGE_PROFILES"], in_sql["DRAIN_STATE"]) == (None, None, "DRAINING")
    of_some_zones = without_sums(NodeBody, body)
    assert (of_some_zones["members"], of_some_zones["copies"], of_some_zones["name"]) == (None, None, "n1")
    (nodes,) = (view for view in SYSTEM_VIEWS if view.name == "NODES")
    assert [each.name for each in nodes.columns if each.sums] == ["MEMBERS", "STORE_COPIES", "DRAIN_STATE"]


def test_an_operation_is_told_in_seconds_by_rest_and_in_milliseconds_by_sql() -> None:
    operation = Operation(OperationKind.ALTER_ZONE, ZoneId(3), "ORDERS", 1834, 5, 1_700_000_000_123, moves=4)
    facts = OperationViews.facts(operation, KeyValue("key", b"", 7, 9, 2), 1_700_000_000_500)
    body = body_of(RememberedOperation, facts)
    in_sql = shown_in_sql(RememberedOperation, facts)
    assert (body["started"], in_sql["STARTED_AT"]) == ("2023-11-14T22:13:20Z", 1_700_000_000_123)
    assert (
        body["by"] is body["statement"] is body["ended"] is in_sql["REQUESTED_BY"] is in_sql["ENDED_AT"] is None
    )
    assert (in_sql["PARTITIONS"], in_sql["BYTES_COPIED"], in_sql["HISTORY"]) == (0, 0, "[]")
    assert in_sql["PARTITIONS_TO_MOVE"] == body["partitions_to_move"] == 4
    assert body["target_revision"] == in_sql["TARGET_REVISION"]
    assert list(body) == list(TypeAdapter(RememberedOperation).json_schema()["properties"])


def test_grids_and_tables_have_the_titles_of_the_row() -> None:
    grid = grid_columns(NodeBody, "name", "member_limit", "failure_domain")
    assert [(each["field"], each["headerName"]) for each in grid] == [
        ("name", "Node"),
        ("member_limit", "Limit"),
        ("failure_domain", "Failure domain"),
    ]
    assert [each.get("type") for each in grid] == [None, "rightAligned", None]
    table = table_columns(NodeBody, "name", "profiles", "held", held=lambda node: node["members"])
    body = {"name": "n1", "profiles": ["default", "ssd"], "members": 3}
    cells = {title: cell(body) for title, cell in table.items() if callable(cell)}
    assert cells == {"node": "n1", "storage profiles": "default, ssd", "held": 3}
    lost = table_columns(LossBody, "partition", "loss", "detail")
    assert list(lost) == [title.lower() for title in titles("LossBody", "partition", "loss", "detail")]
