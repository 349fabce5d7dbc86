"""Requests of groups of which no member is known."""

from __future__ import annotations

import pytest

from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.calls.replica_reads import NOW, ReplicaChoice
from rebalance.ports.groups import NobodyAskedError
from tests.fixtures.group_hosts import P0, Fixed

SHORT_S = 0.05


async def test_what_nobody_could_be_asked_for_is_refused_and_its_outcome_known() -> None:
    """Within the time of the request, also where a replica read asks the leader first; a time that is over
    before asks no member that is known, either."""
    router = ZoneRouter(Fixed(()), time_limit_s=60.0)
    asked = (
        router.put(P0, "k", b"1", "x", limit_s=SHORT_S),
        router.get(P0, "k", limit_s=SHORT_S),
        router.read_at(P0, "k", NOW, ReplicaChoice.REPLICA, SHORT_S),
    )
    for asking in asked:
        with pytest.raises(
            NobodyAskedError, match="no member could be reached in time: no member of the group is known"
        ):
            await asking
    await router.close()
    late = ZoneRouter(Fixed(("http://127.0.0.1:1",)))
    with pytest.raises(NobodyAskedError, match=r"no member could be reached in time$"):
        await late.put(P0, "k", b"1", "x", limit_s=0.0)
    await late.close()
