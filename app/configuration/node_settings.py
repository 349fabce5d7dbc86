"""A data node's settings as the agent needs them: its name, attributes and ports, and its storage profiles,
with each what keeps its groups."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from app.configuration.settings import Settings, port_range
from catalog.core.names import RESERVED
from catalog.core.visible import hidden_character
from catalog.core.zone import DEFAULT_ENGINE, Node

ENGINE_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")


def profiles_of(texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Names of profiles, and profile -> engine where ``PROFILE=ENGINE`` names one. Raises ValueError."""
    profiles: list[str] = []
    engines: dict[str, str] = {}
    for text in filter(None, map(str.strip, texts)):
        profile, equals, engine = (part.strip() for part in text.partition("="))
        if not profile or (equals and not ENGINE_NAME.fullmatch(engine)) or profile in profiles:
            raise ValueError(f"profiles are PROFILE or PROFILE=ENGINE, each once, not {text!r}")
        profiles.append(profile)
        if engine and engine != DEFAULT_ENGINE:
            engines[profile] = engine
    return tuple(profiles), tuple(sorted(engines.items()))


NODE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")


def node_of(settings: Settings) -> Node:
    """Raises ValueError, saying what would be accepted."""
    name = settings.node_name or ""
    if not NODE_NAME.fullmatch(name) or name in RESERVED:
        raise ValueError(
            f"a node's name is 1 to 63 letters, digits, _ . or -, and neither . nor .., not {name!r}"
        )
    attributes = json.loads(settings.node_attributes)
    if not isinstance(attributes, dict):
        raise ValueError(f'attributes are a JSON object as {{"region": "EU"}}, not {settings.node_attributes}')
    # The filter language reads integer-looking strings as numbers, so strings lose nothing.
    pairs = tuple(sorted((str(key), _text(value)) for key, value in attributes.items()))
    profiles, engines = profiles_of(settings.node_profiles.split(","))
    for text in (*(text for pair in pairs for text in pair), *profiles, settings.node_failure_domain.strip()):
        hidden = hidden_character(text)
        if hidden is not None:
            raise ValueError(f"{text!a} has the character {hidden}, which cannot be seen")
    return Node(
        name,
        pairs,
        profiles,
        settings.node_member_limit,
        settings.node_weight,
        settings.node_failure_domain.strip(),
        engines,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def member_ports(settings: Settings) -> range:
    """The node's own ports: two a member, and one of its store server. Raises ValueError, saying what would be
    accepted."""
    return port_range(settings.node_ports or "", "the members'", "20000-20200")
