"""Inputs of a store server's core, one at a time and in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass

from rebalance.core.admission.move_admission import ByteRates
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_messages import ResultRecord
from rebalance.store.core.ring_records import IdealLists, RingRecord
from rebalance.store.core.store_messages import CopiesRequest, ReadRequest, StoreMessage, WriteRequest


@dataclass(frozen=True, slots=True)
class Ticked:
    """Some ten times a second. ``clock_ms``: CLOCK_BOOTTIME, which never goes back. Every input is understood
    at the time of the last tick before it; the shell ticks before a batch of inputs that waited."""

    clock_ms: int


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """A message from a connection whose hello named this sender."""

    sender: str
    order: int
    message: StoreMessage


@dataclass(frozen=True, slots=True)
class ServerConnected:
    """A connection stands in both directions; what was sent before may not have arrived."""

    name: str
    order: int


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """``client``: the shell's number of the connection."""

    client: int
    request: ReadRequest | WriteRequest


@dataclass(frozen=True, slots=True)
class CopiesAsked:
    client: int
    request: CopiesRequest


@dataclass(frozen=True, slots=True)
class ClientGone:
    client: int


@dataclass(frozen=True, slots=True)
class DiskDone:
    """The transaction is on the disk and synced."""

    ticket: int


@dataclass(frozen=True, slots=True)
class DiskRefused:
    """A transaction of which nothing was done. ``no_room``: the map or the disk is full; otherwise the process
    must end."""

    ticket: int
    no_room: bool


@dataclass(frozen=True, slots=True)
class RoomChanged:
    """The low-water mark was crossed."""

    has_room: bool


@dataclass(frozen=True, slots=True)
class RatesChanged:
    """The limits of bandwidth are these now."""

    rates: ByteRates


@dataclass(frozen=True, slots=True)
class RingHeard:
    """The ring's next events, without a gap."""

    records: tuple[RingRecord, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatDone:
    ticket: int


@dataclass(frozen=True, slots=True)
class HeartbeatRefused:
    """``exchange/evicting/<name>`` exists, or the key of this incarnation is gone."""

    ticket: int


@dataclass(frozen=True, slots=True)
class TargetsRead:
    ticket: int
    lists: IdealLists


@dataclass(frozen=True, slots=True)
class ResultCommitted:
    version: TopologyVersion


@dataclass(frozen=True, slots=True)
class ResultExists:
    """Results after the one that the record named as its predecessor, in order."""

    records: tuple[ResultRecord, ...]


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """The operator or the agent ends the server in order."""


StoreInput = (
    Ticked
    | ServerMessage
    | ServerConnected
    | ClientRequest
    | CopiesAsked
    | ClientGone
    | DiskDone
    | DiskRefused
    | RoomChanged
    | RatesChanged
    | RingHeard
    | HeartbeatDone
    | HeartbeatRefused
    | TargetsRead
    | ResultCommitted
    | ResultExists
    | LeaveAsked
)
