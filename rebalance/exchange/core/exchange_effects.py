"""Requests of an exchange worker to the node that it works for: plain values, carried out in order.

Those that say "answer" are answered by a call of the worker later; all others are done at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import TopologyVersion, ZoneSpec
from rebalance.exchange.core.exchange_messages import FullMessage, Message, ResultRecord
from rebalance.exchange.core.exchange_states import ExchangeType, Phase
from rebalance.exchange.core.late_affinity import ZoneAffinity
from rebalance.exchange.core.partition_analysis import Difference


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message from node to node; it may get lost."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Entered:
    """The begin of a phase of an exchange, for logs and traces. ``awaited``: whom a coordinator waits for."""

    version: TopologyVersion
    type: ExchangeType
    phase: Phase
    awaited: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class OpenZones:
    version: TopologyVersion
    zones: tuple[ZoneSpec, ...]


@dataclass(frozen=True, slots=True)
class CloseZones:
    """New updates of these zones fail at once."""

    version: TopologyVersion
    zones: tuple[ZoneId, ...]


@dataclass(frozen=True, slots=True)
class TakeTopology:
    """Make this exchange the topology future, under the topology's write lock. Answer: ``topology_taken``."""

    version: TopologyVersion


@dataclass(frozen=True, slots=True)
class AwaitUpdates:
    """Wait until no update of an earlier version is open here; one that takes too long is rolled back.
    ``commits``: the second time, after the latch. Answer: ``updates_ended``."""

    version: TopologyVersion
    commits: bool


@dataclass(frozen=True, slots=True)
class Prepare:
    """Reserve history, restore copies, create those that ``wanted`` names and that are missing; from then on no
    copy changes its state until ``Apply``. Answer: ``prepared``."""

    version: TopologyVersion
    wanted: Mapping[ZoneId, frozenset[int]]


@dataclass(frozen=True, slots=True)
class KeepResult:
    """Commit what was concluded, if no other result follows ``record.previous``. Answer: ``result_kept``, or
    ``result_exists`` with what is there."""

    record: ResultRecord


@dataclass(frozen=True, slots=True)
class Apply:
    """The states of this node's copies are those of the message now."""

    message: FullMessage
    affinities: Mapping[ZoneId, ZoneAffinity]


@dataclass(frozen=True, slots=True)
class Finished:
    """The topology future is done: ``version`` holds. ``merged``: exchanges that ended with it and never
    run."""

    version: TopologyVersion
    type: ExchangeType
    merged: tuple[TopologyVersion, ...] = ()


@dataclass(frozen=True, slots=True)
class AskSwitch:
    """Put an AFFINITY_CHANGE with this basis on the ring: every late primary is ready."""

    basis: TopologyVersion


@dataclass(frozen=True, slots=True)
class Warn:
    difference: Difference


Effect = (
    Send
    | Entered
    | OpenZones
    | CloseZones
    | TakeTopology
    | AwaitUpdates
    | Prepare
    | KeepResult
    | Apply
    | Finished
    | AskSwitch
    | Warn
)
