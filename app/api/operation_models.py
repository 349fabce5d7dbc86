"""Bodies of the operations' resources."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from app.api.bodies import Person, RequestBody, Whole
from app.api.models import Reason
from catalog.core.zone_options import PARTITIONS_MAX

DAYS_MAX = 366

PartitionNumber = Annotated[Whole, Field(ge=0, lt=PARTITIONS_MAX)]

KindName = Literal["CREATE_ZONE", "ALTER_ZONE", "NODES_CHANGED", "DRAIN", "RESET", "REVERSE", "ADOPTED"]
StateName = Literal["WAITING", "RUNNING", "PAUSED", "DONE", "CANCELLED", "FAILED", "SUPERSEDED", "REVERSED"]


class Share(BaseModel):
    total: int
    done: int = Field(description="never falls")


class PartitionShare(Share):
    moving: int | None = Field(None, description="now; only of a single operation")
    waiting: int | None = Field(None, description="now; only of a single operation")


class CopiedBytes(BaseModel):
    estimated: int = Field(
        description="to copy, by the sizes when it began: as plan and EXPLAIN say. 0: nobody had told sizes"
    )
    copied: int = Field(description="so far, measured on the nodes that got copies; may exceed the estimate")


class OperationProgress(BaseModel):
    partitions: PartitionShare
    bytes: CopiedBytes
    bytes_per_s: int | None = Field(description="since it began; null while it does not run")
    seconds_left: float | None = Field(description="at the pace so far; null: not known")


class OperationBody(BaseModel):
    """A change that moves data. Times are UTC."""

    operation_id: str = Field(examples=["3-1834"], description="zone id and event revision")
    kind: KindName
    state: StateName
    over: bool = Field(description="nothing of it is left; a cancelled one still ends what had begun")
    cause: str = Field(description="why it is in this state, where the state alone does not say")
    zone: str = Field(description="the zone's name when it began")
    zone_id: int
    by: str | None = Field(description="who asked; null: nobody, a node came or went")
    verified: bool = Field(description="false: the name is what the client said")
    reason: str
    statement: str | None = Field(description="SQL that began it")
    parameters: str = Field(description="of the zone, that the target was computed for; empty: of a reset")
    catalog_version: int
    catalog_version_before: int | None
    event_revision: int
    event_revision_before: int | None = Field(description="of the stored target that it started from")
    target_revision: int = Field(description="of the metastore, at which its target was named")
    reverses: str | None = Field(description="the operation that this one takes back")
    started: str
    begun: str | None = Field(description="when its first partition began to move")
    ended: str | None
    partitions_to_move: int = Field(description="placed otherwise than by the target before")
    progress: OperationProgress


class WaitingBody(BaseModel):
    cause: str
    partitions: int
    numbers: list[int] = Field(description="the first of them")


class UnitBody(BaseModel):
    """Copies that one node takes over from another."""

    donor: str | None = Field(description="null: a copy more")
    stealer: str | None = Field(description="null: a copy less; the donor itself: its copy's role changes")
    copies: int
    bytes: int = Field(description="to copy: the estimate of when it began")


class BatchBody(BaseModel):
    batch: int
    partitions: list[int]


class OperationPlanBody(BaseModel):
    units: list[UnitBody]
    batch_size: int | None = Field(description="of the limits now; null: no batches")
    batches: int
    first_batches: list[BatchBody] = Field(description="in order; nodes without room change it")


class NoteBody(BaseModel):
    """What was done that concerns the operation."""

    at: str = Field(description="UTC")
    action: str = Field(description="as the audit calls it", examples=["PAUSE OPERATION", "CHANGE LIMITS"])
    by: str | None
    reason: str


class CancelledBody(BaseModel):
    given_up: list[int] = Field(description="nothing had begun: they stay where they are")
    going_back: list[int] = Field(description="they had begun and go back to where they were")
    begun: list[int] = Field(
        description="too late: a voter of before is gone, or voters are exchanged at this moment; they go on "
        "to their end"
    )


class PartitionsCancelled(CancelledBody):
    operation_id: str


class OperationDetail(OperationBody):
    history: list[NoteBody] = Field(description="since it began, the oldest first; the last 20")
    waiting: list[WaitingBody] = Field(description="what does not move, and why, the most frequent cause first")
    plan: OperationPlanBody | None = Field(None, description="null: a target of it is not stored any more")
    cancelled: CancelledBody | None = Field(
        None, description="what a cancel has come to for each partition; only in its own answer"
    )


class Operations(BaseModel):
    operations: list[OperationBody] = Field(description="the newest first")
    next_page_token: str | None = Field(description="opaque; null: these were the last")


class ActionRequest(RequestBody):
    by: Person | None = Field(None, description="who asks, where no proxy says; null: the header's")
    reason: Reason = ""


class OperationPause(ActionRequest):
    for_s: float | None = Field(
        None, gt=0, le=DAYS_MAX * 86_400, description="ends by itself after so many seconds; null: never"
    )


class PartitionsCancel(ActionRequest):
    partitions: list[PartitionNumber] = Field(min_length=1, max_length=PARTITIONS_MAX, examples=[[3, 4]])


class FinaliseRequest(ActionRequest):
    """Either ``dry_run``, or the number of copies that it has shown."""

    dry_run: bool = Field(False, description="only say how many copies would be deleted")
    copies: int | None = Field(
        None, ge=0, description="as a dry run showed: when it is another number by now, nothing is done (409)"
    )


class FinaliseAnswer(BaseModel):
    operation_id: str
    dry_run: bool
    copies: int = Field(description="kept copies that nodes delete now, or when they are back")


class ReverseAnswer(BaseModel):
    reverses: str
    catalog_version: int = Field(description="the new version, with the zone as it was before")
    operation_id: str | None = Field(
        description="the operation that goes back; null: no controller has taken it up yet"
    )
