"""How a node names its storage profiles, and with each what keeps its groups."""

from __future__ import annotations

import re
from collections.abc import Sequence

from catalog.core.zone import DEFAULT_ENGINE

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
