"""Absence of the voters of a partition, as one controller has seen it on its own monotonic clock, and whether
it is long enough to take them for silent (``rebalance/tech-notes/isolation.md``).

Three pure values. ``Hearing`` tells since when the metastore has answered without a break. ``LossClock`` keeps,
for each node, since when it has been absent without a break. ``judge`` combines both with what nodes have
published of their fences: when may a partition be founded anew, and if never, because of whom.

Times are milliseconds of a monotonic clock. Nothing of this is stored: a controller that takes over has seen
nothing yet and begins again, so no wall clock and no other machine's clock decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from catalog.core.quorum import majority
from rebalance.core.keyspace.readable import Unreadable
from rebalance.core.moves.move_status import PartitionView, committed_voters, unseen_voters
from rebalance.core.topology.fencing import FenceRecord, reset_after_ms

NOT_FENCED = "NOT_FENCED"
"""First word of the cause of a partition whose absent voters nobody may take for silent."""


@dataclass(frozen=True, slots=True)
class Hearing:
    """Time since which the metastore has answered without a break. A store that stood still, one that cannot be
    reached and a process that stood still itself look the same: more than ``limit_ms`` between two answers. A
    new leader of the metastore (``term``) renews every lease, so what was seen before it does not count
    either."""

    limit_ms: int
    since_ms: int | None = None
    answered_ms: int | None = None
    term: int = 0

    def called(self, now_ms: int) -> Hearing:
        """A store that does not answer the first question is silent from then on."""
        return self if self.answered_ms is not None else replace(self, answered_ms=now_ms)

    def answered(self, now_ms: int, term: int = 0) -> Hearing:
        """``term``: raft's, of the answer; 0: the store has none."""
        goes_on = self.since_ms is not None and not self.is_silent(now_ms) and term == self.term
        return replace(self, since_ms=self.since_ms if goes_on else now_ms, answered_ms=now_ms, term=term)

    def is_silent(self, now_ms: int) -> bool:
        return self.answered_ms is not None and now_ms - self.answered_ms > self.limit_ms

    def unbroken_since_ms(self, now_ms: int) -> int | None:
        """Time since which it has answered without a break; None: it does not answer now, or never has."""
        return None if self.is_silent(now_ms) else self.since_ms


@dataclass(frozen=True, slots=True)
class AbsentNode:
    """A node without a lease. ``incarnation``: the one that topology remembers. ``fence``: what it has
    published; None: nothing. ``fence_revision``: that record's mod_revision, 0 where there is none.
    ``has_left``: nobody waits for the node (``HoldRule``)."""

    incarnation: str
    fence: FenceRecord | Unreadable | None = None
    fence_revision: int = 0
    has_left: bool = True

    @property
    def identity(self) -> tuple[str, int]:
        """Another one means that the node was there meanwhile: it publishes its fence when it registers."""
        return self.incarnation, self.fence_revision

    @property
    def fence_ms(self) -> int | None:
        """Fence of the node, in milliseconds; None: it is not known how long the node goes on serving."""
        fence = self.fence
        if not isinstance(fence, FenceRecord) or fence.incarnation != self.incarnation:
            return None
        return fence.fence_ms


@dataclass(frozen=True, slots=True)
class _Absence:
    since_ms: int
    identity: tuple[str, int] | None = None
    """Identity of the node at the last look; None: its key has just gone, and there was no look since."""


@dataclass(frozen=True, slots=True)
class LossClock:
    """Times since which nodes have been absent. Invariant: never earlier than the last sign of life of a
    node."""

    _absences: Mapping[str, _Absence] = field(default_factory=dict)

    def noticed(self, now_ms: int, names: Iterable[str]) -> LossClock:
        """Keys of these nodes have changed, come or gone: they were there until now at least."""
        return LossClock({**self._absences, **{name: _Absence(now_ms) for name in names}})

    def looked(self, now_ms: int, absent: Mapping[str, AbsentNode], alive: frozenset[str]) -> LossClock:
        """``absent`` are absent now. Who is not among them and not ``alive`` is not known to be absent yet."""
        awaited = {
            name: absence
            for name, absence in self._absences.items()
            if absence.identity is None and name not in absent and name not in alive
        }
        return LossClock(awaited | {name: self._still(name, node, now_ms) for name, node in absent.items()})

    def since_ms(self, name: str) -> int | None:
        """Time since which the node has been absent; None: it is not absent."""
        absence = self._absences.get(name)
        return absence.since_ms if absence is not None else None

    def _still(self, name: str, node: AbsentNode, now_ms: int) -> _Absence:
        before = self._absences.get(name)
        goes_on = before is not None and before.identity in (None, node.identity)
        return _Absence(before.since_ms if before is not None and goes_on else now_ms, node.identity)


@dataclass(frozen=True, slots=True)
class ResetRule:
    """``reset_s``: of the limits. ``grace_ms``: how long a node that is missing, and has not left yet, is
    waited for (``HoldRule``), by this clock."""

    reset_s: int
    grace_ms: int = 0

    def silent_after_ms(self, node: AbsentNode) -> int | None:
        """Milliseconds that ``node`` must have been absent to be taken for silent; None: it never is."""
        if node.fence_ms is None:
            return None
        after_ms = reset_after_ms(self.reset_s, node.fence_ms)
        return after_ms if node.has_left else max(after_ms, self.grace_ms)


@dataclass(frozen=True, slots=True)
class Loss:
    """A partition whose living voters are no majority. ``since_ms``: since when; None: not
    all of them are known to be absent yet. ``due_ms``: when those that are
    ``silent`` then deny every possible configuration a majority; None: never, as ``unfenced`` may serve for as
    long as they like."""

    since_ms: int | None
    due_ms: int | None
    silent: tuple[str, ...] = ()
    unfenced: tuple[str, ...] = ()

    def is_due(self, now_ms: int) -> bool:
        return self.due_ms is not None and now_ms >= self.due_ms

    @property
    def cause(self) -> str:
        """Reason that it is never due; empty: it will be."""
        names = ", ".join(self.unfenced)
        way = f"{NOT_FENCED}: {names} may serve cut off; if dead, `zonectl recovery reset` is the way out"
        return way if self.due_ms is None else ""


def possible_configurations(view: PartitionView, absent: Collection[str]) -> tuple[frozenset[str], ...]:
    """Voters of every configuration that the group may have by now, the published one first.

    One step may be taken that nobody could publish any more: a learner that is listed votes; a voter that was
    announced as leaving is removed, or one that the pending set does not have and that is ``absent``.
    """
    members = view.configuration.members if view.configuration is not None else {}
    stable = view.stable.peers if view.stable is not None else ()
    voters = committed_voters(view) or frozenset(stable)
    kept = frozenset(view.pending.peers) if view.pending is not None else voters
    leaving = {name for name in voters if name in members and members[name].leaving}
    leaving |= {name for name in voters - kept if name in absent}
    bases = dict.fromkeys((voters, *(voters | {name} for name in sorted(members.keys() - voters))))
    smaller = (base - {name} for base in bases for name in sorted(leaving))
    return tuple(dict.fromkeys((*bases, *smaller)))


def judge(
    view: PartitionView,
    alive: frozenset[str],
    absent: Mapping[str, AbsentNode],
    clock: LossClock,
    heard_since_ms: int,
    rule: ResetRule,
) -> Loss | None:
    """The loss of the partition's majority; None: its possible voters on ``alive`` nodes are one.

    ``absent``: nodes that are known to be absent; a voter that is in neither is not known, so never silent.
    Invariant: when it is due, no configuration that may be in force has a majority of members that live or may
    serve cut off, except one whose absent members are all silent: its living ones are asked before any reset.
    """
    if view.configuration is not None and view.configuration.members.keys() <= alive:
        return None  # Nobody is gone: so it is with most partitions.
    configurations = possible_configurations(view, absent.keys())
    published = configurations[0] | unseen_voters(view, alive)
    configurations = tuple(dict.fromkeys((published, *configurations)))
    gone = frozenset().union(*configurations) - alive
    if not _denied(published, gone):
        return None
    begun = {name: max(clock.since_ms(name) or 0, heard_since_ms) for name in gone if name in absent}
    ready_ms: dict[str, int] = {}
    for name, since_ms in begun.items():
        after_ms = rule.silent_after_ms(absent[name])
        if after_ms is not None and clock.since_ms(name) is not None:
            ready_ms[name] = since_ms + after_ms
    lost_ms = _first(begun, lambda lost: _denied(published, lost))
    due_ms = _first(ready_ms, lambda lost: _all_denied(configurations, gone, lost))
    unfenced = tuple(_named(name, absent.get(name)) for name in sorted(gone - ready_ms.keys()))
    silent = tuple(sorted(name for name, at_ms in ready_ms.items() if due_ms is not None and at_ms <= due_ms))
    return Loss(lost_ms, due_ms, silent, unfenced)


def _named(name: str, node: AbsentNode | None) -> str:
    unreadable = node.fence if node is not None else None
    return f"{name} ({unreadable.cause})" if isinstance(unreadable, Unreadable) else name


def _denied(voters: frozenset[str], lost: Collection[str]) -> bool:
    """True if ``voters`` without those ``lost`` are no majority."""
    return len(voters - frozenset(lost)) < majority(len(voters))


def _all_denied(configurations: tuple[frozenset[str], ...], gone: frozenset[str], lost: frozenset[str]) -> bool:
    published, *others = configurations
    return _denied(published, lost) and all(
        _denied(voters, lost) or not (voters & gone) - lost for voters in others
    )


def _first(times_ms: Mapping[str, int], holds: Callable[[frozenset[str]], bool]) -> int | None:
    """The earliest time at which ``holds`` of all whose time has come; None: there is none."""
    for at_ms in sorted(set(times_ms.values())):
        if holds(frozenset(name for name, ms in times_ms.items() if ms <= at_ms)):
            return at_ms
    return None
