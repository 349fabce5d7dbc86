"""What a node's members look like, for its metrics: noted whenever the agent looks at one anyway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from rebalance.core.causes.cause import Cause, cause_of
from rebalance.core.keyspace.keys import PartitionId
from rebalance.ports.groups import MemberStatus
from rebalance.ports.measures import Measures
from rebalance.ports.metric_rows import Metric


class MemberMeasures:
    """Of one host. ``publish`` sets the gauges from what was noted last of each member."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._seen: dict[PartitionId, MemberStatus] = {}
        self._terms: dict[PartitionId, int] = {}

    def note(self, partition: PartitionId, status: MemberStatus) -> None:
        """A later term is an election, whoever has won it."""
        before = self._seen.get(partition)
        self._seen[partition] = status
        term = self._terms.get(partition, 0)
        if status.term > term:
            # A member that does not answer for a moment has term 0.
            self._terms[partition] = status.term
            if term:
                self._measures.count(Metric.NODE_LEADER_CHANGES)
        if before is None:
            return
        arrived = status.received - before.received
        if before.received and arrived > 0:
            self._measures.count(Metric.COPIED_BYTES, by=arrived)

    def publish(self, held: Collection[PartitionId]) -> None:
        """``held``: partitions that the host has something of; all others are forgotten."""
        for gone in self._seen.keys() - set(held):
            del self._seen[gone]
            self._terms.pop(gone, None)
        states = Counter(status.life.value for status in self._seen.values())
        members = (((state,), float(count)) for state, count in states.items())
        self._measures.replace(Metric.NODE_MEMBERS, members)
        without_space = sum(cause_of(status.reason) is Cause.DISK_FULL for status in self._seen.values())
        self._measures.set(Metric.NODE_MEMBERS_WITHOUT_SPACE, without_space)
        sizes = sum(status.size_bytes for status in self._seen.values())
        self._measures.set(Metric.NODE_MEMBER_BYTES, sizes)
        self._measures.set(Metric.NODE_LEADS, sum(status.is_leader for status in self._seen.values()))
