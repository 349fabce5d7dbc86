"""Did two servers answer for one partition? What answers say of the exchange that they were given on.

Each exchange names one primary of a partition. So answers of one version are of one server; and what was asked
after an answer of another version came is not answered on an older one: its primary would have served beside
the newer one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rebalance.core.partition_maps.topology_version import NO_VERSION, TopologyVersion


@dataclass(frozen=True, slots=True)
class Served:
    """One request that ``server`` answered with DONE. Times are nanoseconds of one monotonic clock."""

    partition: int
    server: str
    version: TopologyVersion
    invoked: int
    returned: int


def second_primaries(answers: Iterable[Served]) -> list[str]:
    """Descriptions of answers that show two primaries of a partition; empty when there never were."""
    by_partition: defaultdict[int, list[Served]] = defaultdict(list)
    for answer in answers:
        by_partition[answer.partition].append(answer)
    return [line for _, served in sorted(by_partition.items()) for line in _of_partition(served)]


def _of_partition(served: list[Served]) -> list[str]:
    findings, primaries = [], {}
    for answer in served:
        primary = primaries.setdefault(answer.version, answer)
        if primary.server != answer.server:
            findings.append(f"{answer} and {primary}: two servers, one version")
    # In one instant, begins come first: such requests overlap.
    events = sorted(
        [(answer.invoked, False, index) for index, answer in enumerate(served)]
        + [(answer.returned, True, index) for index, answer in enumerate(served)]
    )
    newest, floors = NO_VERSION, {}
    for _, returns, index in events:
        if not returns:
            floors[index] = newest
            continue
        if served[index].version < floors[index]:
            findings.append(f"{served[index]}: version {floors[index]} had answered before")
        newest = max(newest, served[index].version)
    return findings
