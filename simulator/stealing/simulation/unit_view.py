"""A unit of migration as others see it (VOL-061)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from simulator.stealing.core.steal_plan import StealUnit
from simulator.stealing.core.steal_schedule import StealProgress


class JobStatus(Enum):
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class JobView:
    """Row of a list of jobs. ``copied``: keys that came from the donor."""

    number: int
    description: str
    status: JobStatus
    progress: StealProgress
    attempts: int = 0
    copied: int = 0
    error: str = ""


class Job(Protocol):
    """A unit that runs on its stealer in ``task``."""

    unit: StealUnit
    task: asyncio.Task[None]
    view: JobView

    def stop(self) -> None:
        """Stop the job; one that has ended stays as it is."""
