"""The rule for restarting a child that hangs: decided only from what the supervisor observed.

A child *beats* while its event loop runs. One that has not beaten for its limit is asked for a stack dump,
killed a moment later, and started again by what restarts what dies. One at a time, so that a machine on
which everything is slow does not lose all at once; seldom, because a restart that did not help will not help;
and never for a time in which the supervisor itself stood still, and could not see any beats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

START_LIMIT_S = 120.0
"""Imports and a migration come before the first beat."""
DUMP_S = 2.0
RESTARTS_MAX = 3
WINDOW_S = 600.0
LATE_PART = 0.25
"""Share of a child's limit: a supervisor that was absent for longer has not observed the child."""


class HangStep(Enum):
    DUMP = "dump"
    """Ask for a stack dump; the child may be stopped, and has to go on for that."""
    KILL = "kill"
    LEAVE = "leave"
    """Report it and do no more: the child was restarted as often as is allowed."""
    EXCUSE = "excuse"
    """Report it and do no more: the supervisor was late."""


@dataclass(frozen=True, slots=True)
class HangAction:
    """``child`` empty: of all children."""

    step: HangStep
    child: str
    reason: str


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation of a child in one turn. ``pid`` 0: it does not run. ``beat``: since the turn before."""

    limit_s: float
    pid: int
    beat: bool = False


@dataclass(frozen=True, slots=True)
class WatchedChild:
    """``since``: its start, its newest beat, or the end of the supervisor's own absence. ``restarts``: when
    this watch began each of them. ``awaited``: restarted, and not heard of since then."""

    pid: int
    since: float
    has_beaten: bool = False
    dumped_at: float | None = None
    awaited: bool = False
    left: bool = False
    restarts: tuple[float, ...] = ()

    def limit_s(self, observation: Observation) -> float:
        return observation.limit_s if self.has_beaten else max(observation.limit_s, START_LIMIT_S)

    def is_silent(self, observation: Observation, now: float) -> bool:
        return self.pid != 0 and now - self.since > self.limit_s(observation)

    def is_awaited(self, now: float) -> bool:
        """True while the child, restarted, is not heard of yet. It ends after ``START_LIMIT_S``, so that a
        child that cannot start does not hold up the others."""
        return self.awaited and now - self.restarts[-1] < START_LIMIT_S

    def recent(self, now: float) -> tuple[float, ...]:
        return tuple(restart for restart in self.restarts if now - restart < WINDOW_S)


@dataclass(frozen=True, slots=True)
class HangWatch:
    """``turn_at``: the supervisor's turn before; None: there was none."""

    turn_at: float | None = None
    children: Mapping[str, WatchedChild] = field(default_factory=dict)

    def turn(self, now: float, observations: Mapping[str, Observation]) -> tuple[HangWatch, HangAction | None]:
        """The watch after a turn at ``now`` (monotonic seconds), and what is to be done, at most one thing.

        Invariants: of all children at most one is between its dump and its first beat; a child is killed only
        after a dump; at most ``RESTARTS_MAX`` dumps of a child begin within ``WINDOW_S``.
        """
        absent_s = 0.0 if self.turn_at is None else now - self.turn_at
        children = {
            name: self._observed(self.children.get(name), observation, now, absent_s)
            for name, observation in observations.items()
        }
        watch = HangWatch(now, children)
        if any(absent_s > LATE_PART * observation.limit_s for observation in observations.values()):
            reason = f"the supervisor stood still for {absent_s:.0f} s: no child is judged by that time"
            return watch, HangAction(HangStep.EXCUSE, "", reason)
        return watch._killed(now) or watch._next(now, observations)

    def _observed(
        self, before: WatchedChild | None, observation: Observation, now: float, absent_s: float
    ) -> WatchedChild:
        if before is None:
            return WatchedChild(observation.pid, now, has_beaten=observation.beat)
        if before.pid != observation.pid:
            # Whatever ended it, a new one begins anew; how often it was restarted is not forgotten.
            after = WatchedChild(observation.pid, now, observation.beat, restarts=before.recent(now))
            return replace(after, awaited=before.awaited and not observation.beat)
        if absent_s > LATE_PART * observation.limit_s:
            return replace(before, since=now, dumped_at=None, awaited=before.awaited and not observation.beat)
        if observation.beat and before.dumped_at is None:
            return replace(before, since=now, has_beaten=True, awaited=False, left=False)
        return before

    def _killed(self, now: float) -> tuple[HangWatch, HangAction] | None:
        for name, child in self.children.items():
            if child.dumped_at is not None and child.pid and now - child.dumped_at >= DUMP_S:
                # Until its death is seen it is asked once only: its pid changes then.
                after = replace(child, dumped_at=None, since=now, has_beaten=False)
                return self._with(name, after), HangAction(HangStep.KILL, name, "it was asked for its stack")
        return None

    def _next(self, now: float, observations: Mapping[str, Observation]) -> tuple[HangWatch, HangAction | None]:
        """The child that is silent for longest, unless another one is being restarted."""
        if any(child.dumped_at is not None or child.is_awaited(now) for child in self.children.values()):
            return self, None
        silent = [
            (child.since, name)
            for name, child in self.children.items()
            if child.is_silent(observations[name], now) and not child.left
        ]
        if not silent:
            return self, None
        since, name = min(silent)
        child, silent_s = self.children[name], now - since
        count = len(child.recent(now))
        if count >= RESTARTS_MAX:
            reason = (
                f"{name} has not answered for {silent_s:.0f} s; it is left alone, as {count} restarts "
                f"within {WINDOW_S / 60:.0f} min did not help"
            )
            return self._with(name, replace(child, left=True)), HangAction(HangStep.LEAVE, name, reason)
        reason = f"{name} has not answered for {silent_s:.0f} s (limit {child.limit_s(observations[name]):g} s)"
        restarts = (*child.recent(now), now)
        after = replace(child, dumped_at=now, awaited=True, restarts=restarts)
        return self._with(name, after), HangAction(HangStep.DUMP, name, reason)

    def _with(self, name: str, child: WatchedChild) -> HangWatch:
        return replace(self, children={**self.children, name: child})
