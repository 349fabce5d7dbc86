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
    done: Annotated[int, About("never falls")]


class PartitionShare(Share):
    moving: NotRequired[Annotated[int | None, About("now; only of a single operation")]]
    waiting: NotRequired[Annotated[int | None, About("now; only of a single operation")]]


class CopiedBytes(TypedDict):
    estimated: Annotated[
        int, About("to copy, by the sizes when it began: as plan and EXPLAIN say. 0: nobody had told sizes")
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
    over: Annotated[bool, About("nothing of it is left; a cancelled one still ends what had begun")]
    cause: Annotated[str, About("why it is in this state, where the state alone does not say")]
    zone: Annotated[str, About("the zone's name when it began")]
    zone_id: int
    by: Annotated[str | None, About("who asked; null: nobody, a node came or went")]
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
        str | None, About("when a partition ended, reached a stage or got bytes, or was last held back")
    ]
    stuck: Annotated[
        bool, About("nothing has moved for ten minutes, and no pause, window, limit or drain holds it back")
    ]
    partitions_to_move: Annotated[int, About("placed otherwise than by the target before")]
    progress: OperationProgress


class WaitingBody(TypedDict):
    cause: str
    partitions: int
    numbers: Annotated[list[int], About("the first of them")]


class UnitBody(TypedDict):
    """Copies that one node takes over from another."""

    donor: Annotated[str | None, About("null: a copy more")]
    stealer: Annotated[str | None, About("null: a copy less; the donor itself: its copy's role changes")]
    copies: int
    bytes: Annotated[int, About("to copy: the estimate of when it began")]


class BatchBody(TypedDict):
    batch: int
    partitions: list[int]


class OperationPlanBody(TypedDict):
    units: list[UnitBody]
    batch_size: Annotated[int | None, About("of the limits now; null: no batches")]
    batches: int
    first_batches: Annotated[list[BatchBody], About("in order; nodes without room change it")]


class NoteBody(TypedDict):
    """What was done that concerns the operation."""

    at: Annotated[str, About("UTC")]
    action: Annotated[str, About("as the audit calls it", examples=["PAUSE OPERATION", "CHANGE LIMITS"])]
    by: str | None
    reason: str


class CancelledBody(TypedDict):
    given_up: Annotated[list[int], About("nothing had begun: they stay where they are")]
    going_back: Annotated[list[int], About("they had begun and go back to where they were")]
    begun: Annotated[
        list[int],
        About(
            "too late: a voter of before is gone, or voters are exchanged at this moment; they go "
            "on to their end"
        ),
    ]


class PartitionsCancelled(CancelledBody):
    operation_id: str


class OperationDetail(OperationBody):
    history: Annotated[list[NoteBody], About("since it began, the oldest first; the last 20")]
    waiting: Annotated[list[WaitingBody], About("what does not move, and why, the most frequent cause first")]
    plan: NotRequired[Annotated[OperationPlanBody | None, About("null: a target of it is not stored any more")]]
    cancelled: NotRequired[
        Annotated[
            CancelledBody | None, About("what a cancel has come to for each partition; only in its own answer")
        ]
    ]


class OperationAnswer(OperationDetail, AsOf):
    """Of an operation by its name."""


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
        str | None, About("the operation that goes back; null: no controller has taken it up yet")
    ]
