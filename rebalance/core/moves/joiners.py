"""Joiners that are gone: how long one may be, and where its move goes without it (M1, M3), as pure decisions.

A *joiner* is a node of pending that does not vote in stable. It is *gone* while its node does not live, or says
that it cannot run the member. A joiner that lives and copies is never given up here, however long it takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rebalance.core.assignments.assignment import Assignments, shortfall
from rebalance.core.assignments.guarded_write import (
    Decision,
    Observed,
    Outcome,
    decode_trigger,
    require_readable,
)
from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.records import GivenUpJoiner, GivenUpRecord, MemberRecord, MemberState
from rebalance.core.keyspace.txn import Delete, KeyValue, Put, Txn, as_read
from rebalance.core.moves.move_status import PartitionView

JOINER_MAX_S = 3_600
"""Longest time that a joiner may be gone, in seconds, whatever it has copied before."""
STEADY_S = 30.0
"""A member that has failed runs for so long before it counts as back: one that ends again and again copies
nothing. Its node begins its own back-off anew after the same time."""
AGAIN_S = 60.0
AGAIN_MAX_S = 3_600.0
"""A node that was given up lives for so long before it is asked again: the first time, and at most."""


@dataclass(frozen=True, slots=True)
class JoinerTime:
    """Observations of one joiner by a leader. Times are of a clock that stands still while the leader's agent
    does not hear the metastore."""

    copies_since_s: float | None = None
    gone_since_s: float | None = None
    copied_s: float = 0.0
    """Seconds that it had copied for when it was last seen doing so."""
    copied: int = 0
    grown_at_s: float | None = None
    """Time at which the figure that it reports as ``copied`` was last seen to change."""
    failed: bool = False
    """True if its member has failed since it was last seen to copy steadily."""
    runs_since_s: float | None = None
    """Time since which it runs again after it failed, while that is not long enough yet."""

    def seen(
        self, now_s: float, *, is_gone: bool, is_listed: bool, failed: bool = False, copied: int = 0
    ) -> JoinerTime:
        """``is_listed``: the group has it, so what it does is copy. ``failed``: it is gone because its member
        has failed. ``copied``: so much by what it says."""
        if is_gone:
            gone_since_s = now_s if self.gone_since_s is None else self.gone_since_s
            failed = failed or self.failed
            return replace(self, gone_since_s=gone_since_s, grown_at_s=None, failed=failed, runs_since_s=None)
        if not is_listed:
            return JoinerTime()
        grown_at_s = now_s if self.grown_at_s is None or copied != self.copied else self.grown_at_s
        if self.failed:
            runs_since_s = now_s if self.runs_since_s is None else self.runs_since_s
            if now_s - runs_since_s < STEADY_S:
                return replace(self, copied=copied, grown_at_s=grown_at_s, runs_since_s=runs_since_s)
        since_s = now_s if self.copies_since_s is None else self.copies_since_s
        return JoinerTime(since_s, None, now_s - since_s, copied, grown_at_s)

    def is_over(self, now_s: float, timeout_s: float) -> bool:
        """True if it is gone, and has been for longer than it may: a restart must not cost a long copy."""
        if self.gone_since_s is None or self.runs_since_s is not None:
            return False
        return now_s - self.gone_since_s >= min(max(timeout_s, self.copied_s), JOINER_MAX_S)

    def is_stalled(self, now_s: float, timeout_s: float) -> bool:
        """True if it lives and copies, and nothing has come for ``timeout_s``."""
        return self.grown_at_s is not None and now_s - self.grown_at_s >= timeout_s


def is_gone(lives: bool, record: MemberRecord | None, *, is_listed: bool) -> bool:
    """``record``: the joiner's own; ``is_listed``: its group has this very member.

    A member that is reserved and not listed waits for its leader. One that is listed is to be started by its
    node, which sees that at once.
    """
    if not lives or record is None or not record.has_member:
        return True
    return record.state is MemberState.FAILED or (is_listed and record.state is MemberState.READY)


def joiners_of(stable: Assignments, pending: Assignments) -> tuple[str, ...]:
    """Voters of pending that do not vote in stable, in pending's order."""
    return tuple(name for name in pending.peers if name not in stable.peers)


def target_without(
    stable: Assignments, pending: Assignments, gone: Collection[str], holding: Collection[str] = ()
) -> Assignments:
    """``pending`` with each gone joiner's place taken by a voter of ``stable`` that was to leave, or empty.

    ``holding``: nodes that live and vote in the group now; they come first. A joiner that learned before learns
    again. Invariant: never fewer voters than min(|stable|, |pending|), and no node that neither of them has.
    """
    leaving = [name for name in stable.peers if name not in pending.peers]
    # A stable sort: those alike keep the order that placement prefers.
    leaving.sort(key=lambda name: name not in holding)
    given_up = [name for name in joiners_of(stable, pending) if name in gone]
    places = dict(zip(given_up, leaving, strict=False))
    peers = tuple(places.get(name, name) for name in pending.peers if name not in given_up or name in places)
    learners = [name for name in pending.learners if name not in peers]
    learners += [name for name in given_up if name in stable.learners]
    assignments = replace(pending, peers=peers, learners=tuple(learners))
    # Back at what is stable its own order is the preference.
    return replace(stable.at_rest(), strategy=pending.strategy) if assignments == stable else assignments


def decide_on_joiners_gone(
    observed: Observed,
    gone: Mapping[str, str],
    *,
    given_up: KeyValue | None = None,
    given_up_key: str,
    holding: Collection[str] = (),
) -> Decision:
    """Joiners ``gone`` (node -> the incarnation that fails, empty for a node that is away) are waited for no
    longer (M1). What is planned takes pending's place; otherwise pending goes on without them.

    Going back is a move as any other: pending becomes what is stable and is never just deleted, for the group
    may list a learner (M8). A pending that recovery has forced is left alone. The lock goes with the pending
    that it names. The trigger stays as it is and is guarded: whatever is asked for later overtakes this.
    """
    require_readable(observed)
    keys = observed.keys
    stable = readable(observed.stable, Assignments.decode)
    pending = readable(observed.pending, Assignments.decode)
    if stable is None or pending is None or pending.forced:
        return Decision(Outcome.NO_JOINER_IS_GONE)
    names = [name for name in joiners_of(stable, pending) if name in gone]
    if not names:
        return Decision(Outcome.NO_JOINER_IS_GONE)
    guards = observed.guards("stable", "pending", "planned", "lock", "trigger")
    unlock = (Delete(keys.lock),) if observed.lock is not None else ()
    if observed.planned is not None:
        writes = (Put(keys.pending, observed.planned.value), Delete(keys.planned), *unlock)
        return Decision(Outcome.JOINERS_GONE_PLANNED_SCHEDULED, Txn(guards, writes))
    target = target_without(stable, pending, names, holding)
    event = readable(observed.trigger, decode_trigger) or 0
    record = _recorded(readable(given_up, GivenUpRecord.decode), event, stable, {n: gone[n] for n in names})
    guards = (*guards, as_read(given_up_key, given_up))
    put = Put(given_up_key, record.encode())
    return Decision(Outcome.JOINERS_GIVEN_UP, Txn(guards, (Put(keys.pending, target.encode()), put, *unlock)))


def _recorded(
    known: GivenUpRecord | None, event: int, stable: Assignments, gone: Mapping[str, str]
) -> GivenUpRecord:
    """Record of the joiners that are ``gone`` now, beside those that were given up before: how often decides
    when they are asked again. A node that votes by now begins anew when it is gone the next time."""
    before = known.joiners if known is not None else {}
    joiners = {name: joiner for name, joiner in before.items() if name not in stable.peers}
    for name, incarnation in gone.items():
        times = joiners[name].times if name in joiners else 0
        joiners[name] = GivenUpJoiner(event, times + 1, incarnation)
    return GivenUpRecord(event, joiners, unknown=known.unknown if known is not None else None)


def left_out_by_reset(known: GivenUpRecord | None, event: int, names: Collection[str]) -> GivenUpRecord | None:
    """Record that a reset of ``event`` writes of ``names``, nodes of the target that the partition goes on
    without; None: nothing. They are asked as soon as they live, however often they were given up before."""
    if not names and known is None:
        return None
    joiners = dict(known.joiners) if known is not None else {}
    joiners |= {name: GivenUpJoiner(event, 0) for name in names}
    return GivenUpRecord(event, joiners, unknown=known.unknown if known is not None else None)


def left_without_note(view: PartitionView, processed: int) -> tuple[str, ...]:
    """Nodes of the target without which a reset left the partition short, where no record says so: earlier
    builds wrote none. ``processed``: what its trigger says. A cancel sets a trigger that founds nothing."""
    founded = view.configuration is not None and view.configuration.generation == processed > 0
    at_rest = view.pending is None and view.planned is None
    if not founded or not at_rest or view.given_up or view.target is None or view.stable is None:
        return ()
    return shortfall(view.target, view.stable).awaited


def back_again(record: GivenUpRecord, incarnations: Mapping[str, str]) -> tuple[str, ...]:
    """Nodes that were given up for the record's event and live again. ``incarnations``: of the nodes that live
    now; a node that lived and failed is another one once it was started again."""
    return tuple(
        name
        for name in record.names()
        if name in incarnations and incarnations[name] != record.joiners[name].incarnation
    )


def again_s(times: int, first_s: float = AGAIN_S) -> float:
    """Seconds that a node lives again before it is asked for its copy, having been given up ``times`` in a row;
    0 where a reset left it out."""
    backoff = Backoff(first_s, max(AGAIN_MAX_S, first_s), jitter=0.0)
    for _ in range(min(times, 32)):
        backoff = backoff.failed()
    return backoff.pause_s
