"""Admission: which partitions of a target may begin to move now, and what the others wait for (design, step 9).

A partition that is not admitted *waits*: stable differs from the target, there is no pending, and its trigger
is as it was. Nothing is stored about it, so a newer target simply replaces what waits, and the next leader
finds the same. Only the *beginning* of a move is admitted: an event on a partition that moves is never held
back, and neither is the creation of a group.

What moves is what has pending. Caps count it from the metastore each time, never from memory.

Bandwidth is kept by token buckets for the bytes of what began lately, of the cluster and of each node. A bucket
holds what a rate gives in ``BURST_S`` seconds. Moves begin while it is not used up, whatever their size; each
takes the bytes of its copies out, and what is missing comes back at the rate. So a partition that is larger
than the bucket begins as any other one, and what comes after it waits as long as it takes: nothing waits for
ever, and over a long time the bytes stay within the rate (over T seconds: at most rate * (T + ``BURST_S``), and
one partition's more).

Bytes are those of copies at the moment that a move begins; how fast nodes then copy is for the network to say.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from catalog.core.codec import Codec, Form, Record, Unknown, mapping, optional, text
from catalog.core.zone import ZoneId
from rebalance.core.admission.limit_options import CAPS, LIMIT_OPTIONS, RATES, LimitValues, next_opening
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.txn import KeyValue

BURST_S = 1.0


@dataclass(frozen=True, slots=True)
class ByteRates:
    """Bytes a second: of all moves, and onto or away from each node. None: any."""

    cluster_bytes_s: int | None = None
    node_bytes_s: int | None = None

    @property
    def is_limiting(self) -> bool:
        return self.cluster_bytes_s is not None or self.node_bytes_s is not None


@dataclass(slots=True)
class TokenBuckets:
    """Bytes that are taken out of the buckets and have not come back, as of ``at_ms`` (since 1970).

    They are stored with each admission, so that the next leading controller, and every server, knows them.
    """

    at_ms: int = 0
    cluster: float = 0.0
    nodes: dict[str, float] = field(default_factory=dict)
    unknown: Unknown | None = field(default=None, compare=False, repr=False)

    def at(self, now_ms: int, rates: ByteRates) -> TokenBuckets:
        """Return the buckets as of ``now_ms``. A clock that is behind changes nothing."""
        elapsed_s = max(0, now_ms - self.at_ms) / 1_000
        cluster = _left(self.cluster, rates.cluster_bytes_s, elapsed_s)
        nodes = {name: _left(taken, rates.node_bytes_s, elapsed_s) for name, taken in self.nodes.items()}
        left = {name: taken for name, taken in nodes.items() if taken > 0}
        return replace(self, at_ms=max(now_ms, self.at_ms), cluster=cluster, nodes=left)

    def take(self, donors: tuple[str, ...], receivers: tuple[str, ...], size: int) -> None:
        """A move begins that makes a copy of ``size`` bytes on each receiver; donors share the sending."""
        total = size * len(receivers)
        self.cluster += total
        for node in receivers:
            self.nodes[node] = self.nodes.get(node, 0.0) + size
        for node in donors:
            self.nodes[node] = self.nodes.get(node, 0.0) + total / len(donors)

    def cluster_cause(self, rates: ByteRates) -> str:
        """Cause that holds back every move of the cluster; empty: none does."""
        if not _is_used_up(self.cluster, rates.cluster_bytes_s):
            return ""
        return Cause.BANDWIDTH.text(f"the cluster's {rate_text(rates.cluster_bytes_s)} are used up")

    def node_cause(self, node: str, rates: ByteRates) -> str:
        """Cause that holds back every move that loads ``node``; empty: none does."""
        if not _is_used_up(self.nodes.get(node, 0.0), rates.node_bytes_s):
            return ""
        return Cause.BANDWIDTH.text(f"{node}'s {rate_text(rates.node_bytes_s)} are used up")

    def next_open_ms(self, rates: ByteRates) -> int | None:
        """Time at which the next of the buckets that are used up is not any more, in milliseconds since 1970;
        None: none is used up."""
        waits = [_wait_s(self.cluster, rates.cluster_bytes_s)]
        waits += [_wait_s(taken, rates.node_bytes_s) for taken in self.nodes.values()]
        wait_s = min((wait for wait in waits if wait is not None), default=None)
        return None if wait_s is None else self.at_ms + int(wait_s * 1_000) + 1


@dataclass(frozen=True, slots=True)
class AdmissionRecord(Record):
    """Number of ``partitions`` that the last admission under limits has begun; with ``buckets`` where a rate
    holds."""

    partitions: int
    buckets: TokenBuckets | None = None


AdmissionRecord.codec = Codec(AdmissionRecord, omit=("buckets",))


def buckets_of(admission: AdmissionRecord | None) -> TokenBuckets:
    """Copy of the buckets of the last admission; full ones where there was none, or none under a rate."""
    buckets = admission.buckets if admission is not None else None
    return replace(buckets, nodes=dict(buckets.nodes)) if buckets is not None else TokenBuckets()


def _left(taken: float, rate: int | None, elapsed_s: float) -> float:
    """A bucket without a rate is full."""
    return 0.0 if rate is None else max(0.0, taken - rate * elapsed_s)


def _is_used_up(taken: float, rate: int | None) -> bool:
    return rate is not None and taken >= rate * BURST_S


def _wait_s(taken: float, rate: int | None) -> float | None:
    if rate is None or not _is_used_up(taken, rate):
        return None
    return (taken - rate * BURST_S) / rate


def rate_text(rate: int | None) -> str:
    """``4 MiB/s``, ``1.5 GiB/s``."""
    value, unit = float(rate or 0), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1_024:
            break
        value, unit = value / 1_024, larger
    return f"{value:.4g} {unit}/s"


NO_LIMIT = 1 << 60


@dataclass(frozen=True, slots=True)
class Pause:
    """No move begins from ``since_ms`` until ``until_ms`` (None: until somebody resumes), in milliseconds since
    1970. Controllers' clocks decide; the deadline is stored, so a restart changes nothing."""

    by: str
    reason: str
    since_ms: int
    until_ms: int | None = None
    operation: str = ""
    """The operation that it was asked for with; a zone's pause holds its later ones back as well."""
    unknown: Unknown | None = field(default=None, compare=False, repr=False)

    def holds(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms

    def summary(self) -> str:
        """``by alice: new disks, until 2026-01-01T10:00:00Z``."""
        reason = f": {self.reason}" if self.reason else ""
        return f"by {self.by}{reason}" + (f", until {utc(self.until_ms)}" if self.until_ms is not None else "")


def utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Limits(LimitValues):
    """Limits of the moves that may begin, and pauses. ``pause`` is the cluster's, ``zone_pauses`` are those
    of single zones.

    With ``batch_size`` the next moves of a zone begin when none of the last batch moves any more. With
    ``one_operation`` the moves of the next operation wait for the end of the one before (VOL-010). What moves
    while ``rebalancing`` is turned off goes on (VOL-097). ``operation_s``, ``copy_attempts`` and ``copy_s``:
    VOL-098, VOL-099; ``keep_copies``: VOL-093, VOL-094. Nodes keep to ``copy_attempts``, ``copy_s``,
    ``joiner_s``, ``keep_copies`` and ``ha_reset_s``, controllers to all others.
    """

    pause: Pause | None = None
    zone_pauses: Mapping[ZoneId, Pause] = field(default_factory=dict)
    unreadable: str = ""
    """Reason that nothing may begin: the record cannot be read (``of``). Empty: it can. Never stored."""
    unknown: Unknown | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for option in LIMIT_OPTIONS:
            value = getattr(self, option.name)
            if option.is_number and value is not None and value < 1:
                raise ValueError(f"{option.name} is at least 1, not {value}; use a pause to stop all moves")

    def encode(self) -> bytes:
        return _LIMITS.encode(self)

    @classmethod
    def decode(cls, value: bytes | None) -> Limits:
        """Decode the record; without a value there are no limits. Raises RecordNotReadableError."""
        return cls() if value is None else _LIMITS.decode(value)

    @classmethod
    def of(cls, item: KeyValue | None) -> Limits:
        """Return the limits that hold while ``item`` is the record. One that cannot be read is a pause of
        everything: it means neither no limits nor leave to throw copies away."""
        limits = read(item, cls.decode)
        if isinstance(limits, Unreadable):
            return cls(keep_copies=True, unreadable=limits.cause)
        return limits if limits is not None else cls()

    def holds(self, now_ms: int) -> bool:
        """True if anything may have to wait now. Windows hold while they are open, too, so that admission alone
        begins moves, and sees them close."""
        capped = any(getattr(self, name) is not None for name in (*CAPS, *RATES))
        held = capped or self.one_operation or bool(self.windows) or bool(self.unreadable)
        return held or any(pause.holds(now_ms) for pause in self._pauses())

    @property
    def rates(self) -> ByteRates:
        return ByteRates(self.cluster_bytes_s, self.node_bytes_s)

    def pause_cause(self, zone_id: ZoneId, now_ms: int) -> str:
        """The cluster's pause, or the zone's own, that holds its moves back now; empty: none does."""
        if self.unreadable:
            return self.unreadable
        if self.pause is not None and self.pause.holds(now_ms):
            return Cause.PAUSED.text(self.pause.summary())
        pause = self.zone_pauses.get(zone_id)
        return (
            Cause.PAUSED.text(f"the zone, {pause.summary()}")
            if pause is not None and pause.holds(now_ms)
            else ""
        )

    def window_cause(self, now_ms: int) -> str:
        """The window that is waited for; empty: one is open, or there is none."""
        opening = next_opening(self.windows, now_ms)
        return Cause.OUTSIDE_WINDOW.text(f"{opening.window} UTC opens {utc(opening.at_ms)}") if opening else ""

    def next_end_ms(self, now_ms: int) -> int | None:
        """Earliest time, in milliseconds since 1970, at which something that holds moves back now ends by
        itself: a pause, or the time between windows. None: nothing does."""
        ends = [pause.until_ms for pause in self._pauses() if pause.holds(now_ms)]
        opening = next_opening(self.windows, now_ms)
        if opening is not None:
            ends.append(opening.at_ms)
        return min((end_ms for end_ms in ends if end_ms is not None), default=None)

    def _pauses(self) -> Iterator[Pause]:
        if self.pause is not None:
            yield self.pause
        yield from self.zone_pauses.values()


def zone_id_of(name: str) -> ZoneId:
    """Raises ValueError for anything but the id of a zone as it is written in keys."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,17}", name):
        raise ValueError(f"{name!r:.80} is not a zone id")
    return ZoneId(int(name))


# What is not set is left out, but for what every build has written: so earlier builds read the documents.
_FIRST = ("cluster_moves", "zone_moves", "donor_moves", "receiver_moves", "batch_size")
_PAUSE = Codec(Pause, omit=("operation",))
_LATER = tuple(option.name for option in LIMIT_OPTIONS if option.name not in _FIRST)
_LIMITS = Codec(
    Limits,
    omit=_LATER,
    required=("pause", "zone_pauses"),
    order=(*_FIRST, "pause", "zone_pauses", *_LATER),
    forms={
        "zone_pauses": Form(
            lambda document: {
                zone_id_of(name): pause for name, pause in mapping(text, _PAUSE.value)(document).items()
            },
            lambda held: {str(zone): _PAUSE.document(pause) for zone, pause in sorted(held.items())},
        ),
        "pause": optional(_PAUSE.form),
    },
)


@dataclass(frozen=True, slots=True)
class Move:
    """Nodes that a move loads, in name order. Receivers get a copy, or change their role, which copies too;
    those that have no member yet are ``joins``. Donors lose theirs; where nobody does, the preferred primary is
    the donor, for it sends the copies."""

    donors: tuple[str, ...]
    receivers: tuple[str, ...]
    joins: tuple[str, ...] = ()


def move_of(stable: Assignments, target: Assignments) -> Move:
    """The move from ``stable`` to ``target``, where copies are members."""
    voters = frozenset(stable.peers) & frozenset(target.peers)
    learners = frozenset(stable.learners) & frozenset(target.learners)
    receivers = target.nodes - voters - learners
    leaving = stable.nodes - target.nodes
    donors = leaving or (frozenset({stable.primary}) if receivers else frozenset())
    return Move(*(tuple(sorted(nodes)) for nodes in (donors, receivers, target.nodes - stable.nodes)))


def load_of(stable: Assignments, pending: Assignments, planned: Assignments | None) -> Move:
    """Nodes that a moving partition loads, with those of the move that is planned next: that is not admitted
    again."""
    move = move_of(stable, pending)
    if planned is None:
        return move
    then = move_of(stable, planned)
    pairs = ((move.donors, then.donors), (move.receivers, then.receivers), (move.joins, then.joins))
    return Move(*(tuple(sorted({*now, *later})) for now, later in pairs))


def without_members(move: Move) -> Move:
    """The same of a zone that store servers keep: its copies are no members, and need no room for any."""
    return replace(move, joins=())


@dataclass(slots=True)
class Loads:
    """Counts of what moves now, and of the members that each node holds or is about to hold. Copies of store
    zones move as others do, and are no members."""

    cluster: int = 0
    zones: Counter[ZoneId] = field(default_factory=Counter)
    donors: Counter[str] = field(default_factory=Counter)
    receivers: Counter[str] = field(default_factory=Counter)
    members: Counter[str] = field(default_factory=Counter)

    def add(self, zone_id: ZoneId, move: Move, count: int = 1) -> None:
        """``count`` -1 takes a move away."""
        self.cluster += count
        self.zones[zone_id] += count
        for node in move.donors:
            self.donors[node] += count
        for node in move.receivers:
            self.receivers[node] += count

    def copy(self) -> Loads:
        return Loads(
            self.cluster, self.zones.copy(), self.donors.copy(), self.receivers.copy(), self.members.copy()
        )


OF_ALL_ZONES = frozenset({Cause.OPERATION_RUNS, Cause.CLUSTER_CAP, Cause.NODE_CAP, Cause.NODE_MEMBER_LIMIT})
"""Causes whose details tell of other zones (``Rooms.seen_by``)."""


class Rooms:
    """Room for moves that may begin yet under ``limits`` while ``loads`` move; ``take`` uses it up.

    ``member_limits``: of living nodes. A batch is what of a zone begins while none of it moves. ``first``: the
    zone and id of the operation that goes first where only one may; None: there is none. ``buckets`` are those
    of now, ``size_of`` answers how many bytes a copy of a partition takes.
    """

    def __init__(
        self,
        limits: Limits,
        loads: Loads,
        member_limits: Mapping[str, int],
        now_ms: int,
        first: tuple[ZoneId, str] | None = None,
        buckets: TokenBuckets | None = None,
        size_of: Callable[[ZoneId, int], int] = lambda _zone, _number: 0,
    ) -> None:
        self._limits = limits
        self._rates = limits.rates
        self._buckets = (buckets or TokenBuckets()).at(now_ms, self._rates)
        self._size_of = size_of
        self._loads = loads.copy()
        self._member_limits = member_limits
        self._now_ms = now_ms
        self._first = first
        self._seen: Collection[ZoneId] | None = None
        self._batches: Counter[ZoneId] = Counter()
        """Number of moves that this admission has taken of each zone: its batch is still open for those."""

    def seen_by(self, zone_ids: Collection[ZoneId]) -> Rooms:
        """The same, for who sees these zones alone: no cause has a sum over zones, nor an operation of another
        zone."""
        rooms = copy(self)
        rooms._seen = zone_ids
        return rooms

    def moving(self, zone_id: ZoneId) -> int:
        return self._loads.zones[zone_id]

    def take(self, zone_id: ZoneId, number: int, move: Move) -> None:
        self._loads.add(zone_id, move)
        if self._rates.is_limiting:
            self._buckets.take(move.donors, move.receivers, self._size_of(zone_id, number))
        self._loads.members.update(move.joins)
        self._batches[zone_id] += 1

    def cause(self, zone_id: ZoneId, move: Move) -> str:
        """Cause that holds back a partition of the zone that is to make this move; empty: it may begin.

        The first word is stable: RECORD_NOT_READABLE, PAUSED, OUTSIDE_WINDOW, OPERATION_RUNS, CLUSTER_CAP,
        BATCH, ZONE_CAP, BANDWIDTH, NODE_CAP, NODE_MEMBER_LIMIT.
        """
        return self.cause_of_zone(zone_id) or self.cause_of_nodes(move)

    def cause_of_zone(self, zone_id: ZoneId) -> str:
        """Cause that holds back every partition of the zone; empty: none does."""
        limits, moving = self._limits, self._loads.zones[zone_id]
        if paused := limits.pause_cause(zone_id, self._now_ms):
            return paused
        if closed := limits.window_cause(self._now_ms):
            return closed
        if limits.one_operation and (turn := self._waits_for_turn(zone_id)):
            return turn
        if limits.cluster_moves is not None and self._loads.cluster >= limits.cluster_moves:
            return Cause.CLUSTER_CAP.text(self._sum(self._loads.cluster, limits.cluster_moves, "reached"))
        taken = self._batches[zone_id]
        if limits.batch_size is not None and (moving > taken or taken >= limits.batch_size):
            return Cause.BATCH.text(f"{moving} of the last batch move")
        if limits.zone_moves is not None and moving >= limits.zone_moves:
            return Cause.ZONE_CAP.text(f"{moving}/{limits.zone_moves}")
        return self._buckets.cluster_cause(self._rates)

    def _waits_for_turn(self, zone_id: ZoneId) -> str:
        """Cause that holds the zone back while another operation goes first; empty: it is the zone's turn.

        Moves that another zone has begun must end first as well: its operation may have been written down
        later than an earlier one of this zone."""
        if self._first is not None and self._first[0] != zone_id:
            is_shown = self._seen is None or self._first[0] in self._seen
            first = self._first[1] if is_shown else "another operation"
            return Cause.OPERATION_RUNS.text(f"{first} goes first, one at a time")
        others = self._loads.cluster - self._loads.zones[zone_id]
        if not others:
            return ""
        moving = "partitions" if self._seen is not None else f"{others} partitions"
        return Cause.OPERATION_RUNS.text(f"{moving} of other zones move, one operation at a time")

    def _sum(self, used: int, most: int | None, otherwise: str) -> str:
        """``used`` counts all zones."""
        return otherwise if self._seen is not None else f"{used}/{most}"

    def cause_of_nodes(self, move: Move) -> str:
        for node in (*move.donors, *move.receivers):
            if used_up := self._buckets.node_cause(node, self._rates):
                return used_up
        for node in move.donors:
            if self.donor_room(node) < 1:
                moving = self._sum(self._loads.donors[node], self._limits.donor_moves, "full")
                return Cause.NODE_CAP.text(f"{node} {moving} as donor")
        for node in move.receivers:
            if self.receiver_room(node) < 1:
                moving = self._sum(self._loads.receivers[node], self._limits.receiver_moves, "full")
                return Cause.NODE_CAP.text(f"{node} {moving} as receiver")
        for node in move.joins:
            if self.member_room(node) < 1:
                held = self._sum(self._loads.members[node], self._member_limits[node], "full")
                return Cause.NODE_MEMBER_LIMIT.text(f"{node} {held}")
        return ""

    def donor_room(self, node: str) -> int:
        """Number of moves that may begin yet with ``node`` as a donor; ``NO_LIMIT`` without a cap."""
        if self._is_used_up(node):
            return 0
        cap = self._limits.donor_moves
        return NO_LIMIT if cap is None else cap - self._loads.donors[node]

    def receiver_room(self, node: str) -> int:
        """Number of moves that may begin yet with ``node`` as a receiver; ``NO_LIMIT`` without a cap."""
        if self._is_used_up(node):
            return 0
        cap = self._limits.receiver_moves
        return NO_LIMIT if cap is None else cap - self._loads.receivers[node]

    def _is_used_up(self, node: str) -> bool:
        return bool(self._buckets.node_cause(node, self._rates))

    def member_room(self, node: str) -> int:
        """Number of further members that ``node`` can hold; ``NO_LIMIT`` where none is known, as of a node that
        does not live."""
        limit = self._member_limits.get(node)
        return NO_LIMIT if limit is None else limit - self._loads.members[node]


Waiting = tuple[int, Move]
"""A partition's number, and the move that it wants to make."""


def admit(lines: Mapping[ZoneId, Iterable[Waiting]], rooms: Rooms) -> dict[ZoneId, list[int]]:
    """The partitions that may begin now, by zone; ``rooms`` is used up by them.

    Each next one is of the zone that moves the fewest (among those the one with the lowest id), and is the
    first in the zone's line whose nodes have room. Invariants: no cap is passed, whatever part of the answer is
    carried out; nothing waits that could begin as well; the answer depends on nothing but the arguments.

    A line is walked at most once, and may leave out whatever has no room: room only shrinks meanwhile.
    """
    admitted: dict[ZoneId, list[int]] = {}
    places = {zone_id: iter(line) for zone_id, line in lines.items()}
    queue = [(rooms.moving(zone_id), zone_id) for zone_id in places]
    heapq.heapify(queue)
    while queue:
        moving, zone_id = heapq.heappop(queue)
        if rooms.cause_of_zone(zone_id):
            continue
        for number, move in places[zone_id]:
            if not rooms.cause_of_nodes(move):
                rooms.take(zone_id, number, move)
                admitted.setdefault(zone_id, []).append(number)
                heapq.heappush(queue, (moving + 1, zone_id))
                break
    return admitted
