"""Attempts at a change of peers, decided from values: which count, when a partition is reported as failed,
and when the next attempt may begin.

An attempt counts when something went wrong with it. Two ends are ordinary and do not count: a group that
wants its members connected for a while first, and a copy that has not caught up within one attempt while it
still has time (``CopyRules.copy_s``): the next attempt continues where it stands. Nor does one whose member
has not started yet while its copy arrives; what went wrong before is over then. A partition reported as
failed is tried again seldom, and at once when somebody asks for it or when its circumstances have changed, so
nothing is stuck for good.

``CopyProgress`` is what a node publishes of its members that catch up: seldom, but so that a stalled copy is
seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rebalance.core.admission.limit_options import COPY_ATTEMPTS, COPY_S, JOINER_S
from rebalance.core.admission.move_admission import Limits
from rebalance.core.backoff import Backoff
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.ports.groups import FailureCode, ReconfigurationFailure

RETRY_MAX_S = 2.0
RETRY = Backoff(0.2, RETRY_MAX_S, growth=1.5)
FAILED_RETRY_S = 10.0
ARRIVES_S = 15.0
"""A copy that has grown so short a time ago arrives: nodes publish a figure every 5 s."""

ORDINARY = frozenset((FailureCode.UNHEALTHY_CLUSTER, FailureCode.SUPERSEDED, FailureCode.CANCELLED))


@dataclass(frozen=True, slots=True)
class CopyRules:
    """``attempts_max`` attempts fail before the partition is reported as failed (VOL-098); one copy may take
    ``copy_s`` seconds (VOL-099). ``revision``: of the limits that say so; a new one tries again what failed."""

    attempts_max: int = COPY_ATTEMPTS
    copy_s: int = COPY_S
    revision: int = 0
    joiner_s: int = JOINER_S
    """Minimum absence of a joiner, in seconds (``joiners``)."""

    @classmethod
    def of(cls, limits: Limits, revision: int) -> CopyRules:
        return cls(
            attempts_max=limits.copy_attempts or COPY_ATTEMPTS,
            copy_s=limits.copy_s or COPY_S,
            revision=revision,
            joiner_s=limits.joiner_s or JOINER_S,
        )


Circumstances = tuple[int, int, frozenset[str]]
"""Revisions of the rules and of pending, and the partition's nodes that live."""


@dataclass(frozen=True, slots=True)
class CopyAttempts:
    """Attempts of one led group since its member list last changed. Times are the event loop's, in seconds.

    ``counted`` are those that count, ``failure`` is the last one.
    """

    retry: Backoff = RETRY
    counted: int = 0
    since_s: float | None = None
    """Begin of the copy that goes on, as far as this leader knows."""
    not_before_s: float = 0.0
    failure: ReconfigurationFailure | None = None
    copied: int = 0
    """Bytes copied by the end of the last attempt, as joiners reported them (``MemberRecord.copied``)."""
    grown_at_s: float | None = None
    """Last time that the copied bytes had grown."""
    circumstances: Circumstances | None = None

    def is_failed(self, rules: CopyRules) -> bool:
        return self.counted >= rules.attempts_max

    def becomes_failed(self, before: CopyAttempts, rules: CopyRules) -> bool:
        """Check that the partition is to be reported as failed now, and was not ``before``."""
        return self.is_failed(rules) and not before.is_failed(rules)

    def under(self, circumstances: Circumstances, now_s: float) -> CopyAttempts:
        """Return the attempts as of another round. Where somebody asked again, the target is another one, or
        nodes came or went, counting begins anew and nothing waits for the next attempt any more."""
        since_s = now_s if self.since_s is None else self.since_s
        if self.circumstances in (None, circumstances) or not self.counted:
            return replace(self, circumstances=circumstances, since_s=since_s)
        return replace(self, circumstances=circumstances, counted=0, since_s=now_s, not_before_s=0.0)

    def after_failure(
        self,
        failure: ReconfigurationFailure,
        now_s: float,
        rules: CopyRules,
        chance: float = 0.0,
        *,
        copied: int = 0,
    ) -> CopyAttempts:
        """``failure`` ended the attempt that ran. ``chance``: ``Backoff.delay_s``. ``copied``: so much by what
        joiners say now; one that has nothing says 1."""
        since_s = now_s if self.since_s is None else self.since_s
        counted = self.counted
        out_of_time = now_s - since_s > rules.copy_s
        grown_at_s = now_s if copied > max(self.copied, 1) else self.grown_at_s
        arrives = grown_at_s is not None and now_s - grown_at_s < ARRIVES_S
        if arrives and not out_of_time and failure.code is FailureCode.MEMBER_NOT_STARTED:
            counted = 0
        elif out_of_time or failure.code not in {*ORDINARY, FailureCode.CATCH_UP_TIMEOUT}:
            counted, since_s = counted + 1, now_s
        retry = self.retry.failed()
        pause_s = FAILED_RETRY_S
        if counted < rules.attempts_max:
            # A group becomes healthy 5 s after its members have connected: worth asking a little more often.
            is_early = failure.code is FailureCode.UNHEALTHY_CLUSTER
            pause_s = retry.up_to(RETRY_MAX_S / 2 if is_early else RETRY_MAX_S).delay_s(chance)
        return replace(
            self,
            retry=retry,
            counted=counted,
            since_s=since_s,
            not_before_s=now_s + pause_s,
            failure=failure,
            copied=copied,
            grown_at_s=grown_at_s,
        )

    def published_cause(self, cause: str, rules: CopyRules) -> str:
        """``cause`` as it is published: of what has failed with the number of attempts."""
        told = f"{self.counted} attempts: {cause}"
        return Cause.COPY_FAILED.text(told) if self.is_failed(rules) else cause


PUBLISHED_S = 5.0


def pause_s(joiner_s: float) -> float:
    """Return the seconds between two figures of one member: a judge by ``joiner_s`` sees several before."""
    return min(PUBLISHED_S, joiner_s / 3)


class CopyProgress:
    """Published progress of one node's copies. ``joiner_s``: how long a copy may stand still before it is said
    to."""

    def __init__(self, joiner_s: Callable[[], float]) -> None:
        self._joiner_s = joiner_s
        self._published: dict[PartitionId, tuple[int, float]] = {}

    def of(self, partition: PartitionId, received: int, now_s: float) -> int:
        """Return what to publish of a member that has ``received`` so many bytes by now; 0: it does not catch
        up."""
        if not received:
            self._published.pop(partition, None)
            return 0
        known, at_s = self._published.get(partition, (0, float("-inf")))
        if received == known or now_s - at_s < pause_s(self._joiner_s()):
            return known
        self._published[partition] = received, now_s
        return received
