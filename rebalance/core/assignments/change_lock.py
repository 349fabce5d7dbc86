"""Decisions that a group's leader needs while it changes the group (I3A-011..027; decision 11), without I/O.

``pending.lock`` is held while voters are touched, and never while somebody copies. Without it pending may be
replaced (strategy ``update``) or given up (``cancel``); under it pending stays what it is. It is taken when a
joiner is in sync, or when nobody is to join any more, and goes before the next step that touches no voter: what
was planned meanwhile becomes pending in that very transaction. Only a transaction on the lock and on pending's
revision decides which came first: the group itself cannot, because its leader may have been replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.codec import Codec, Record
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import (
    Decision,
    Observed,
    Outcome,
    is_same,
    require_readable,
)
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.records import Stage
from rebalance.core.keyspace.txn import Delete, Put, Txn


@dataclass(frozen=True, slots=True)
class PendingLock(Record):
    """``pending``: revision of the pending set that it was taken for. ``joiner``: member id of who was about to
    vote, empty when nobody was. ``term``: of the leader that has taken it; builds before wrote neither."""

    pending: int
    joiner: str = ""
    term: int = 0


PendingLock.codec = Codec(PendingLock, omit=("joiner", "term"))


def decide_on_catch_up_finished(observed: Observed, token: int, *, term: int = 0, joiner: str = "") -> Decision:
    """``tryCatchUpFinish``: the leader of ``term`` is about to touch a voter for pending as of revision
    ``token``; ``joiner`` is in sync. It may once the transaction is committed.

    Revisions are compared and not values: A, B, A are three targets (decision 11). A lock that is held already
    is written again: an agent that has seen the group at rest before that must not clear it after (I3A-016). A
    lock of a later term is never written.
    """
    require_readable(observed)
    keys = observed.keys
    if observed.pending is None or observed.pending.mod_revision != token:
        return Decision(Outcome.PENDING_SUPERSEDED)
    if _is_of_later_term(observed, term):
        return Decision(Outcome.LOCK_OF_LATER_TERM)
    guards = observed.guards("pending", "lock")
    outcome = Outcome.PENDING_LOCKED if observed.lock is None else Outcome.PENDING_LOCKED_AGAIN
    return Decision(outcome, Txn(guards, (Put(keys.lock, PendingLock(token, joiner, term).encode()),)))


def decide_on_change_cancelled(observed: Observed, token: int, *, is_cancelled: bool) -> Decision:
    """The leader was asked to cancel its change towards pending as of ``token``; ``is_cancelled``: no change of
    that kind runs any more (I3A-022, I3A-023). Then planned becomes pending (I3A-027).

    A locked pending is never given up: the group may be half-way, or there already with the stable switch to
    come, and then nothing runs either.
    """
    require_readable(observed)
    keys = observed.keys
    if not is_cancelled or observed.lock is not None:
        return Decision(Outcome.CANCEL_TOO_LATE)
    if observed.pending is None or observed.pending.mod_revision != token:
        return Decision(Outcome.CANCELLED_IS_NOT_PENDING)
    if observed.planned is None:
        return Decision(Outcome.NOTHING_PLANNED)
    guards = observed.guards("stable", "pending", "planned", "lock")
    # Also what is stable is a move: the group may have a voter more by now.
    writes = (Put(keys.pending, observed.planned.value), Delete(keys.planned))
    return Decision(Outcome.CANCEL_PLANNED_SCHEDULED, Txn(guards, writes))


def decide_on_unlock(
    observed: Observed, stage: Stage, *, term: int = 0, of_earlier_terms: bool = False
) -> Decision:
    """The leader of ``term`` touches no voter now, and by a list that was read in its term, after every call
    that it has made, the group is at ``stage``. The lock goes, and a target that was waiting for it takes
    pending's place (I3A-018; decision 11).

    At STABLE it stays: the group is what pending asks for, and stable is to be switched. ``of_earlier_terms``:
    a change of this term runs, and its own lock stays. Only a group at NONE has nothing left to do when what
    waited is stable.
    """
    require_readable(observed)
    keys = observed.keys
    if observed.lock is None:
        return Decision(Outcome.NOTHING_LOCKED)
    if _is_of_later_term(observed, term):
        return Decision(Outcome.LOCK_OF_LATER_TERM)
    if stage is Stage.STABLE or (of_earlier_terms and _term_of(observed) == term):
        return Decision(Outcome.LOCK_KEPT)
    guards = observed.guards("stable", "pending", "planned", "lock")
    unlock = Delete(keys.lock)
    if observed.planned is None:
        return Decision(Outcome.LOCK_CLEARED, Txn(guards, (unlock,)))
    stable = readable(observed.stable, Assignments.decode)
    if stage is Stage.NONE and is_same(observed.planned, stable):
        writes = (Delete(keys.pending), Delete(keys.planned), unlock)
        return Decision(Outcome.LOCK_CLEARED_PLANNED_DROPPED, Txn(guards, writes))
    scheduled = (Put(keys.pending, observed.planned.value), Delete(keys.planned), unlock)
    return Decision(Outcome.LOCK_CLEARED_PLANNED_SCHEDULED, Txn(guards, scheduled))


def _is_of_later_term(observed: Observed, term: int) -> bool:
    return _term_of(observed) > term


def _term_of(observed: Observed) -> int:
    return readable(observed.lock, PendingLock.decode).term if observed.lock is not None else 0
