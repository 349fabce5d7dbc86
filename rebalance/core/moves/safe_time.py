"""Safe time and safe revision: up to where a replica may be read.

The leader's agent writes its clock into the group's data, a *beat*. A replica that has a beat with time T has
everything that was acknowledged before the leader's clock showed T.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beat:
    """``time_ms``: milliseconds since 1970 by the leader's clock; ``revision``: the group's, where it is
    written. Both 0 before the first one."""

    time_ms: int = 0
    revision: int = 0


def encode_time(time_ms: int) -> bytes:
    return str(time_ms).encode()


def decode_time(value: bytes) -> int:
    """Decode the time of a beat; 0 for what is no time."""
    return int(value) if value.isdigit() else 0


def next_time_ms(clock_ms: int, last: Beat) -> int:
    """Safe time never goes back: a leader whose clock is behind repeats the time of the one before it."""
    return max(clock_ms, last.time_ms)


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """Point that a read must see: ``revision``, or all that was acknowledged before ``time_ms``. One of them is
    0."""

    revision: int = 0
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """Progress of one replica as it reports it: it has repeated everything up to ``safe_revision``, ``beat``
    included."""

    safe_revision: int
    beat: Beat


def revision_to_read(point: ReadPoint, progress: ReplicaProgress) -> int | None:
    """The revision at which the replica shows ``point``; None when it is not there yet (IEP-058).

    A read at a time takes the newest beat, not the newest revision: what is newer than a beat may have been
    acknowledged after the time that the answer claims.
    """
    if point.time_ms:
        return progress.beat.revision if progress.beat.time_ms >= point.time_ms else None
    return point.revision if progress.safe_revision >= point.revision else None
