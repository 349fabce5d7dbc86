"""Metrics of a node's members: how they look whenever the agent looks at one anyway, and what they say of
their disks.

Of each one's own metrics a few lines are added up for the node. Each member is asked at most once a minute,
spread over it. A node's counters never fall: a member that starts again counts from 0, which is added to what
there was.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

import httpx

from rebalance.core.causes.cause import Cause, cause_of
from rebalance.core.keyspace.keys import PartitionId
from rebalance.hosting.tls import TlsFiles
from rebalance.hosting.tls_handshakes import closed_handshakes
from rebalance.ports.groups import GroupHost, MemberStatus
from rebalance.ports.metric_rows import Measures, Metric


class MemberMeasures:
    """Measures of one host's members. ``publish`` sets the gauges from what was noted last of each member."""

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


PERIOD_S = 60.0
IDLE_S = 5.0
"""A node without members looks so often whether it has got one."""
ANSWER_S = 5.0
LINES: Mapping[bytes, Metric] = {
    b"etcd_disk_wal_fsync_duration_seconds_count": Metric.NODE_FSYNCS,
    b"etcd_disk_wal_fsync_duration_seconds_sum": Metric.NODE_FSYNC_SECONDS,
    b"etcd_disk_backend_commit_duration_seconds_count": Metric.NODE_COMMITS,
    b"etcd_disk_backend_commit_duration_seconds_sum": Metric.NODE_COMMIT_SECONDS,
    b"etcd_server_proposals_failed_total": Metric.NODE_PROPOSALS_FAILED,
}
_LINE = re.compile(rb"^(" + b"|".join(LINES) + rb") ([0-9.eE+-]+)$", re.M)


class MemberTotals:
    """Adds what members have counted since they were last asked."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._before: dict[PartitionId, dict[Metric, float]] = {}

    def note(self, partition: PartitionId, text: bytes) -> None:
        """``text``: a member's metrics. The first time nothing is added: it may have counted for long."""
        values = {LINES[name]: float(value) for name, value in _LINE.findall(text)}
        before = self._before.get(partition)
        self._before[partition] = values
        if before is None:
            return
        for metric, value in values.items():
            earlier = before.get(metric, 0.0)
            self._measures.count(metric, by=value - earlier if value >= earlier else value)

    def keep(self, partitions: Iterable[PartitionId]) -> None:
        """Forgets all others: who comes back is new."""
        for gone in self._before.keys() - set(partitions):
            del self._before[gone]


class MemberScrape:
    """``run`` must run beside the node."""

    def __init__(self, members: GroupHost, measures: Measures, tls: TlsFiles | None = None) -> None:
        self._members = members
        self._totals = MemberTotals(measures)
        self._tls = tls

    async def run(self, period_s: float = PERIOD_S) -> None:
        """Read the metrics of all members in each period, until cancelled. A member that does not answer is
        asked again a period later."""
        while True:
            context = self._tls.context() if self._tls is not None else None
            partitions = sorted(self._members.partitions())
            self._totals.keep(partitions)
            for partition in partitions:
                endpoints = self._members.endpoints(partition)
                if endpoints is not None:
                    with suppress(httpx.HTTPError, TimeoutError):
                        self._totals.note(partition, await metrics_of(endpoints.client_url, context))
                await asyncio.sleep(period_s / len(partitions))
            if not partitions:
                await asyncio.sleep(min(IDLE_S, period_s))


async def metrics_of(client_url: str, context: ssl.SSLContext | None) -> bytes:
    """A member's own metrics. Raises httpx.HTTPError and TimeoutError."""
    # The environment's proxies are for the outside.
    async with asyncio.timeout(ANSWER_S), httpx.AsyncClient(trust_env=False, verify=context or False) as http:
        answer = await http.get(f"{client_url}/metrics", extensions=closed_handshakes())
        return answer.raise_for_status().content
