"""Every row of the tables of limits and of zone options is shown wherever options are: API, help, what commands
print, statements and documents. The console's form is looked at in ``tests/console``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.api.rebalance import LimitsBody, LimitsChange
from app.cli.limits import print_limits
from app.cli.main import main
from app.cli.options import OutputFormat
from app.configuration.settings import Settings
from app.sql.views.system_views import SYSTEM_VIEWS
from catalog.core.messages import ZoneOption
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import STORE_ENGINE, Node, Zone, ZoneId
from catalog.core.zone_options import ZONE_OPTIONS, OptionKind, ZoneOptionRow, option_text, value_of
from parser.render import render_zone
from parser.rules import NEW_FORM
from rebalance.core.admission.limit_options import LIMIT_OPTIONS, LimitKind, LimitOption, Window
from rebalance.core.admission.move_admission import Limits
from scripts.option_docs import pages
from tests.unit.catalog.commands import change, nodes

ROOT = Path(__file__).parents[2]
NUMBERS = [option for option in LIMIT_OPTIONS if option.is_number]
limits = pytest.mark.parametrize("option", LIMIT_OPTIONS, ids=lambda option: option.name)
zone_options = pytest.mark.parametrize("row", ZONE_OPTIONS, ids=lambda row: row.name)


def changed_value(option: LimitOption) -> Any:
    """One that the limit does not have by default."""
    if option.kind is LimitKind.SWITCH:
        return not option.unset
    return (Window.parse("22:00-04:00"),) if option.kind is LimitKind.WINDOWS else 7


def written(value: Any) -> Any:
    """Value of an option as the API has it: windows as texts."""
    return [str(window) for window in value] if isinstance(value, tuple) else value


@limits
def test_each_limit_is_in_the_api(option: LimitOption) -> None:
    for model in (LimitsBody, LimitsChange):
        schema = model.model_json_schema()["properties"][option.name]
        assert option.text in str(schema), schema
    if option.is_number:
        (number,) = [each for each in schema["anyOf"] if each["type"] == "integer"]
        assert (number.get("minimum"), number["maximum"]) == (option.lowest, option.highest)


@limits
def test_each_limit_is_in_the_help(
    option: LimitOption, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The help gives each limit's flag, its bounds and its default."""
    monkeypatch.setenv("TERMINAL_WIDTH", "400")
    assert main(["rebalance", "limits", "--help"]) == 0
    words = capsys.readouterr().out.split()
    assert set(option.flag.split("/")) <= set(words)
    told = " ".join(words)
    assert (
        f"{option.text[1:]} ({f'{option.accepted}; ' if option.accepted else ''}default: {option.otherwise})"
        in told
    )


@limits
def test_each_limit_that_is_set_is_printed(option: LimitOption, capsys: pytest.CaptureFixture[str]) -> None:
    body: dict[str, Any] = {row.name: row.unset for row in LIMIT_OPTIONS}
    body |= {"pause": None, "zone_pauses": [], option.name: written(changed_value(option))}
    print_limits(body, OutputFormat.TABLE)
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert option.name.removesuffix("s" if option.kind is LimitKind.WINDOWS else "") in names


@limits
def test_each_limit_is_stored(option: LimitOption) -> None:
    stored = Limits(**{option.name: changed_value(option)})
    assert Limits.decode(stored.encode()) == stored != Limits()
    assert option.name.encode() in stored.encode()


@pytest.mark.parametrize(
    "option", [option for option in LIMIT_OPTIONS if option.is_number], ids=lambda o: o.name
)
def test_no_limit_is_below_1(option: LimitOption) -> None:
    with pytest.raises(ValueError, match=option.name):
        Limits(**{option.name: 0})


@zone_options
def test_each_option_is_in_both_forms_and_in_what_is_shown(row: ZoneOptionRow) -> None:
    zone = Zone(ZoneId(1), "Z", 8, 3, 2, ("default",))
    value = value_of(zone, row)
    assert (value is None) == (row.none_word == "default"), (
        "of a zone that says everything but strategy and loss policy"
    )
    assert option_text(row, value)
    assert (f" {row.option.value} " in f" {render_zone(zone)}".replace("(", "( ")) == (value is not None)
    assert (row.grammar in NEW_FORM) == (row.kind is not OptionKind.NAMES)
    assert row.key not in NEW_FORM or row.key == row.option.value


@zone_options
def test_each_option_can_be_given_by_its_key(row: ZoneOptionRow) -> None:
    values = {"nodes_filter": "'$..*'", "storage_profiles": "'default'", "quorum_size": "1"}
    value = f"'{row.choice_names[0]}'" if row.choices else values.get(row.field, "1")
    is_of_stores = row.option is ZoneOption.PARTITION_LOSS_POLICY
    store = Node("n1", engines=(("default", STORE_ENGINE),))
    topology = (store,) if is_of_stores else nodes(3)
    made = change(f"CREATE ZONE z WITH {row.key}={value}", CatalogSnapshot(), topology).after
    assert made is not None
    assert option_text(row, value_of(made, row)).strip() == value.strip("'")


def test_the_documents_are_as_the_tables() -> None:
    """``python scripts/option_docs.py`` writes them."""
    assert [path.name for path, text in pages().items() if path.read_text() != text] == []
    for name, options in (
        ("limits.md", [option.name for option in LIMIT_OPTIONS]),
        ("zone-options.md", [row.option.value for row in ZONE_OPTIONS]),
        ("settings.md", [f"ZONEKEEPER_{name.upper()}" for name in Settings.model_fields]),
        ("views.md", [column.name for view in SYSTEM_VIEWS for column in view.columns]),
    ):
        text = (ROOT / "docs" / name).read_text()
        assert [option for option in options if f"| `{option}` |" not in text] == []
