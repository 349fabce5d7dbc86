"""Requests of a store server's core to its shell: plain values, carried out in order. What is answered later
has a ticket.

The shell adds nothing of its own but this: right before the bytes of a ``Reply`` go to the socket it looks at
the clock, and where ``until_ms`` is over it sends the reply's ``late`` code instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_effects import Entered, Warn
from rebalance.exchange.core.exchange_messages import ResultRecord
from rebalance.store.core.disk_changes import DiskChange
from rebalance.store.core.exchange_record import ExchangeRecord
from rebalance.store.core.store_messages import AnswerCode, CopiesAnswer, StoreAnswer, StoreMessage


@dataclass(frozen=True, slots=True)
class WriteDisk:
    """One transaction, synced. Answer: ``DiskDone`` or ``DiskRefused``; a failed sync ends the process. No
    other one is asked for until then."""

    ticket: int
    changes: tuple[DiskChange, ...]


@dataclass(frozen=True, slots=True)
class SendServer:
    """Send a message to the server of that name with that join order; dropped without a connection to it.
    Messages to one server that are asked for together go as one."""

    to: str
    order: int
    message: StoreMessage


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a client's connection, if it is still there. ``until_ms`` is of the clock that ticks have."""

    client: int
    answer: StoreAnswer
    until_ms: int
    late: AnswerCode


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Write ``exchange/servers/<name>/<incarnation>`` where ``exchange/evicting/<name>`` does not exist.
    Answer: ``HeartbeatDone`` or ``HeartbeatRefused`` with the ticket; none if it was not
    heard of. Several may be under way."""

    ticket: int
    finished: TopologyVersion


@dataclass(frozen=True, slots=True)
class ReadTargets:
    """Read the ideal lists of these zones as of each one's revision. Answer: ``TargetsRead``."""

    ticket: int
    zones: tuple[tuple[ZoneId, int], ...]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Create ``exchange/results/<exchange>`` and set ``exchange/results/last``, if that is ``record.previous``;
    large ones in chunks, the last transaction decides. Answer: ``ResultCommitted``, or ``ResultExists`` with
    the records after ``record.previous``. Asked again when neither is heard of."""

    record: ResultRecord


@dataclass(frozen=True, slots=True)
class AskAffinityChange:
    """Append AFFINITY_CHANGE with this basis to the ring, if no event but those of clients came after it."""

    basis: TopologyVersion


@dataclass(frozen=True, slots=True)
class SetSuspect:
    """Write (or delete) ``exchange/suspects/<own name>/<whom>``, if ``whom`` is still the member of ``order``:
    what comes late is not about its successor."""

    whom: str
    order: int
    suspected: bool


@dataclass(frozen=True, slots=True)
class CloseConnections:
    """Close the connections of an incarnation that the ring has removed; its messages that were received and
    not yet handed in go too."""

    name: str
    order: int


@dataclass(frozen=True, slots=True)
class StopServer:
    """The process ends; a server under this name starts as a new incarnation."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaveRing:
    """Append NODE_LEFT for this incarnation, as everything is closed, drained and answered; then end."""


@dataclass(frozen=True, slots=True)
class TellCopies:
    """List the copies on a client's connection; no clock matters."""

    client: int
    answer: CopiesAnswer


@dataclass(frozen=True, slots=True)
class MapsHeld:
    """Maps of an exchange, for the log, a line for each zone: full maps that hold here (PME-106), or with
    ``is_single`` this server's own maps, as it tells them in one (PME-063)."""

    lines: tuple[str, ...]
    is_single: bool = False


@dataclass(frozen=True, slots=True)
class PublishExchange:
    """Write ``exchange/log/<exchange>``, for people. It may get lost."""

    record: ExchangeRecord


StoreEffect = (
    WriteDisk
    | SendServer
    | Reply
    | SendHeartbeat
    | ReadTargets
    | CommitResult
    | AskAffinityChange
    | SetSuspect
    | CloseConnections
    | StopServer
    | LeaveRing
    | TellCopies
    | MapsHeld
    | PublishExchange
    | Entered
    | Warn
)
