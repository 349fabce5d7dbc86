"""Messages on a store server's connections: plain values, in the order in which one side sent them.

A connection begins with ``StoreHello`` each way. It delivers in order while it stands, and whatever was on its
way is lost with it: senders repeat (appends until they are acknowledged, the exchange by its tick).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, StorePosition
from rebalance.core.partition_maps.topology_version import NO_VERSION, TopologyVersion
from rebalance.exchange.core.exchange_messages import Message as ExchangeMessage
from rebalance.store.core.log_records import (
    EpochTable,
    KeyChange,
    LogRecord,
    PartitionKey,
    StoredRow,
    StoredWriteId,
    WriteId,
)

WIRE_FORMAT = 1
"""A hello with a higher one is refused."""


@dataclass(frozen=True, slots=True)
class StoreHello:
    """``order``: join order, 0 until the ring has the sender's join. ``finished``: the last exchange that the
    sender finished. A connection of an incarnation that the ring has removed is closed."""

    name: str
    order: int
    incarnation: str
    finished: TopologyVersion = NO_VERSION
    wire_format: int = WIRE_FORMAT


# Clients


class AnswerCode(Enum):
    """``sqlstate`` and whether the same request may simply be sent again.

    A write that reached the log is answered DONE or UNKNOWN and nothing else.
    """

    DONE = ("DONE", "00000")
    NOT_PRIMARY = ("NOT_PRIMARY", "55000")  # another server leads; nothing was done
    NOT_SERVING = ("NOT_SERVING", "57P03")  # not in time, not levelled, or no exchange ended yet
    UNKNOWN = ("UNKNOWN", "40003")  # the write may or may not be done: send it again with its id
    CONFLICT = ("CONFLICT", "40001")  # a key that the transaction read has changed
    TOO_OLD = ("TOO_OLD", "25P03")  # the transaction began too long ago
    NO_ROOM = ("NO_ROOM", "53100")
    TOO_LARGE = ("TOO_LARGE", "54000")
    TOO_MANY = ("TOO_MANY", "53300")  # pending writes of the partition, or requests that wait
    NO_ZONE = ("NO_ZONE", "42704")
    RESTING = ("RESTING", "55006")  # the zone is deactivated
    LOST = ("LOST", "58030")
    WAITING_FOR_OWNERS = ("WAITING_FOR_OWNERS", "57P04")  # in-sync members have not come back yet

    label: str
    sqlstate: str

    def __new__(cls, label: str, sqlstate: str) -> AnswerCode:
        code = object.__new__(cls)
        code._value_ = code.label = label
        code.sqlstate = sqlstate
        return code


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """``request``: the client's number, unique on its connection; the answer has it. ``left_ms``: for so long
    the client waits from when it asks; 0: it does not say."""

    request: int
    zone: ZoneId
    partition: int
    key: bytes
    left_ms: int = 0


@dataclass(frozen=True, slots=True)
class KeyRead:
    """A key that a transaction read: the position of the row, NO_RECORD where there was none."""

    key: bytes
    position: StorePosition


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A put or delete, or with ``reads`` the commit of a transaction that began ``age_ms`` ago. ``left_ms``: as
    of a read. ``abandons``: those of these writes that have not been applied when this one is never will be."""

    request: int
    write: WriteId
    zone: ZoneId
    partition: int
    changes: tuple[KeyChange, ...]
    reads: tuple[KeyRead, ...] = ()
    age_ms: int = 0
    left_ms: int = 0
    abandons: tuple[WriteId, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """``position``: of the record that was written, or of the row that was read (NO_RECORD for none).
    ``version``: the topology version that was used (PME-038). ``primary``: who leads, as far as is known.
    ``repeated``: the write had been done before. ``abandoned``, of a CONFLICT: a later write has abandoned this
    one."""

    request: int
    code: AnswerCode
    version: TopologyVersion = NO_VERSION
    value: bytes | None = None
    position: StorePosition | None = None
    repeated: bool = False
    primary: str = ""
    detail: str = ""
    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class CopyReadRequest:
    """Read the server's own copy as it is on its disk, whichever server leads: to compare copies with each
    other. Its shell answers, as nothing is decided by it. ``keys_bytes`` 0: the value of ``key``; else the keys
    above it, of about so many bytes of rows."""

    request: int
    zone: ZoneId
    partition: int
    key: bytes
    keys_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CopyReadAnswer:
    """``value`` None: it has no such key, or there is no copy. ``keys``: deleted ones too; none when there are
    no more."""

    request: int
    value: bytes | None = None
    keys: tuple[bytes, ...] = ()


class RefillAnswer(Enum):
    """ASKED: the next exchange takes the copy out of the in-sync set, if it still may, and fills it anew.
    NO_COPY: the server owns none, or none that is to stay. LAST_COPY: nobody else who lives is in sync."""

    ASKED = "ASKED"
    NO_COPY = "NO_COPY"
    LAST_COPY = "LAST_COPY"


@dataclass(frozen=True, slots=True)
class CopiesRequest:
    """Ask for the server's copies, whichever server leads: answered at once, also while an exchange runs.
    ``refills``: copies that are to be emptied and filled anew; servers of earlier builds do not see them."""

    request: int
    refills: tuple[PartitionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class CopiesAnswer:
    """Columns of ``rebalance.store.core.store_copy``: one entry for each copy. ``refills``: of those that the
    request names, in its order."""

    request: int
    states: tuple[str, ...]
    zones: bytes
    partitions: bytes
    codes: bytes
    primaries: bytes
    positions: bytes
    filled: bytes
    refills: tuple[RefillAnswer, ...] = ()


# Replication


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Records from the primary to a copy that it waits for. ``basis``: the exchange that made the sender's
    assignments. Records follow each other; the first may be one that the receiver has already. ``settled``: up
    to here every copy that is waited for has the log on its disk, so older records may be cut off."""

    partition: PartitionKey
    basis: TopologyVersion
    records: tuple[LogRecord, ...]
    settled: StorePosition


@dataclass(frozen=True, slots=True)
class RecordsStored:
    """The acknowledgement: everything up to ``position`` is on the sender's disk."""

    partition: PartitionKey
    basis: TopologyVersion
    position: StorePosition


@dataclass(frozen=True, slots=True)
class CopyLevelled:
    """An owner has the highest position found among the owners, on its disk. Repeated by tick until the primary
    answers with ``LevelSeen``."""

    partition: PartitionKey
    basis: TopologyVersion
    position: StorePosition


@dataclass(frozen=True, slots=True)
class LevelSeen:
    partition: PartitionKey
    basis: TopologyVersion


# Supply


class SupplyStage(Enum):
    LOG = "LOG"  # records after the last common position, which the asker's tail is at now
    ROWS = "ROWS"  # a snapshot's rows, by key, tombstones too
    IDS = "IDS"  # a snapshot's operation ids
    REWIND = "REWIND"  # answer only: the asker first goes back to ``common`` and asks again
    RELOAD = "RELOAD"  # answer only: no history from there; the asker clears its copy and asks for ROWS


@dataclass(frozen=True, slots=True)
class SupplyRequest:
    """Ask for the next batch of a copy. The supplier decides how it goes on, from ``tail`` and ``epochs``.

    - ``level``: an owner asks for records only, up to ``until``.
    - ``until``: the supplier answers only once it has this position on its disk.
    - ``stage``: what comes next; LOG at first. ``after``: a position for LOG, a key for ROWS, an id for IDS.
    - ``keys``: of the asker's diverging tail, to be sent as the supplier has them.
    """

    partition: PartitionKey
    basis: TopologyVersion
    level: bool
    until: StorePosition
    tail: StorePosition
    epochs: EpochTable
    stage: SupplyStage
    after: bytes = b""
    keys: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class SupplyBatch:
    """A batch of at most 1 MiB for a copy. ``after``: that of the request, so that an answer that comes twice
    or late is known; None for records. ``next_after``: to go on from, in the same stage; None when the stage is
    over. ``read_at``: the supplier's tail. Rows may be as new as that, so the asker does not own before its own
    stream has come as far. ``last_ms``, with ids: the time of the supplier's last record."""

    partition: PartitionKey
    basis: TopologyVersion
    stage: SupplyStage
    common: StorePosition
    records: tuple[LogRecord, ...] = ()
    rows: tuple[StoredRow, ...] = ()
    ids: tuple[StoredWriteId, ...] = ()
    epochs: EpochTable = ()
    read_at: StorePosition = NO_RECORD
    next_after: bytes | None = None
    last_ms: int = 0
    after: bytes | None = None


# Servers


@dataclass(frozen=True, slots=True)
class PeerPing:
    """Ask a server that an exchange waits for whether it is alive; the answer comes at once."""

    is_answer: bool = False


@dataclass(frozen=True, slots=True)
class ServerRoom:
    """The sender takes new writes, or not; said at its low-water mark and again with each hello."""

    has_room: bool


StoreMessage = (
    StoreHello
    | ReadRequest
    | WriteRequest
    | StoreAnswer
    | CopyReadRequest
    | CopyReadAnswer
    | CopiesRequest
    | CopiesAnswer
    | AppendRecords
    | RecordsStored
    | CopyLevelled
    | LevelSeen
    | SupplyRequest
    | SupplyBatch
    | PeerPing
    | ServerRoom
    | ExchangeMessage
)
