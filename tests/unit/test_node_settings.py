"""Settings that a node may give of itself when it registers."""

from __future__ import annotations

import json

import pytest

from app.configuration.node_settings import node_of
from app.configuration.settings import Settings


def settings(**of_node: str) -> Settings:
    return Settings(**{"node_name": "n1", **of_node})


def test_texts_of_any_script() -> None:
    node = node_of(settings(node_attributes=json.dumps({"région": "東京 1"}), node_profiles="default,schnell"))
    assert node.attributes == (("région", "東京 1"),)
    assert node.profiles == ("default", "schnell")


@pytest.mark.parametrize("hidden", ["\n", "\x1b", "\u202e", "\u200b"])
@pytest.mark.parametrize("place", ["name", "attribute", "value", "profile", "domain"])
def test_what_cannot_be_seen_is_refused(place: str, hidden: str) -> None:
    text = f"a{hidden}b"
    given = {
        "name": {"node_name": text},
        "attribute": {"node_attributes": json.dumps({text: "x"})},
        "value": {"node_attributes": json.dumps({"x": text})},
        "profile": {"node_profiles": text},
        "domain": {"node_failure_domain": text},
    }[place]
    with pytest.raises(ValueError, match=r"cannot be seen|1 to 63 letters"):
        node_of(settings(**given))


@pytest.mark.parametrize("name", [".", ".."])
def test_folders_are_no_nodes(name: str) -> None:
    with pytest.raises(ValueError, match="neither"):
        node_of(settings(node_name=name))
