"""Operations: every change that moves data. Times are UTC."""

from __future__ import annotations

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from app.contract.marks import About, OneOf
from app.contract.zones import AsOf
from rebalance.core.operation import OperationKind, OperationState

KindName = Annotated[str, OneOf(OperationKind)]
StateName = Annotated[str, OneOf(OperationState)]


class Share(TypedDict):
    total: int
    done: Annotated[int, About("never decreases")]


class PartitionShare(Share):
    moving: NotRequired[Annotated[int | None, About("moving now; only of a single operation")]]
    waiting: NotRequired[Annotated[int | None, About("moving now; only of a single operation")]]


class CopiedBytes(TypedDict):
    estimated: Annotated[
        int, About("bytes to copy, by the sizes at the start, as in plan and EXPLAIN; 0: sizes were unknown")
    ]
    copied: Annotated[int, About("so far, measured on the nodes that got copies; may exceed the estimate")]


class OperationProgress(TypedDict):
    partitions: PartitionShare
    bytes: CopiedBytes
    bytes_per_s: Annotated[int | None, About("since it began; null while it does not run")]
    seconds_left: Annotated[float | None, About("at the pace so far; null: not known")]


class OperationBody(TypedDict):
    """A change that moves data. Times are UTC."""

    operation_id: Annotated[str, About("zone id and event revision", examples=["3-1834"])]
    kind: KindName
    state: StateName
    over: Annotated[
        bool, About("nothing of it is left to do; a cancelled one first finishes moves that had started")
    ]
    cause: Annotated[str, About("reason of the state, where the state alone does not tell")]
    zone: Annotated[str, About("the zone's name when it began")]
    zone_id: int
    by: Annotated[str | None, About("user who requested it; null: a node joined or left")]
    verified: Annotated[bool, About("false: the name is what the client said")]
    reason: str
    statement: Annotated[str | None, About("SQL that began it")]
    parameters: Annotated[str, About("of the zone, that the target was computed for; empty: of a reset")]
    catalog_version: int
    catalog_version_before: int | None
    event_revision: int
    event_revision_before: Annotated[int | None, About("of the stored target that it started from")]
    target_revision: Annotated[int, About("of the metastore, at which its target was named")]
    reverses: Annotated[str | None, About("the operation that this one takes back")]
    started: str
    begun: Annotated[str | None, About("when its first partition began to move")]
    ended: str | None
    last_progress: Annotated[
        str | None, About("last time that a partition ended, reached a stage, got bytes or was held back")
    ]
    stuck: Annotated[
        bool, About("nothing has moved for ten minutes, and no pause, window, limit or drain holds it back")
    ]
    partitions_to_move: Annotated[int, About("partitions whose assignment changes")]
    progress: OperationProgress


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

    at: Annotated[str, About("UTC")]
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


class OperationDetail(OperationBody):
    history: Annotated[list[NoteBody], About("the last 20 actions, oldest first")]
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
