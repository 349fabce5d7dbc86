"""A data node's settings as the agent needs them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from app.settings import Settings
from catalog.core.zone import DEFAULT_ENGINE, Node

NODE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
ENGINE_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")


def node_of(settings: Settings) -> Node:
    """Raises ValueError, saying what would be accepted."""
    name = settings.node_name or ""
    if not NODE_NAME.fullmatch(name):
        raise ValueError(f"a node's name is 1 to 63 letters, digits, _ . or -, not {name!r}")
    attributes = json.loads(settings.node_attributes)
    if not isinstance(attributes, dict):
        raise ValueError(f'attributes are a JSON object as {{"region": "EU"}}, not {settings.node_attributes}')
    # The filter language reads integer-looking strings as numbers, so strings lose nothing.
    pairs = tuple(sorted((str(key), _text(value)) for key, value in attributes.items()))
    profiles, engines = profiles_of(settings.node_profiles.split(","))
    return Node(
        name,
        pairs,
        profiles,
        settings.node_member_limit,
        settings.node_weight,
        settings.node_failure_domain.strip(),
        engines,
    )


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


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def member_ports(settings: Settings) -> range:
    """The node's own ports, two a member. Raises ValueError, saying what would be accepted."""
    match = re.fullmatch(r"(\d+)-(\d+)", settings.node_ports or "")
    if match is None:
        raise ValueError("give the members' ports as FIRST-LAST, for example 20000-20199")
    first, last = int(match[1]), int(match[2])
    if not 1024 <= first < last <= 65535:
        raise ValueError(f"ports {first}-{last}: FIRST is below LAST, both from 1024 to 65535")
    return range(first, last + 1)
