"""Control of operations for people: pause, resume, cancel, and the check that one can be reversed.

For servers; no leadership is needed. Every write is guarded by the operation as it was read, so that a cancel
which races with the end of the operation has one winner. Methods raise RefusedError and MetastoreError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from catalog.core.audit import Action
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId
from rebalance.controllers.clock import Clock
from rebalance.controllers.operation_keeper import OperationKeeper
from rebalance.controllers.partitions import PARTITIONS_PER_REQUEST
from rebalance.controllers.targets import TargetStore
from rebalance.core.admission.move_admission import Limits, Pause
from rebalance.core.assignments.target import StoredTarget, TargetPointer
from rebalance.core.assignments.withdrawal import CancelledPartitions
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read, readable
from rebalance.core.keyspace.records import ConfigurationRecord, KeptRecord
from rebalance.core.keyspace.txn import KeyValue, Put, Txn, as_read, unchanged
from rebalance.core.operations.operation import (
    STATES,
    Note,
    Operation,
    OperationKind,
    OperationState,
    Step,
    operation_id,
    parse_operation_id,
)
from rebalance.metastore.guarded_update import commit_decided, commit_each, read_together, update_key
from rebalance.ports.metastore import Metastore

LOOKS_MAX = 5
SHOWN_MAX = 10
KEPT = "/kept/"


@dataclass(frozen=True, slots=True)
class Reversible:
    """An operation that may be reversed, and the stored target to go back to."""

    operation: Operation
    before: StoredTarget


class OperationControl:
    """``limits`` are read with each request: a pause of an operation is one of its zone."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, clock: Clock) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._clock = clock
        self._targets = TargetStore(metastore, keyspace)
        self._keeper = OperationKeeper(metastore, keyspace, clock, Limits)

    async def read(self, name: str) -> tuple[Operation, KeyValue]:
        """Raises RefusedError (OPERATION_NOT_FOUND, INVALID_REQUEST)."""
        item = await self._metastore.get(self._keyspace.operation(checked_id(name)))
        if item is None:
            raise not_found(name)
        return readable(item, Operation.decode), item

    async def pause(self, name: str, pause: Pause) -> Operation:
        """Pause the operation: nothing more of it begins until ``resume`` or the pause's own end. A pause that
        is given again begins anew."""

        def changed(limits: Limits, zone_id: ZoneId) -> Limits:
            return replace(limits, zone_pauses={**limits.zone_pauses, zone_id: replace(pause, operation=name)})

        def paused(operation: Operation) -> Operation | None:
            cause = Cause.PAUSED.text(f"the zone, {pause.summary()}")
            if operation.state is OperationState.PAUSED:
                return replace(operation, cause=cause)
            return operation.after(Step.PAUSED, self._clock.now_ms(), cause)

        note = self._note(Action.PAUSE_OPERATION, pause.by, pause.reason)
        return await self._change(name, "paused", changed, paused, note)

    async def resume(self, name: str, by: str = "", reason: str = "") -> Operation:
        """Ends the pause of its zone, whoever requested it; the cluster's is another one. The limits are
        written anew in any case: by that nodes try again at once what has failed."""

        def resumed(operation: Operation) -> Operation | None:
            if operation.state.is_open and operation.state is not OperationState.PAUSED:
                return operation
            return operation.after(Step.RESUMED, self._clock.now_ms())

        note = self._note(Action.RESUME_OPERATION, by, reason)
        return await self._change(name, "resumed", _without_pause, resumed, note, anew=True)

    async def cancel(self, name: str, by: str, reason: str) -> Operation:
        """Cancel the operation: what it has not begun stays where it is; what has begun goes back as long as no
        voter of before is gone (``cancelled`` tells), and else on to its end. The answer is either a cancelled
        operation, or a refusal because it has ended otherwise."""
        cause = f"cancelled by {by}" + (f": {reason}" if reason else "")

        async def decide() -> tuple[None, Txn | None]:
            operation, item = await self.read(name)
            if operation.state is OperationState.CANCELLED:
                return None, None
            if not operation.kind.moves_data:
                raise _illegal(operation, f"a {operation.kind.value} has no moves that could be cancelled")
            after = operation.after(Step.CANCELLED, self._clock.now_ms(), cause)
            if after is None:
                raise _illegal(operation, "only one that is WAITING, RUNNING or PAUSED can be cancelled")
            put = Put(item.key, after.noted(self._note(Action.CANCEL_OPERATION, by, reason)).encode())
            return None, Txn((unchanged(item.key, item.mod_revision),), (put,))

        await commit_decided(self._metastore, decide)
        return await self._carry_out(name)

    async def cancelled(self, operation: Operation) -> CancelledPartitions:
        """Return what the cancel of ``operation`` has come to by now, partition by partition."""
        return await self._keeper.cancelled(operation)

    async def cancel_partitions(
        self, name: str, numbers: Collection[int], by: str, reason: str
    ) -> CancelledPartitions:
        """Partitions ``numbers`` stay where they are or go back, as far as they can, and the operation goes on
        and ends without them (VOL-095, M10).

        Raises RefusedError: OPERATION_STATE_ILLEGAL, PARTITION_NOT_FOUND.
        """
        operation, item = await self.read(name)
        if not operation.state.is_open or not operation.kind.moves_data:
            raise _illegal(operation, "only of one that moves data and is not over partitions can be cancelled")
        await self._keeper.cancelled(operation, numbers)
        for _ in range(LOOKS_MAX):
            if not await self._keeper.withdraw(item, frozenset(numbers)):
                break
        cancelled = await self._keeper.cancelled(operation, numbers)
        await self._noted(item.key, self._note(Action.CANCEL_PARTITIONS, by, reason))
        return cancelled

    async def finalise(self, name: str, shown: int | None = None, *, dry_run: bool = False) -> int:
        """The copies that nodes keep of members which left by this operation, or by an earlier one of its zone,
        are to be deleted; returns how many. Refused while something of it is left: deletions come last; and
        when there are not as many as were ``shown``. Guarded by each copy's key, so a partition that has come
        back meanwhile loses nothing."""
        operation, _ = await self.read(name)
        if not operation.is_over:
            raise _illegal(operation, "copies are deleted once it is over, and something of it is left")
        discards = await self._discards(operation)
        if dry_run:
            return len(discards)
        if shown is not None and shown != len(discards):
            message = f"{shown} copies were shown for operation {name}, and there are {len(discards)} now"
            raise RefusedError(ErrorKind.SHOWN_STATE_CHANGED, message)
        return (await commit_each(self._metastore, (), discards, PARTITIONS_PER_REQUEST))[0]

    async def _discards(self, operation: Operation) -> list[Txn]:
        """One for each copy that is kept of a member which left by the operation or before it."""
        prefix = self._keyspace.zone_partitions(operation.zone_id)
        discards = []
        for item in (await self._metastore.range(prefix)).items:
            # Most keys are others, and there are many.
            parsed = self._keyspace.parse_partition(item.key) if KEPT in item.key else None
            if parsed is None or not parsed[1].startswith(KEPT.removeprefix("/")):
                continue
            kept = readable(item, KeptRecord.decode)
            if kept.event <= operation.event_revision and not kept.discard:
                put = Put(item.key, replace(kept, discard=True).encode())
                discards.append(Txn((unchanged(item.key, item.mod_revision),), (put,)))
        return discards

    async def note_limits(self, zones: Collection[ZoneId] | None, by: str, reason: str) -> None:
        """Limits or pauses of ``zones`` (None: of the cluster) were changed: every open operation that they
        concern keeps that. One that ends meanwhile needs it no more."""
        note = self._note(Action.CHANGE_LIMITS, by, reason)
        for item in (await self._metastore.range(self._keyspace.operations)).items:
            operation = read(item, Operation.decode)
            if isinstance(operation, Unreadable):
                continue
            if zones is None or operation.zone_id in zones:
                await self._noted(item.key, note)

    async def _noted(self, key: str, note: Note) -> None:
        """The operation keeps it, unless nothing more of it may begin by now."""

        def noted(item: KeyValue | None) -> bytes | None:
            operation = read(item, Operation.decode)
            if operation is None or isinstance(operation, Unreadable):
                return None
            may_begin = operation.state.is_open and operation.kind.moves_data
            return operation.noted(note).encode() if may_begin else None

        await update_key(self._metastore, key, noted)

    def _note(self, action: Action, by: str, reason: str) -> Note:
        return Note(self._clock.now_ms(), action.value, by, reason)

    async def reversible(self, name: str) -> Reversible:
        """Raises RefusedError (REVERSE_IMPOSSIBLE) with what stands against it."""
        operation, _ = await self.read(name)
        if Step.REVERSED not in STATES[operation.state]:
            raise _irreversible(operation, f"it is {operation.state.value}: {operation.cause}")
        if operation.kind in (OperationKind.CREATE_ZONE, OperationKind.RESET) or not operation.before:
            raise _irreversible(operation, f"a {operation.kind.value} has no assignment before it")
        keys = self._keyspace
        names = keys.target_pointer(operation.zone_id), keys.target_before(operation.zone_id)
        (newest, before), _ = await read_together(self._metastore, *names)
        event = readable(newest, TargetPointer.decode).event_revision if newest is not None else 0
        if event != operation.event_revision:
            newer = operation_id(operation.zone_id, event) if event else "none"
            raise _irreversible(operation, f"the newest operation of its zone is {newer}")
        if before is None or readable(before, TargetPointer.decode).event_revision != operation.before:
            raise _irreversible(operation, "its previous target is no longer stored")
        given_up = await self._given_up(operation, readable(before, TargetPointer.decode).partitions)
        if given_up:
            shown = ", ".join(map(str, given_up[:SHOWN_MAX])) + (", ..." if len(given_up) > SHOWN_MAX else "")
            raise _irreversible(
                operation, f"partitions {shown} were reset since, which discarded their previous copies"
            )
        try:
            return Reversible(operation, await self._targets.read(operation.zone_id, before))
        except RecordNotReadableError:
            raise
        except ValueError as error:
            raise _irreversible(operation, str(error)) from error

    async def _given_up(self, operation: Operation, partitions: int) -> list[int]:
        """Partitions whose group was founded anew after the operation: earlier copies never run again."""
        snapshot = await self._metastore.range(self._keyspace.zone_partitions(operation.zone_id))
        keys = {item.key: item for item in snapshot.items if item.key.endswith("/configuration")}
        numbers = []
        for number in range(partitions):
            name = self._keyspace.partition(PartitionId(operation.zone_id, number)).configuration
            configuration = readable(keys.get(name), ConfigurationRecord.decode)
            if configuration is not None and configuration.generation > operation.event_revision:
                numbers.append(number)
        return numbers

    async def _change(
        self,
        name: str,
        what: str,
        changed: Callable[[Limits, ZoneId], Limits],
        stepped: Callable[[Operation], Operation | None],
        note: Note,
        *,
        anew: bool = False,
    ) -> Operation:
        """Operation, with ``note``, and limits in one transaction, each guarded by what was read. When nothing
        changes nothing is written, unless the limits are to be written ``anew``."""

        async def decide() -> tuple[Operation, Txn | None]:
            operation, item = await self.read(name)
            stored = await self._metastore.get(self._keyspace.limits)
            after = stepped(operation)
            if after is None or not operation.kind.moves_data:
                raise _illegal(operation, f"only one that moves data and is not over can be {what}")
            limits = readable(stored, Limits.decode) or Limits()
            limits_after = changed(limits, operation.zone_id)
            same = (after, limits_after) == (operation, limits)
            if same and not anew:
                return operation, None
            after = operation if same else after.noted(note)
            guards = (
                unchanged(item.key, item.mod_revision),
                as_read(self._keyspace.limits, stored),
            )
            writes = (
                Put(item.key, after.encode()),
                Put(self._keyspace.limits, limits_after.encode()),
            )
            return after, Txn(guards, writes)

        return (await commit_decided(self._metastore, decide))[0]

    async def _carry_out(self, name: str) -> Operation:
        """The withdrawals at once, as far as they go; the leading controller does what is left. Only then the
        operation's own pause ends: nothing of it may begin in between."""
        operation, item = await self.read(name)
        for _ in range(LOOKS_MAX):
            if operation.is_over or not await self._keeper.withdraw(item):
                break
        await self._end_pause(operation)
        return operation

    async def _end_pause(self, operation: Operation) -> None:
        def ended(item: KeyValue | None) -> bytes | None:
            limits = readable(item, Limits.decode) or Limits()
            pause = limits.zone_pauses.get(operation.zone_id)
            is_own = pause is not None and pause.operation == operation.operation_id
            return _without_pause(limits, operation.zone_id).encode() if is_own else None

        await update_key(self._metastore, self._keyspace.limits, ended)

    async def end_pause(self, name: str) -> None:
        """The pause that was asked for with this operation, as it is to be reversed."""
        operation, _ = await self.read(name)
        await self._end_pause(operation)


def checked_id(name: str) -> str:
    """Raises RefusedError (INVALID_REQUEST)."""
    if parse_operation_id(name) is None:
        message = f"{name[:80]!r} is no operation's id: those are <zone id>-<event revision>, as 3-1834"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    return name


def not_found(name: str) -> RefusedError:
    message = f"there is no operation {name}; the newest of each zone are kept, and none of a dropped zone"
    return RefusedError(ErrorKind.OPERATION_NOT_FOUND, message)


def _without_pause(limits: Limits, zone_id: ZoneId) -> Limits:
    left = {zone: pause for zone, pause in limits.zone_pauses.items() if zone != zone_id}
    return replace(limits, zone_pauses=left)


def _illegal(operation: Operation, allowed: str) -> RefusedError:
    why = f" ({operation.cause})" if operation.cause else ""
    message = f"operation {operation.operation_id} is {operation.state.value}{why}: {allowed}"
    return RefusedError(ErrorKind.OPERATION_STATE_ILLEGAL, message)


def _irreversible(operation: Operation, why: str) -> RefusedError:
    message = f"operation {operation.operation_id} cannot be reversed: {why}"
    return RefusedError(ErrorKind.REVERSE_IMPOSSIBLE, message)
