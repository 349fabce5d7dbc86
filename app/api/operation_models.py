"""Bodies of the operations' resources."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.api.bodies import Person, Reason, RequestBody, Whole
from catalog.core.zone_options import PARTITIONS_MAX

DAYS_MAX = 366

PartitionNumber = Annotated[Whole, Field(ge=0, lt=PARTITIONS_MAX)]


class ActionRequest(RequestBody):
    by: Person | None = Field(
        None, description="name recorded in the audit log if no proxy supplies one; null: the header's"
    )
    reason: Reason = ""


class OperationPause(ActionRequest):
    for_s: float | None = Field(
        None, gt=0, le=DAYS_MAX * 86_400, description="duration in seconds; null: no end"
    )


class PartitionsCancel(ActionRequest):
    partitions: list[PartitionNumber] = Field(min_length=1, max_length=PARTITIONS_MAX, examples=[[3, 4]])


class FinaliseRequest(ActionRequest):
    """Either ``dry_run``, or the number of copies that it has shown."""

    dry_run: bool = Field(False, description="only say how many copies would be deleted")
    copies: int | None = Field(
        None,
        ge=0,
        description="number that a dry run has shown; if it has changed since, nothing is done (409)",
    )
