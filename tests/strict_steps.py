"""Whether the members of a test check membership steps themselves: as ``ZONEKEEPER_NODE_STRICT_STEPS`` says for
a node, so that the tests of groups run both ways."""

from __future__ import annotations

from app.configuration.settings import Settings

STRICT_STEPS = Settings().node_strict_steps
