"""Freshness of the mirror: whether its states of partitions are true now, and since when they have been."""

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
    """Answer of the servers of a partition themselves: ``serves``, whatever the metastore says. ``since_ms``:
    Unix time of the first answer that was the same."""

    serves: bool
    since_ms: int


@dataclass(frozen=True, slots=True)
class MetastoreSilence:
    """Silence of the metastore since ``since_ms``, Unix: what the mirror holds is as of then. ``answers``: what
    the servers of partitions said a short time ago; the state of other partitions is unknown."""

    since_ms: int
    answers: Mapping[PartitionId, ServingAnswer] = field(default_factory=dict)

    def state(self, partition: PartitionId) -> str:
        answer = self.answers.get(partition)
        return UNKNOWN if answer is None else SERVING if answer.serves else NOT_SERVING

    def state_since_ms(self, partition: PartitionId) -> int:
        answer = self.answers.get(partition)
        return self.since_ms if answer is None else answer.since_ms


AskSilence = Callable[[], Awaitable[MetastoreSilence | None]]
"""Question for the metastore's silence; None: it has answered within a second."""


async def _heard() -> MetastoreSilence | None:
    """Answer that there is no silence, where nothing but a mirror is looked at."""
    return None


@dataclass(frozen=True, slots=True)
class MirrorFreshness:
    """Freshness of the mirror's states. ``since_ms``: since when a partition has been in its state, Unix; None:
    it was not looked at yet. ``silence``: the metastore's, asked now. ``version``: changes when the answers of
    ``since_ms`` may have changed."""

    since_ms: Callable[[PartitionId], int | None] = lambda _: None
    silence: AskSilence = _heard
    version: Callable[[], object] = lambda: None


MIRROR_ALONE = MirrorFreshness()
"""Freshness where only a mirror is read: no times are known, and the metastore counts as heard."""


def shown_state(
    partition: PartitionId, state: Enum, since_ms: int | None, silence: MetastoreSilence | None
) -> tuple[str, int | None]:
    """The state to show of a partition, and since when it has been in it. ``state`` and ``since_ms`` are the
    mirror's, and are shown only while the metastore answers."""
    if silence is None:
        return str(state.value), since_ms
    return silence.state(partition), silence.state_since_ms(partition)


def as_of(body: Mapping[str, Any], silence: MetastoreSilence | None) -> dict[str, Any]:
    """Add to ``body``, which was read from the mirror, the time as of which it is true
    (``contract.zones.AsOf``)."""
    return {**body, "metastore_silent_since": utc(silence.since_ms) if silence is not None else None}
