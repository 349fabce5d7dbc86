"""One description of a row: what it says is in REST, SQL, the console, the command line and the documents."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

import pytest
from pydantic import TypeAdapter

from app.cli.status import zone_parameters
from app.console.grids import details
from app.contract.columns import Facts, body_of
from app.contract.zones import ZoneBody, zone_row
from app.sql.system_views import SYSTEM_VIEWS
from app.sql.view_registry import view_of
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


@pytest.mark.parametrize("extra", [(), (EXTRA,)], ids=["shipped", "with one more"])
def test_an_option_of_zones_is_shown_wherever_zones_are(extra: tuple[ZoneOptionRow, ...]) -> None:
    options = (*ZONE_OPTIONS, *extra)
    row = zone_row(options)
    facts = Facts(ZONE, VALUES)
    body: Any = body_of(row, facts)
    view = view_of("ZONES", row, lambda _: [facts])
    (cells,) = view.rows(None)
    in_sql = dict(zip((column.name for column in view.columns), cells, strict=True))
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
    view = view_of("ZONES", ZoneBody, lambda _: [facts])
    (cells,) = view.rows(None)
    in_sql = dict(zip((column.name for column in view.columns), cells, strict=True))
    assert (body["replicas"], in_sql["ZONE_REPLICAS"]) == ("ALL", 2_147_483_647)
    assert (body["auto_scale_down"], in_sql["DATA_NODES_AUTO_ADJUST_SCALE_DOWN"]) == ("OFF", 2_147_483_647)
    assert body["quorum_size"] is body["rebalance_strategy"] is in_sql["ZONE_REBALANCE_STRATEGY"] is None
    shown = details(ZoneBody, body)
    assert (shown["Quorum size"], shown["Rebalance strategy"]) == ("derived", "default")
    assert shown["Storage profiles"] == in_sql["ZONE_STORAGE_PROFILES"] == "default, ssd"
    assert "rebalance_strategy" not in zone_parameters(body)
