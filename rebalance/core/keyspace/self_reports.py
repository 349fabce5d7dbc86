"""What processes tell of themselves, for every server's /readyz."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from catalog.core.codec import Codec, Extensible, Record
from catalog.core.level import NO_LEVEL

DISK_FULL_SHARE = 0.02
"""A disk of which less is free counts as full."""

_OF_STORE = " store"


def store_name(node: str) -> str:
    """Of the process that is a node's store server. No node's own name has a space."""
    return f"{node}{_OF_STORE}"


def is_store(process: str) -> bool:
    """Whether the process is the store server of a node, which starts and stops it."""
    return process.endswith(_OF_STORE)


class ProcessRole(Enum):
    """The kinds of processes. A server that runs controllers speaks for them too."""

    SERVER = "server"
    CONTROLLER = "controller"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Trouble(Extensible):
    """A task that has ended ``ends`` times, the last time for ``cause``. ``runs``: it was started again, and
    is not steady yet."""

    task: str
    ends: int
    cause: str
    runs: bool


@dataclass(frozen=True, slots=True)
class ProcessRecord(Record):
    """``defects``: unexpected failures since the process started. ``build``: the version that runs, made of
    ``commit``, of release level ``level`` (0: of a build that knows of none).
    ``formats``: of the records that it reads. ``metrics``: URL at which it is scraped; empty: it is not.
    ``disk_full``: the disk of its data directory has less than ``DISK_FULL_SHARE`` left.
    ``certificate``: of those that it has loaded, authorities among them, the file of the one that ends first,
    at ``certificate_end_s`` since 1970; empty: it has none."""

    role: str
    troubles: tuple[Trouble, ...] = ()
    defects: int = 0
    last_defect: str = ""
    build: str = ""
    formats: tuple[int, ...] = ()
    metrics: str = ""
    disk_full: bool = False
    certificate: str = ""
    certificate_end_s: int = 0
    commit: str = ""
    level: int = NO_LEVEL


@dataclass(frozen=True, slots=True)
class WaitingZone(Extensible):
    """``since_ms``: Unix milliseconds."""

    zone_id: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class EngineRecord(Record):
    """Spark's state, and the zone that has waited for its placement for longest; None: none for long."""

    state: str
    message: str
    driver_pid: int | None = None
    waiting: WaitingZone | None = None


ProcessRecord.codec = Codec(
    ProcessRecord,
    # They came later than the rest.
    omit=(
        *("build", "formats", "metrics", "disk_full", "certificate", "certificate_end_s"),
        *("commit", "level"),
    ),
    required=("troubles", "defects", "last_defect"),
)
EngineRecord.codec = Codec(EngineRecord)
