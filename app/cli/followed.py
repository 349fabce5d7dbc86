"""What is followed until it has converged, and where that is shown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self


@dataclass(frozen=True, slots=True)
class FollowedChange:
    """A zone as of a catalog version: what is followed."""

    zone_id: int
    zone: str
    version: int


@dataclass(frozen=True, slots=True)
class FollowProgress:
    """Partitions of one zone; ``causes`` says why some wait: (cause, partitions)."""

    zone: str
    converged: bool
    total: int
    done: int
    moving: int
    waiting: int
    causes: tuple[tuple[str, int], ...] = ()
    engine: str | None = None

    @classmethod
    def from_body(cls, zone: str, body: Mapping[str, Any]) -> FollowProgress:
        counts = body.get("partitions") or {}
        return cls(
            zone=zone,
            converged=body["state"] == "CONVERGED",
            total=counts.get("total", 0),
            done=counts.get("done", 0),
            moving=counts.get("moving", 0),
            waiting=counts.get("waiting", 0),
            causes=tuple((str(item["cause"]), int(item["partitions"])) for item in body.get("causes") or ()),
            engine=body.get("engine"),
        )

    def counts(self) -> str:
        """``5/8 done, 2 moving, 1 waiting``."""
        return f"{self.done}/{self.total} done, {self.moving} moving, {self.waiting} waiting"

    def reasons(self) -> str:
        """``NODE_DOWN: n3 (1); ...``, empty when nothing waits."""
        return "; ".join(f"{cause} ({partitions})" for cause, partitions in self.causes)


class ProgressView(AbstractContextManager["ProgressView"], Protocol):
    """Where progress is shown; a view ignores what it has shown already."""

    def __enter__(self) -> Self: ...

    def update(self, change: FollowedChange, progress: FollowProgress) -> None: ...

    def note(self, text: str) -> None:
        """A line for people that is not progress of a zone."""
        ...
