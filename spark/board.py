"""Report of a driver process about itself: one state, changed by its main thread and read by its server's."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum, IntEnum


class DriverState(Enum):
    """STARTING: Spark warms up. READY: it takes placements. FAILED: it could not start; the process ends as
    soon as its engine has read why."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


class JobExitCode(IntEnum):
    """Exit code of the driver process. NOT_STARTED: it posted why. JVM_LOST: the JVM ended, however.
    CONTEXT_STOPPED: Spark shut down by itself, as it does when its master has been gone for a while."""

    NOT_STARTED = 3
    JVM_LOST = 4
    CONTEXT_STOPPED = 5


@dataclass(frozen=True, slots=True)
class JobReport:
    state: DriverState
    message: str


class Board:
    """The state with waiting for a change of it, and for somebody having read the last one."""

    def __init__(self) -> None:
        self.report = JobReport(DriverState.STARTING, "Spark's JVM is starting")
        self._read = False
        self._changed = threading.Condition()

    def post(self, state: DriverState, message: str) -> None:
        with self._changed:
            self.report = JobReport(state, message)
            self._read = False
            self._changed.notify_all()

    def mark_read(self, report: JobReport) -> None:
        with self._changed:
            if report is self.report:
                self._read = True
                self._changed.notify_all()

    def wait_changed(self, known: JobReport, timeout_s: float) -> JobReport:
        """The report once it is another than ``known``, or the same one after ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: self.report is not known, timeout_s)
            return self.report

    def wait_read(self, timeout_s: float) -> bool:
        """Wait; True if the present report was read within ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._read, timeout_s)
