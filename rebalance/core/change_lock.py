"""What a group's leader asks while it changes the group (I3A-011..027; decision 11), as pure decisions.

``pending.lock`` divides a move in two. Before it pending may still be replaced (strategy ``update``) or given
up (``cancel``), and the leader adds learners only. After it pending stays what it is until the stable switch or
until the group is back at rest, and the leader promotes and removes. Only a transaction on the lock and on
pending's revision decides which came first: the group itself cannot, because its leader may have been
replaced.
"""

from __future__ import annotations

from rebalance.core.assignments import Assignments
from rebalance.core.guarded_write import (
    Decision,
    Observed,
    Outcome,
    after_move,
    decode_revision,
    encode_revision,
    guards_of,
    is_same,
    require_readable,
)
from rebalance.core.readable import readable
from rebalance.core.records import Stage
from rebalance.core.txn import Delete, Put, Txn


def encode_lock(pending_revision: int) -> bytes:
    """``pending_revision``: of the pending set that the lock was taken for."""
    return encode_revision("pending", pending_revision)


def decode_lock(value: bytes) -> int:
    """The revision of the pending set that was locked. Raises RecordNotReadableError."""
    return decode_revision("pending", value)


def decide_on_catch_up_finished(observed: Observed, token: int) -> Decision:
    """``tryCatchUpFinish``: the new members of pending as of revision ``token`` have caught up; may a voter be
    touched now? Yes, once the transaction is committed.

    Revisions are compared and not values: A, B, A are three targets (decision 11). A lock that is held already
    is written again: whoever has seen the group at rest before that must not clear it after (I3A-016).
    """
    require_readable(observed)
    keys = observed.keys
    if observed.pending is None or observed.pending.mod_revision != token:
        return Decision(Outcome.PENDING_SUPERSEDED)
    guards = guards_of((keys.pending, observed.pending), (keys.lock, observed.lock))
    outcome = Outcome.PENDING_LOCKED if observed.lock is None else Outcome.PENDING_LOCKED_AGAIN
    return Decision(outcome, Txn(guards, (Put(keys.lock, encode_lock(token)),)))


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
    guards = guards_of(
        (keys.stable, observed.stable),
        (keys.pending, observed.pending),
        (keys.planned, observed.planned),
        (keys.lock, observed.lock),
    )
    stable = readable(observed.stable, Assignments.decode)
    dropped = is_same(observed.planned, stable)
    outcome = Outcome.CANCEL_PLANNED_DROPPED if dropped else Outcome.CANCEL_PLANNED_SCHEDULED
    return Decision(outcome, Txn(guards, after_move(observed, stable)))


def decide_on_change_ended(observed: Observed, stage: Stage) -> Decision:
    """A change has failed, or its leader is new; the group is at ``stage``. Back at NONE the lock goes
    (I3A-018; decision 11), and a target that was waiting for it takes pending's place."""
    require_readable(observed)
    keys = observed.keys
    if observed.lock is None:
        return Decision(Outcome.NOTHING_LOCKED)
    if stage is not Stage.NONE:
        return Decision(Outcome.LOCK_KEPT)
    guards = guards_of(
        (keys.stable, observed.stable),
        (keys.pending, observed.pending),
        (keys.planned, observed.planned),
        (keys.lock, observed.lock),
    )
    unlock = Delete(keys.lock)
    if observed.planned is None:
        return Decision(Outcome.LOCK_CLEARED, Txn(guards, (unlock,)))
    stable = readable(observed.stable, Assignments.decode)
    dropped = is_same(observed.planned, stable)
    outcome = Outcome.LOCK_CLEARED_PLANNED_DROPPED if dropped else Outcome.LOCK_CLEARED_PLANNED_SCHEDULED
    return Decision(outcome, Txn(guards, (*after_move(observed, stable), unlock)))
