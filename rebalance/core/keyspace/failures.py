"""Changes of peers that do not succeed, as leaders' nodes tell them: the newest few, in a record a node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from catalog.core.codec import Codec, Extensible, Record
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId

NODE_MAX = 20
"""Failures that one node tells."""
ALL_MAX = 100
"""Failures that are shown; a node's record goes when all of these are newer."""
CAUSE_MAX = 300


@dataclass(frozen=True, slots=True)
class Failing:
    """What keeps a change from going on, as its leader's node sees it now. ``attempt``: how many have failed;
    0: none could be begun."""

    code: str
    cause: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Failure(Extensible):
    """``since_ms``: when it was first reported, ``at_ms`` when it was last seen to go on; Unix milliseconds."""

    zone_id: ZoneId
    partition: int
    code: str
    cause: str
    term: int
    attempt: int
    since_ms: int
    at_ms: int

    @property
    def of(self) -> PartitionId:
        return PartitionId(self.zone_id, self.partition)

    def is_news(self, failing: Failing) -> bool:
        """Whether ``failing``, which has the same code, is to be reported after this: the cause is another one,
        or attempts have doubled. The 2,001st is no news."""
        return failing.cause[:CAUSE_MAX] != self.cause or failing.attempt >= 2 * max(self.attempt, 1)


@dataclass(frozen=True, slots=True)
class FailureRecord(Record):
    """Of one node, the newest first."""

    failures: tuple[Failure, ...] = ()

    @property
    def partitions(self) -> frozenset[PartitionId]:
        return frozenset(failure.of for failure in self.failures)

    def with_news(self, news: Collection[Failure], lives: Callable[[PartitionId], bool]) -> FailureRecord:
        """With ``news`` in place of the earlier reports of the same failures, and without partitions that are
        no more: the newest ``NODE_MAX``."""
        known = {_series(failure): failure for failure in (*self.failures, *news)}
        kept = (failure for failure in known.values() if lives(failure.of))
        return replace(self, failures=tuple(sorted(kept, key=_newest_first)[:NODE_MAX]))


def failure_after(
    before: Failure | None, partition: PartitionId, term: int, failing: Failing, now_ms: int
) -> Failure:
    """``failing`` as it is reported after ``before``, the same failure."""
    since_ms = before.since_ms if before is not None else now_ms
    cause, (zone_id, number) = failing.cause[:CAUSE_MAX], (partition.zone_id, partition.partition)
    return Failure(zone_id, number, failing.code, cause, term, failing.attempt, since_ms, now_ms)


def newest(records: Mapping[str, FailureRecord]) -> list[tuple[str, Failure]]:
    """Of all nodes, by name: the newest ``ALL_MAX`` with the reporting node, the newest first."""
    failures = [(node, failure) for node, record in records.items() for failure in record.failures]
    return sorted(failures, key=lambda entry: (_newest_first(entry[1]), entry[0]))[:ALL_MAX]


def outdated(records: Mapping[str, FailureRecord]) -> Sequence[str]:
    """Nodes of whose failures none is among the newest ``ALL_MAX``: their records may go."""
    shown = {node for node, _ in newest(records)}
    return sorted(records.keys() - shown)


def _series(failure: Failure) -> tuple[PartitionId, str, int]:
    return failure.of, failure.code, failure.since_ms


def _newest_first(failure: Failure) -> tuple[int, ZoneId, int, str]:
    return -failure.at_ms, failure.zone_id, failure.partition, failure.code


FailureRecord.codec = Codec(FailureRecord, required=("failures",))
