"""Sight of partitions: whether what the mirror shows of them is so, and since when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from app.contract.recovery import NOT_SERVING, SERVING, UNKNOWN
from rebalance.core.admission.move_admission import utc
from rebalance.core.keyspace.keys import PartitionId


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """Of who serves a partition, whatever the metastore says. ``since_ms``: of the first answer that was alike,
    Unix."""

    serves: bool
    since_ms: int


@dataclass(frozen=True, slots=True)
class MetastoreSilence:
    """Of the metastore, which was heard last at ``since_ms``, Unix: what the mirror holds is as of then.
    ``answers``: what was asked of those who serve a short time ago; the rest is unknown."""

    since_ms: int
    answers: Mapping[PartitionId, ServingAnswer] = field(default_factory=dict)

    def state(self, partition: PartitionId) -> str:
        answer = self.answers.get(partition)
        return UNKNOWN if answer is None else SERVING if answer.serves else NOT_SERVING

    def state_since_ms(self, partition: PartitionId) -> int:
        answer = self.answers.get(partition)
        return self.since_ms if answer is None else answer.since_ms


AskSilence = Callable[[], Awaitable[MetastoreSilence | None]]
"""None: the metastore has answered within a second."""


async def _heard() -> MetastoreSilence | None:
    """Where nothing but a mirror is looked at."""
    return None


@dataclass(frozen=True, slots=True)
class PartitionSight:
    """``since_ms``: since when a partition has been as it is, Unix; None: it was not looked at yet.
    ``version``: another one when ``since_ms`` may have another answer."""

    since_ms: Callable[[PartitionId], int | None] = lambda _: None
    silence: AskSilence = _heard
    version: Callable[[], object] = lambda: None


NO_SIGHT = PartitionSight()
"""Of a mirror alone."""


def shown_state(
    partition: PartitionId, state: Enum, since_ms: int | None, silence: MetastoreSilence | None
) -> tuple[str, int | None]:
    """What is told of a partition, and since when it is so: ``state`` and ``since_ms`` are the mirror's, which
    says nothing of who serves while the metastore is silent."""
    if silence is None:
        return str(state.value), since_ms
    return silence.state(partition), silence.state_since_ms(partition)


def as_of(body: Mapping[str, Any], silence: MetastoreSilence | None) -> dict[str, Any]:
    """``body``, which was read from the mirror, and as of when it is so (``contract.zones.AsOf``)."""
    return {**body, "metastore_silent_since": utc(silence.since_ms) if silence is not None else None}
