"""Rules for one of several controllers, and its work besides zones."""

from __future__ import annotations

from dataclasses import dataclass

from rebalance.core.assignments.assignment import Strategy
from rebalance.core.topology.node_presence import HoldRule
from rebalance.ports.groups import ServingProbe
from rebalance.ports.metastore import MetastoreHistory

HOLD = HoldRule(lease_ms=5_000, grace_ms=10_000)


@dataclass(frozen=True, slots=True)
class ControllerRules:
    """``name`` tells it from others in the leader key."""

    name: str
    lease_s: int
    hold: HoldRule = HOLD
    strategy: Strategy = Strategy.QUEUE


@dataclass(frozen=True, slots=True)
class OptionalDuties:
    """Each is left out where its field is None. ``map_period_s``: how often partition maps may be published;
    ``probe``: of ``AutomaticReset``; ``history``: of ``StoreControl``."""

    map_period_s: float | None = None
    probe: ServingProbe | None = None
    history: MetastoreHistory | None = None


NO_DUTIES = OptionalDuties()
