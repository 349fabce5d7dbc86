"""Engines: what keeps the members of groups. A storage profile names one; ``etcd`` is the one that comes along.

Another engine is a ``GroupHost`` of its own, found by the entry point group ``zonekeeper.engines``:
``rebalance/tech-notes/engines.md`` says what it must hold to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rebalance.ports.fence import MemberGuard, NoGuard
from rebalance.ports.groups import GroupHost

ENTRY_POINTS = "zonekeeper.engines"


@dataclass(frozen=True, slots=True)
class EngineRoom:
    """Room that a node gives one of its engines: a directory of its own, which exists; ports of its own, two a
    member; the address that its members listen on; and the most members at once. ``guard`` is called before
    each start of a member, and gets its process before that serves."""

    data_dir: Path
    ports: range
    host: str
    member_limit: int
    guard: MemberGuard = field(default_factory=NoGuard)


EngineFactory = Callable[[EngineRoom], GroupHost]
