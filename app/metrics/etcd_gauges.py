"""What each member of the metastore says of itself, asked in the background."""

from __future__ import annotations

import asyncio
from typing import Protocol

from rebalance.ports.measures import Measures
from rebalance.ports.metastore import MemberHealth, MetastoreError
from rebalance.ports.metric_rows import Metric

PERIOD_S = 15.0


class AskedMembers(Protocol):
    """A metastore whose members can be asked one by one."""

    async def statuses(self) -> tuple[MemberHealth, ...]: ...

    async def leases(self) -> int: ...


async def follow_members(metastore: AskedMembers, measures: Measures, quota: int) -> None:
    """Until cancelled. ``quota``: bytes at which a member refuses writes, as it was started; 0: not known."""
    while True:
        publish_members(await metastore.statuses(), measures, quota)
        try:
            measures.set(Metric.METASTORE_LEASES, await metastore.leases())
        except MetastoreError:
            measures.replace(Metric.METASTORE_LEASES, ())
        await asyncio.sleep(PERIOD_S)


def publish_members(statuses: tuple[MemberHealth, ...], measures: Measures, quota: int) -> None:
    """Nothing but that is said of a member that does not answer."""
    up = [status for status in statuses if status.is_up]
    replace = measures.replace
    replace(Metric.ETCD_UP, (((status.name,), status.is_up) for status in statuses))
    replace(Metric.ETCD_HAS_LEADER, (((status.name,), status.has_leader) for status in up))
    replace(Metric.ETCD_IN_USE_BYTES, (((status.name,), status.in_use) for status in up))
    replace(Metric.ETCD_ALLOCATED_BYTES, (((status.name,), status.allocated) for status in up))
    if quota:
        replace(Metric.ETCD_QUOTA_BYTES, (((status.name,), quota) for status in up))
    alarms = {(alarm,): 1.0 for status in up for alarm in status.alarms}
    replace(Metric.ETCD_ALARMS, alarms.items())
