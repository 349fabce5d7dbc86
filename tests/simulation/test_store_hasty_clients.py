"""Clients that give up soon: what they have given up does not take the place of what they wrote after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebalance.store.core.store_messages import ReadRequest, WriteRequest
from simulator.store.store_run import LIMITS, StoreRun, StoreShape
from simulator.store.store_world import StoreRuleBrokenError, StoreWorld

SEEDS = 3


def hasty(seed: int) -> StoreRun:
    shape = replace(
        StoreShape.of(seed), keys=1, partitions=1, zones=1, id_keep_ms=LIMITS.id_keep_ms, hasty=True
    )
    run = StoreRun(seed, shape)
    run.run()
    return run


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_acknowledged_write_is_not_overtaken(seed: int) -> None:
    operations = hasty(seed).clients.history.operations
    assert any(item.abandons and item.position is not None for item in operations)


@pytest.mark.soak
def test_many_seeds() -> None:
    for seed in range(SEEDS, 300):
        hasty(seed)


def test_where_servers_do_not_know_of_it_the_rule_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = StoreWorld.ask

    def deaf(world: StoreWorld, client: int, name: str, request: ReadRequest | WriteRequest) -> None:
        known = replace(request, abandons=()) if isinstance(request, WriteRequest) else request
        whole(world, client, name, known)

    monkeypatch.setattr(StoreWorld, "ask", deaf)
    with pytest.raises(StoreRuleBrokenError, match="has abandoned"):
        hasty(0)
