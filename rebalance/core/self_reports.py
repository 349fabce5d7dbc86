"""What processes tell of themselves, for every server's /readyz."""

from __future__ import annotations

from dataclasses import dataclass, field

from catalog.core.codec import Codec, Unknown


@dataclass(frozen=True, slots=True)
class Trouble:
    """A task that has ended ``ends`` times, the last time for ``cause``. ``runs``: it was started again, and
    is not steady yet."""

    task: str
    ends: int
    cause: str
    runs: bool
    unknown: Unknown | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """``defects``: unexpected failures since the process started."""

    role: str
    troubles: tuple[Trouble, ...]
    defects: int
    last_defect: str
    unknown: Unknown | None = field(default=None, compare=False, repr=False)

    def encode(self) -> bytes:
        return _PROCESS.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> ProcessRecord:
        """Raises RecordNotReadableError."""
        return _PROCESS.decode(value)


@dataclass(frozen=True, slots=True)
class WaitingZone:
    """``since_ms``: Unix milliseconds."""

    zone_id: int
    since_ms: int
    unknown: Unknown | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """Spark's state, and the zone that has waited for its placement for longest; None: none for long."""

    state: str
    message: str
    driver_pid: int | None = None
    waiting: WaitingZone | None = None
    unknown: Unknown | None = field(default=None, compare=False, repr=False)

    def encode(self) -> bytes:
        return _ENGINE.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> EngineRecord:
        """Raises RecordNotReadableError."""
        return _ENGINE.decode(value)


_PROCESS = Codec(ProcessRecord)
_ENGINE = Codec(EngineRecord)
