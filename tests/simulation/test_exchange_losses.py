"""Partitions whose owners all died, by the zone's policy."""

from __future__ import annotations

import pytest

from catalog.core.zone import LossPolicy
from rebalance.core.affinity import CopyState
from rebalance.core.topology_version import Trigger
from rebalance.exchange.simulation.exchange_workload import ExchangeStage
from tests.simulation.exchange_rig import ZONE, Rig

LISTS = {"abc": ("c", "a", "b", "a"), "ab": ("a", "a", "b", "a")}
"""Partition 0 lives on c alone."""


@pytest.mark.row("PME-094", "PME-095", shows="model")
def test_all_owners_die() -> None:
    """PME-094: LOST. PME-095: what may be done follows the zone's policy; a reset makes what is left usable."""
    rig = Rig("abc", lists=LISTS, copies=1)
    rig.finish(rig.update("a", 0))
    rig.crash("c")
    rig.settle()
    assert rig.own("a", 0) is CopyState.LOST
    assert rig.node("b").worker.held.lost == {ZONE: {0}}
    refused = rig.update("b", 0)
    assert refused.stage is ExchangeStage.REFUSED
    assert "partition 0 is lost" in refused.reason
    rig.finish(other := rig.update("b", 1))
    assert other.stage is ExchangeStage.DONE
    rig.world.custom(Trigger.LOSS_RESET, (rig.zone,))
    rig.settle()
    assert rig.own("a", 0) is CopyState.OWNING
    rig.finish(again := rig.update("b", 0))
    assert again.stage is ExchangeStage.DONE


@pytest.mark.row("PME-096", shows="model")
def test_a_loss_that_is_ignored() -> None:
    """PME-096: the new copy owns, empty, when the exchange ends, and is used without a reset."""
    rig = Rig("abc", lists=LISTS, copies=1, policy=LossPolicy.IGNORE)
    rig.finish(rig.update("a", 0))
    rig.crash("c")
    rig.exchange()
    assert rig.own("a", 0) is CopyState.OWNING
    assert not rig.node("a").store.copies[ZONE, 0].rows
    assert not rig.node("a").worker.held.lost
    rig.finish(update := rig.update("b", 0))
    assert update.stage is ExchangeStage.DONE
