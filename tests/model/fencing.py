"""A model of the fence (H1, H2, H4): one voter that may be cut off, the metastore, and whoever founds anew.

Time goes by whole seconds. Nothing has to happen but time, and the killer at its deadline, and no lease ends
early: a cut link, a lost answer, a stopped process and a frozen controller are steps that are not taken, or
taken late. The group is a, b and c; b is as absent as a is, c lives, so a reset needs a to be silent. Each
absent voter is judged for itself, so what holds for a holds for all of a majority.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from tests.model.fence_rules import (
    ELECTION_S,
    EVER_S,
    LEASE_S,
    LONG_S,
    REAL,
    SHORT_S,
    STOP_S,
    Absence,
    Heard,
    Rules,
    fence_s,
    heard,
    is_over,
    looked,
    unbroken,
)

BROKEN = "a reset is committed, and a member of the old group serves"
JUMP_S = EVER_S
SILENT_S = 2
"""Seconds after which the metastore counts as silent for the controller."""


class Member(IntEnum):
    """Member of node a, with data of the old group. CLEARED: it may start."""

    DEAD = 0
    CLEARED = 1
    RUNS = 2


class Draft(NamedTuple):
    """A write of the fence key on its way. ``is_valid``: its guards hold still; ``is_done``: only the answer is
    on its way."""

    fence_s: int
    is_valid: bool = True
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class FenceScope:
    """Scope of a run. ``changes``: the limits change, and with them the nodes' fences. ``rolling``: rounds of
    requests that meet a majority of the metastore's members while each of them restarts, one after the other:
    evidence that is none. ``has_fence`` False: an agent of a build without one."""

    reset_s: int = LONG_S
    changes: bool = False
    outages: bool = True
    rolling: int = 0
    has_fence: bool = True
    late_writes: bool = False


SILENT = Heard()
_heard, _absence = cache(Heard), cache(Absence)


class State(NamedTuple):
    """Ages are in seconds; None: there is none."""

    reset_s: int
    kept: int
    published: int | None
    mark: int | None = 0
    """Time from which the node's fence counts."""
    sent: int | None = None
    """A renewal or registration that was carried out, whose answer is on its way: since it was sent."""
    asking: int | None = None
    """A round of requests to the metastore's members: since it was sent."""
    is_evidence: bool = False
    """True: at some moment of that round there was no leader."""
    member: Member = Member.RUNS
    lease: int | None = 0
    """Age of the node's entry since it was renewed; None: the entry is gone."""
    granted: int | None = None
    """A lease that was granted for an entry that is still to be written."""
    draft: Draft | None = None
    late: Draft | None = None
    """A write that the agent has given up."""
    leads: bool = True
    """The metastore has a leader."""
    deluded: int = 0
    """Seconds for which a deposed leader may still confirm renewals that no longer count."""
    rolling: int = 0
    heard: Heard = SILENT
    absence: Absence | None = None
    look: bool | None = None
    """The first of a look's two reads was made. True: the node was absent then, where that was read first."""
    plan: bool | None = None
    """A reset on its way; False: its guards no longer hold."""
    reset: bool = False


def initial(scope: FenceScope) -> State:
    kept = fence_s(scope.reset_s)
    return State(scope.reset_s, kept, kept if scope.has_fence else None, rolling=scope.rolling)


Steps = Iterator[tuple[str, State]]


class Fencing:
    """``successors`` for the explorer."""

    def __init__(self, scope: FenceScope, rules: Rules = REAL) -> None:
        self._scope, self._rules = scope, rules
        self._oldest = fence_s(LONG_S if scope.changes else scope.reset_s) + STOP_S + 1

    def successors(self, state: State) -> Iterator[tuple[str, str, State]]:
        for step, reached in self._steps(state):
            broken = BROKEN if reached.reset and reached.member is Member.RUNS else ""
            yield step, broken, self._merged(reached)

    def _merged(self, state: State) -> State:
        """States that nothing can tell apart are one."""
        if state.member is not Member.RUNS and self._is_over(state) and state.mark is not None:
            state = state._replace(mark=state.mark if self._scope.changes else self._oldest)
        hearing, absence, rules = state.heard, state.absence, self._rules
        is_known = absence is not None and (absence.is_same or rules.looked is not looked)
        if hearing.answered in (None, SILENT_S):
            # The next answer begins again.
            hearing, is_known = SILENT, is_known and rules.unbroken is not unbroken
        if absence is None or not is_known:
            # The next look begins again.
            merged: tuple[Heard, Absence | None] = _heard(hearing.answered, 0, hearing.is_term), None
        elif rules.unbroken is not unbroken:
            merged = _heard(hearing.answered, 0, hearing.is_term), absence
        else:
            # The shorter of both counts.
            age = min(absence.age, hearing.since or 0)
            merged = _heard(hearing.answered, age, hearing.is_term), _absence(age, absence.is_same)
        return state if merged == (state.heard, absence) else state._replace(heard=merged[0], absence=merged[1])

    def _steps(self, state: State) -> Steps:
        yield "a second passes", self._tick(state)
        yield from self._node(state)
        if self._scope.changes:
            yield from self._publisher(state)
        yield from self._metastore(state)
        if not state.reset:
            yield from self._controller(state)

    def _is_over(self, state: State) -> bool:
        return self._scope.has_fence and is_over(state.kept, state.mark)

    def _tick(self, state: State) -> State:
        rules, most = self._rules, state.kept + STOP_S
        mark = _older(state.mark, self._oldest)
        member = state.member
        if self._is_over(state):
            if member is Member.CLEARED and rules.asks_in_each_span:
                member = Member.DEAD
            if member is Member.RUNS and rules.has_watchdog and (state.mark is None or state.mark >= most):
                member = Member.DEAD
        lease, granted = _older(state.lease, LEASE_S), _older(state.granted, LEASE_S + 1)
        heard_before = state.heard
        return state._replace(
            mark=mark,
            member=member,
            lease=lease,
            granted=granted if granted is None or granted <= LEASE_S else None,
            sent=_unless_older(state.sent, mark),
            asking=_unless_older(state.asking, mark),
            is_evidence=state.is_evidence and _unless_older(state.asking, mark) is not None,
            deluded=max(state.deluded - 1, 0),
            heard=Heard(
                _older(heard_before.answered, SILENT_S),
                _older(heard_before.since, EVER_S),
                heard_before.is_term,
            ),
            absence=_aged(state.absence, 1),
        )

    def _node(self, state: State) -> Steps:
        rules, over = self._rules, self._is_over(state)
        if state.member is Member.RUNS and over:
            yield "the killer kills a's member", state._replace(member=Member.DEAD)
        if state.leads and state.lease is not None and state.sent is None:
            renewed = state._replace(lease=0, sent=0)
            yield "a renews its lease", renewed
            if state.deluded:
                yield "a deposed leader renews a's lease", renewed._replace(lease=state.lease)
        if state.leads and state.lease is None and state.granted is None:
            yield "a gets a lease", state._replace(granted=0)
        if state.leads and state.granted is not None and state.lease is None and state.sent is None:
            yield (
                "a registers",
                self._published(state, state.kept if self._scope.has_fence else None)._replace(
                    lease=state.granted, granted=None, sent=0
                ),
            )
        if state.sent is not None:
            mark = rules.confirmed(state.kept, state.mark, state.sent)
            heard_again = state._replace(mark=mark, sent=None)
            if over:
                heard_again = self._killed(heard_again)
            yield "a gets its answer", heard_again
            yield "a's answer is lost", state._replace(sent=None)
        yield from self._evidence(state, over)
        may_clear = not state.reset or not rules.asks_before_starts
        if state.member is Member.DEAD and state.leads and not over and may_clear:
            yield "a reads that its group is the newest", state._replace(member=Member.CLEARED)
        if state.member is Member.CLEARED and not over:
            yield "a's member starts", state._replace(member=Member.RUNS)

    def _killed(self, state: State) -> State:
        """The agent has looked at the time; it kills what the killer has left."""
        if state.member is Member.CLEARED and not self._rules.asks_in_each_span:
            return state
        return state._replace(member=Member.DEAD)

    def _evidence(self, state: State, over: bool) -> Steps:
        rules = self._rules
        if state.asking is None:
            if rules.time_outs_count or not state.leads:
                yield "a asks the metastore's members", state._replace(asking=0, is_evidence=not state.leads)
            if state.rolling:
                yield (
                    "a asks the metastore's members, as each restarts in turn",
                    state._replace(asking=0, is_evidence=True, rolling=state.rolling - 1),
                )
            return
        answered = state._replace(asking=None, is_evidence=False)
        if state.is_evidence or rules.time_outs_count:
            mark = rules.no_majority(state.kept, state.mark, state.asking)
            proven = answered._replace(mark=mark)
            yield "no majority answers a", self._killed(proven) if over else proven
        yield "a's round shows nothing", answered

    def _publisher(self, state: State) -> Steps:
        """Limits may be any that ever were, as the agent sees them: they are read late."""
        rules = self._rules
        if state.draft is None and state.lease is not None and state.leads:
            for reset_s in (SHORT_S, LONG_S):
                length = fence_s(reset_s)
                if length == state.kept == state.published:
                    continue
                now = state.kept
                if length < now and rules.uses_first:
                    now = length
                if length > now and not rules.publishes_first:
                    now = length
                wanted = state._replace(draft=Draft(length))
                yield f"a wants a fence of {length} s", wanted._replace(kept=now)
        draft, late = state.draft, state.late
        if draft is not None and draft.is_done:
            counts = draft.is_valid or not rules.goes_by_revision
            length = draft.fence_s if counts else state.kept
            yield "a hears that its fence is published", state._replace(draft=None, kept=length)
        if draft is not None:
            held = draft if self._scope.late_writes and not draft.is_done and late is None else late
            yield "a gives its fence's write up", state._replace(draft=None, late=held)
        for name, write in (("draft", draft), ("late", late)):
            if write is None or write.is_done or not state.leads:
                continue
            if state.lease is None or (rules.guards_key and not write.is_valid):
                gone = state._replace(draft=None) if name == "draft" else state._replace(late=None)
                yield f"a's fence of {write.fence_s} s is refused", gone
                continue
            written = self._published(state, write.fence_s)
            done_write = Draft(write.fence_s, is_done=True)
            yield (
                f"a's fence of {write.fence_s} s is written",
                written._replace(draft=done_write) if name == "draft" else written._replace(late=None),
            )

    def _published(self, state: State, length: int | None) -> State:
        """The fence key is another one: every guard on it fails, and a is no longer who was absent."""
        return state._replace(
            published=length,
            draft=_outdated(state.draft),
            late=_outdated(state.late),
            absence=state.absence and Absence(state.absence.age, is_same=False),
            plan=None if state.plan is None else False,
            look=None if self._rules.reads_fences_first else state.look,
        )

    def _metastore(self, state: State) -> Steps:
        if state.leads and state.lease is not None and state.lease >= LEASE_S:
            yield "a's lease ends", state._replace(lease=None)
        if state.leads and self._scope.outages:
            yield (
                "the metastore loses its leader",
                state._replace(leads=False, is_evidence=state.asking is not None),
            )
        if self._scope.outages and (not state.leads or state.deluded == 0):
            yield (
                "the metastore elects a leader",
                state._replace(
                    leads=True,
                    deluded=ELECTION_S,
                    lease=0 if state.lease is not None else None,
                    granted=0 if state.granted is not None else None,
                    heard=Heard(state.heard.answered, state.heard.since, is_term=False),
                    is_evidence=state.asking is not None,
                ),
            )
        if self._scope.changes and state.leads:
            other = SHORT_S if state.reset_s == LONG_S else LONG_S
            plan = None if state.plan is None else state.plan and not self._rules.guards_reset
            yield f"ha_reset_s becomes {other} s", state._replace(reset_s=other, plan=plan)

    def _controller(self, state: State) -> Steps:
        rules = self._rules
        if state.leads:
            yield "the metastore answers the controller", state._replace(heard=heard(state.heard))
            if rules.reads_fences_first:
                yield "the controller reads the fences", state._replace(look=False)
            else:
                yield "the controller reads who is alive", state._replace(look=state.lease is None)
        if state.leads and state.look is not None:
            is_absent = state.lease is None if rules.reads_fences_first else state.look
            yield "the controller judges", self._judged(state, is_absent)
        if state.plan is not None and state.leads:
            if (state.plan and state.lease is None) or not rules.guards_reset:
                yield (
                    "the reset is committed",
                    State(
                        *_node_part(state), leads=True, deluded=state.deluded, rolling=state.rolling, reset=True
                    ),
                )
            else:
                yield "the reset is refused", state._replace(plan=None)
        fresh = state._replace(heard=Heard(), absence=None, look=None)
        if rules.takes_over:
            fresh = fresh._replace(absence=state.absence and Absence(state.absence.age), heard=state.heard)
        yield "another controller takes over", fresh
        if rules.jumps:
            since = min((state.heard.since or 0) + JUMP_S, EVER_S)
            hearing = Heard(state.heard.answered, since, state.heard.is_term)
            yield "the wall clock jumps", state._replace(heard=hearing, absence=_aged(state.absence, JUMP_S))

    def _judged(self, state: State, is_absent: bool) -> State:
        rules = self._rules
        absence = rules.looked(state.absence, is_absent)
        judged = state._replace(absence=absence, look=None)
        unbroken = rules.unbroken(state.heard)
        if absence is None or unbroken is None or state.plan is not None:
            return judged
        due = rules.is_due(absence.age, unbroken, state.published, state.reset_s)
        return judged._replace(plan=True) if due else judged


def _node_part(state: State) -> tuple[object, ...]:
    """Part of the state that matters after the reset, when the controller has nothing more to do."""
    return tuple(state[: State._fields.index("leads")])


def _older(age: int | None, most: int) -> int | None:
    return min(age + 1, most) if age is not None else None


def _aged(absence: Absence | None, by: int) -> Absence | None:
    return absence and Absence(min(absence.age + by, EVER_S), absence.is_same)


def _unless_older(age: int | None, mark: int | None) -> int | None:
    """Age in the next second; None for one older than the mark, which has no effect any more."""
    older = None if age is None else age + 1
    return older if older is not None and (mark is None or older < mark) else None


def _outdated(draft: Draft | None) -> Draft | None:
    return draft and draft._replace(is_valid=False)
