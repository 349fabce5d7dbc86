"""NODES FILTER: outcomes of the Java library, and what keeps a bad filter from doing harm."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from catalog.core.zone import Node
from catalog.core.zone_options import FilterError
from catalog.filters.json_path import FILTER_CHARS_MAX, JSON_PATH

DATA = Path(__file__).parents[2] / "data" / "nodes_filters.jsonl"
CASES = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
US = (("region", "US"), ("storage", "SSD"), ("tier", "10"))
NODES = {
    "no_attrs": Node("a"),
    "us_ssd_tier10": Node("b", US),
    "eu_hdd": Node("c", (("region", "EU"), ("storage", "HDD"))),
}


def outcome(expression: str, node: Node) -> bool | None:
    """None: not a filter."""
    try:
        return JSON_PATH.matches(expression, node)
    except FilterError:
        return None


@pytest.mark.row("IEP-012")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["filter"])
def test_the_java_library_and_ours_agree(case: dict[str, Any]) -> None:
    """IEP-012, S174. Where that one throws, the text is not a filter."""
    for name, node in NODES.items():
        expected = case[name] if isinstance(case[name], bool) else None
        assert outcome(case["filter"], node) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$[?(@.tier == 10.0)]", True),
        ("$[?(@.tier === '10')]", False),
        ("$[?(@.tier !== '10')]", True),
        ("$[?(@.tier == '010')]", True),
        ("$[?(@.region == 'us' || @.tier <= 10)]", True),
        ("$[?(@.tier in ['10', 11])]", True),
        ("$[?(@.tier NIN [1, 2.5, null, true])]", True),
        ("$[?(@.tier nin 'US')]", False),
        ("$[?(@.tier =~ /1./)]", True),
        ("$[?(@.region =~ /S/)]", False),
        ("$[?(@.region =~ 'US')]", False),
        ("$[?(@.region contains 'S')]", True),
        ("$[?(@.region size 2)]", True),
        ("$[?(@.region empty false)]", True),
        ("$[?(@.region subsetof ['US'])]", False),
        ("$[?(@.missing == null)]", False),
        ("$[?(@.missing != null)]", True),
        ("$[?(@.missing == @.absent)]", False),
        ("$[?(!(@.region == 'EU') && @.tier)]", True),
        ("$[?($.region == 'US')][?(@.tier > 9)].storage", True),
        ("$..[?(@.region == 'US')]", True),
        ("$.region.deeper", False),
        ("$['region','nothing']", True),
        ("  region  ", True),
        ("*", True),
        ("$[?(@.tier > 1e999999999)]", False),
        ("$[?(@.region == 'U\\u0053')]", True),
        ("$region", None),
        ("$[?@.region]", None),
        ("$[?(@.a) && (@.b)]", None),
        ("$[?(@.a == 'x' == 'y')]", None),
        ("$[?(!@.region == 'US')]", None),
        ("$[?('a')]", None),
        ("$[?(true)]", None),
        ("$[?(@.region == US)]", None),
        ("$[?(@.region == /US/)]", None),
        ("$[?(@.region =~ /(?=U)/)]", None),
        ("$[?(@.region =~ /U/x)]", None),
        ("$[?(@.a == 1e99999999999999999999)]", None),
        ("$.region | $.tier", None),
        ("$.region.length()", None),
        ("$[?(@.a and @.b)]", None),
        ("$ .region", None),
        ("$[?(@.a), ?(@.b)]", None),
        ("$..", None),
        ("", None),
    ],
)
def test_the_language(expression: str, expected: bool | None) -> None:
    assert outcome(expression, Node("n", US)) is expected


def test_large_integers_stay_text_and_signs_count() -> None:
    node = Node("n", (("a", "+7"), ("b", "9223372036854775808"), ("c", "-9223372036854775808"), ("d", "7.0")))
    assert JSON_PATH.matches("$[?(@.a > 6 && @.c < 0)]", node)
    assert not JSON_PATH.matches("$[?(@.b > 6)]", node)
    assert not JSON_PATH.matches("$[?(@.d > 6)]", node)


@pytest.mark.parametrize(
    "expression",
    [
        "$" + ".a" * FILTER_CHARS_MAX,
        "$[?(" + "!" * 200 + "(@.a))]",
        "$[?(" + "(" * 200 + "@.a" + ")" * 200 + ")]",
        "$[?(@.a in [" + "[" * 200 + "])]",
        "$" + "[?(@" * 100,
    ],
)
def test_length_and_nesting_are_bounded(expression: str) -> None:
    with pytest.raises(FilterError):
        JSON_PATH.matches(expression, Node("n"))


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*)*(.*)*(.*)*b", "a?" * 60 + "a" * 60])
def test_no_regular_expression_takes_long(pattern: str) -> None:
    """Each of these takes a backtracking engine longer than anybody waits."""
    node = Node("n", (("name", "a" * 5000 + "!"),))
    started = time.process_time()
    assert not JSON_PATH.matches(f"$[?(@.name =~ /{pattern}/)]", node)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("expression", "attributes"),
    [
        ("$..*", ()),
        ("$[?(@.a == 1)]", ()),
        ("$[?(@.a != 1 && @.b == 2)]", ("a",)),
        ("$[?(!(@.a == 1 || @['b'] != 2))]", ("a",)),
        ("$[?(@.a nin [1] || @.c.d !== 3)]", ("a", "c")),
        ("$[?(!@.a)]", ()),
    ],
)
def test_negative_comparisons_are_found(expression: str, attributes: tuple[str, ...]) -> None:
    assert JSON_PATH.negated_attributes(expression) == attributes
