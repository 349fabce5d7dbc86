"""Operations: every change that moves data. Times are UTC."""

from __future__ import annotations

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from app.contract.columns import Long, Moment, Named, SqlKind
from app.contract.marks import About, OneOf
from app.contract.zones import AsOf, ChangedZone, ChangeState, IdOfZone
from rebalance.core.operations.operation import OperationKind, OperationState

KindName = Annotated[str, OneOf(OperationKind)]
StateName = Annotated[str, OneOf(OperationState)]
OperationId = Annotated[
    str, Named("zone id and event revision", "OPERATION_ID", title="Operation", example="3-1834")
]
RequestedBy = Annotated[str | None, Named("who requested it; null: a node joined or left", "REQUESTED_BY")]


class PartitionShare(TypedDict):
    total: Annotated[int, Named(sql="PARTITIONS")]
    done: Annotated[int, Named("never decreases", "PARTITIONS_DONE")]
    moving: NotRequired[Annotated[int | None, About("moving now; only of a single operation")]]
    waiting: NotRequired[Annotated[int | None, About("waiting now; only of a single operation")]]


class CopiedBytes(TypedDict):
    estimated: Annotated[
        Long,
        Named(
            "bytes to copy, by the sizes at the start, as in plan and EXPLAIN; 0: sizes were unknown",
            "BYTES_ESTIMATED",
        ),
    ]
    copied: Annotated[
        Long, Named("so far, measured on the nodes that got copies; may exceed the estimate", "BYTES_COPIED")
    ]


class OperationProgress(TypedDict):
    partitions: PartitionShare
    bytes: CopiedBytes
    bytes_per_s: Annotated[int | None, About("since it began; null while it does not run")]
    seconds_left: Annotated[float | None, About("at the pace so far; null: not known")]


class OperationBody(TypedDict):
    """A change that moves data. Times are UTC."""

    operation_id: OperationId
    zone_id: IdOfZone
    zone: Annotated[str, Named("the zone's name when it began", "ZONE_NAME")]
    kind: Annotated[KindName, Named(sql="KIND")]
    state: Annotated[StateName, Named(sql="STATE")]
    over: Annotated[
        bool,
        Named(
            "nothing of it is left to do; a cancelled one first finishes moves that had started",
            "IS_OVER",
            "is_over",
        ),
    ]
    by: RequestedBy
    verified: Annotated[bool, Named("false: the name is what the client said", "IS_VERIFIED")]
    reason: Annotated[str, Named(sql="REASON")]
    statement: Annotated[str | None, Named("SQL that began it", "STATEMENT")]
    catalog_version: Annotated[Long, Named(sql="CATALOG_VERSION")]
    event_revision: Annotated[Long, Named(sql="EVENT_REVISION")]
    reverses: Annotated[str | None, Named("the operation that this one takes back", "REVERSES")]
    started: Annotated[Moment, Named(sql="STARTED_AT", of="started_ms")]
    begun: Annotated[Moment | None, Named("when its first partition began to move", "BEGUN_AT", "begun_ms")]
    ended: Annotated[Moment | None, Named(sql="ENDED_AT", of="ended_ms")]
    progress: OperationProgress
    cause: Annotated[str, Named("reason of the state, where the state alone does not tell", "CAUSE")]
    parameters: Annotated[
        str, Named("of the zone, that the target was computed for; empty: of a reset", "PARAMETERS")
    ]
    catalog_version_before: Annotated[Long | None, Named(sql="CATALOG_VERSION_BEFORE")]
    event_revision_before: Annotated[
        Long | None, Named("of the stored target that it started from", "EVENT_REVISION_BEFORE")
    ]
    target_revision: Annotated[Long, Named("of the metastore, when its target was named", "TARGET_REVISION")]
    last_progress: Annotated[
        Moment | None,
        Named(
            "last time that a partition ended, reached a stage, got bytes or was held back", "LAST_PROGRESS_AT"
        ),
    ]
    stuck: Annotated[
        bool,
        Named(
            "nothing has moved for ten minutes, and no pause, window, limit or drain holds it back", "IS_STUCK"
        ),
    ]
    partitions_to_move: Annotated[
        int, Named("partitions whose assignment changes", "PARTITIONS_TO_MOVE", "moves")
    ]


class ChangeEvent(ChangedZone):
    event_revision: Annotated[Long | None, Named("highest of its intent and its data nodes", "EVENT_REVISION")]


class RunningChange(ChangeEvent, ChangeState):
    """Change of a zone that is not over, with the operation of its newest target."""

    operation_id: OperationId
    kind: Annotated[KindName, Named(sql="KIND")]
    operation_state: Annotated[StateName, Named(sql="OPERATION_STATE", of="state")]
    by: RequestedBy
    started: Annotated[Moment, Named(sql="STARTED_AT", of="started_ms")]


class WaitingBody(TypedDict):
    cause: str
    partitions: int
    numbers: Annotated[list[int], About("the first of them")]


class UnitBody(TypedDict):
    """Copies that one node takes over from another."""

    donor: Annotated[str | None, About("null: an additional copy")]
    stealer: Annotated[
        str | None, About("null: a copy is removed; the donor itself: only the role of its copy changes")
    ]
    copies: int
    bytes: Annotated[int, About("bytes to copy, estimated at the start")]


class BatchBody(TypedDict):
    batch: int
    partitions: list[int]


class OperationPlanBody(TypedDict):
    units: list[UnitBody]
    batch_size: Annotated[int | None, About("current limit; null: no batches")]
    batches: int
    first_batches: Annotated[list[BatchBody], About("in order, as far as nodes have room")]


class NoteBody(TypedDict):
    """An action that concerns the operation."""

    at: Annotated[Moment, Named(of="at_ms")]
    action: Annotated[str, About("action, as in the audit log", examples=["PAUSE OPERATION", "CHANGE LIMITS"])]
    by: str | None
    reason: str


class CancelledBody(TypedDict):
    given_up: Annotated[list[int], About("nothing had begun: they stay where they are")]
    going_back: Annotated[list[int], About("they had begun and go back to where they were")]
    begun: Annotated[
        list[int],
        About("too late: a previous voter has been removed, or voters are being exchanged; they finish"),
    ]


class PartitionsCancelled(CancelledBody):
    operation_id: str


class RememberedOperation(OperationBody):
    """Operation with the history of the actions on it."""

    history: Annotated[list[NoteBody], SqlKind("varchar"), Named("last 20 actions, oldest first", "HISTORY")]


class OperationDetail(RememberedOperation):
    waiting: Annotated[list[WaitingBody], About("waiting partitions by cause, most frequent first")]
    plan: NotRequired[Annotated[OperationPlanBody | None, About("null: its targets are no longer stored")]]
    cancelled: NotRequired[
        Annotated[CancelledBody | None, About("outcome for each partition; only in the answer to a cancel")]
    ]


class OperationAnswer(OperationDetail, AsOf):
    """One operation."""


class Operations(AsOf):
    operations: Annotated[list[OperationBody], About("the newest first")]
    next_page_token: Annotated[str | None, About("opaque; null: these were the last")]


class FinaliseAnswer(TypedDict):
    operation_id: str
    dry_run: bool
    copies: Annotated[int, About("kept copies that nodes delete now, or when they are back")]


class ReverseAnswer(TypedDict):
    reverses: str
    catalog_version: Annotated[int, About("the new version, with the zone as it was before")]
    operation_id: Annotated[
        str | None, About("the reversing operation; null: no controller has started it yet")
    ]
