"""Words that the SQL editor offers: those of statements, options and views, and none of another database."""

from __future__ import annotations

from app.console.sql_editor import ZONES_MAX, offered_words, zone_words
from app.sql.views.system_views import SYSTEM_VIEWS
from app.sql.views.view_registry import ViewRegistry
from catalog.core.messages import ZoneOption
from parser.queries import Procedure
from parser.to_command import parse_ddl

REGISTRY = ViewRegistry(SYSTEM_VIEWS)


def test_all_of_ours_is_offered_and_nothing_of_others() -> None:
    words = {word.label for word in offered_words(REGISTRY)}
    assert {option.value for option in ZoneOption} <= words
    assert {view.name.lower() for view in SYSTEM_VIEWS} <= words
    assert {column.name.lower() for view in SYSTEM_VIEWS for column in view.columns} <= words
    assert {procedure.value.lower() for procedure in Procedure} <= words
    assert {"CREATE", "ALTER", "DROP", "ZONE", "TABLE", "USER", "ROLE", "GRANT", "REVOKE", "RENAME"} <= words
    assert {"SHOW", "EXPLAIN", "PARTITION", "SELECT", "DEFAULT", "PASSWORD", "OPERATE", "SYSTEM"} <= words
    assert {"'balanced'", "'HIGH_AVAILABILITY'"} <= words
    assert [word for word in ("ASSERTION", "DIAGNOSTICS", "INSERT", "UPDATE", "CHANGE") if word in words] == []


def test_a_column_is_offered_where_its_views_are_named() -> None:
    by_label = {word.label: word for word in offered_words(REGISTRY) if word.views}
    for view in SYSTEM_VIEWS:
        for column in view.columns:
            assert view.name in by_label[column.name.lower()].views


def test_an_option_says_what_it_is() -> None:
    options = [word for word in offered_words(REGISTRY) if word.detail == "option"]
    replicas = next(word for word in options if word.label == "REPLICAS")
    assert replicas.to_json()["info"] == replicas.info != ""


def test_a_zones_name_is_offered_as_statements_write_it() -> None:
    names = ["ORDERS", "seen", "TABLE", 'a "b"', "A B"]
    offered = zone_words(names)
    assert offered == ['"A B"', "ORDERS", '"TABLE"', '"a ""b"""', '"seen"']
    read = [parse_ddl(f"DROP ZONE {name}")[0].name.text for name in offered]
    assert read == sorted(names)
    assert len(zone_words(f"Z{n}" for n in range(ZONES_MAX + 5))) == ZONES_MAX
