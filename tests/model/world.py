"""The states of the protocol's model: one partition's keys, two handlers of events, and its group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from rebalance.core.assignments import change_lock, guarded_write, withdrawal
from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.guarded_write import Decision
from rebalance.core.moves import group_steps, joiners
from tests.model.store import Nodes, Store, Write, initial_store, renumber


@dataclass(frozen=True)
class Decisions:
    """The functions under test; a mutation run puts changed ones in their place."""

    on_trigger: Callable[..., Decision]
    on_applied: Callable[..., Decision]
    on_catch_up_finished: Callable[..., Decision]
    on_cancelled: Callable[..., Decision]
    on_unlock: Callable[..., Decision]
    on_forced: Callable[..., Decision]
    on_joiners_gone: Callable[..., Decision]
    on_withdrawal: Callable[..., Decision]
    on_call_back: Callable[..., Decision]
    next_step: Callable[..., Any]

    @classmethod
    def of(cls, writes: ModuleType, lock: ModuleType, without: ModuleType, withdrawn: ModuleType) -> Decisions:
        return cls(
            writes.decide_on_trigger,
            writes.decide_on_configuration_applied,
            lock.decide_on_catch_up_finished,
            lock.decide_on_change_cancelled,
            lock.decide_on_unlock,
            writes.decide_on_forced_move,
            without.decide_on_joiners_gone,
            withdrawn.decide_on_withdrawal,
            withdrawn.decide_on_call_back,
            group_steps.next_step,
        )


REAL = Decisions.of(guarded_write, change_lock, joiners, withdrawal)


@dataclass(frozen=True)
class CallBack:
    """The operator's cancel of event ``of``, an event with a revision of its own."""

    of: int


@dataclass(frozen=True)
class Scope:
    """Scope of a run: its targets, and how often each fault may occur."""

    strategy: Strategy
    stable: Assignments
    targets: tuple[Assignments | CallBack, ...]
    """One per event, in the order of their revisions."""
    crashes: tuple[int, int] = (1, 1)
    replays: int = 1
    unknowns: int = 1
    stale_steps: int = 1
    elections: int = 1
    failures: int = 1
    never_in_sync: Nodes = frozenset()
    """Nodes whose copies never end."""
    dying: Nodes = frozenset()
    """Nodes that may fall silent for ever once they are in sync, and are waited for."""
    mortal: Nodes = frozenset()
    """Nodes that may die for good at any stage; joiners among them are given up."""


class Kind:
    """Kinds of transactions under way. Plain strings: they are hashed millions of times."""

    TRIGGER = "trigger"
    ASK = "ask"
    CAUGHT_UP = "caught-up"
    APPLIED = "applied"
    UNLOCK = "unlock"
    CANCELLED = "cancelled"
    GIVE_UP = "give-up"
    CALL_BACK = "call-back"
    OF_EVENTS = TRIGGER, CALL_BACK


class Doing(NamedTuple):
    """Transaction that was decided, and is not committed yet. ``number``: an event, or a token."""

    kind: str
    number: int
    target: bytes
    write: Write | None


class Handler(NamedTuple):
    """A controller. ``todo``: events told and not yet handled, one bit each."""

    todo: int
    crashes: int
    doing: Doing | None


class Change(NamedTuple):
    """The leader changes the group. ``cleared``: it may touch voters now. ``token`` 0: back to stable."""

    target: bytes
    token: int
    cleared: bool


class StaleStep(NamedTuple):
    """A membership call of a deposed leader that is still on its way."""

    call: str
    node: str


class Faults(NamedTuple):
    """Numbers of faults that may still come."""

    replays: int
    unknowns: int
    stale_steps: int
    elections: int
    failures: int


class State(NamedTuple):
    store: Store
    published: int
    newest: int
    """The newest event that has had an effect (not part of the system: to judge by)."""
    applied: Nodes
    """Voters that the group reported last as applied (to judge by)."""
    handlers: tuple[Handler, Handler]
    flight: Doing | None
    """A transaction whose outcome its sender does not know: it lands late, or never."""
    voters: Nodes
    learners: Nodes
    synced: Nodes
    """Learners that this leader has found in sync."""
    silent: Nodes
    leader: str
    running: Nodes
    mirrors: Nodes
    """Nodes with a learner's copy."""
    change: Change | None
    agent: Doing | None
    deposed: Doing | None
    """Transaction that the agent of the previous leader has not committed yet."""
    stale: StaleStep | None
    faults: Faults


def initial_state(scope: Scope) -> State:
    nodes = frozenset(scope.stable.peers)
    handlers = tuple(Handler(0, crashes, None) for crashes in scope.crashes)
    return canonical(
        State(
            store=initial_store(scope.stable),
            published=0,
            newest=0,
            applied=nodes,
            handlers=(handlers[0], handlers[1]),
            flight=None,
            voters=nodes,
            learners=frozenset(),
            synced=frozenset(),
            silent=frozenset(),
            leader=scope.stable.primary,
            running=nodes,
            mirrors=frozenset(scope.stable.learners),
            change=None,
            agent=None,
            deposed=None,
            stale=None,
            faults=Faults(scope.replays, scope.unknowns, scope.stale_steps, scope.elections, scope.failures),
        )
    )


def canonical(state: State) -> State:
    """The same state with the smallest revision numbers, and with the handlers, which are alike, in order."""
    doings = (state.handlers[0].doing, state.handlers[1].doing, state.flight, state.agent, state.deposed)
    revisions = [revision for _, revision in state.store]
    for doing in doings:
        if doing is not None:
            if doing.kind not in Kind.OF_EVENTS:
                revisions.append(doing.number)
            if doing.write is not None:
                revisions.extend(revision for _, revision in doing.write.guards)
    if state.change is not None:
        revisions.append(state.change.token)
    new = renumber(revisions)

    def moved(doing: Doing | None) -> Doing | None:
        if doing is None:
            return None
        number = doing.number if doing.kind in Kind.OF_EVENTS else new(doing.number)
        write = doing.write
        if write is not None:
            write = write._replace(guards=tuple((slot, new(revision)) for slot, revision in write.guards))
        return Doing(doing.kind, number, doing.target, write)

    store = tuple((value, new(revision)) for value, revision in state.store)
    one, two = (each._replace(doing=moved(each.doing)) for each in state.handlers)
    change = state.change and state.change._replace(token=new(state.change.token))
    return state._replace(
        store=store,
        handlers=(one, two) if _order(one) <= _order(two) else (two, one),
        flight=moved(state.flight),
        agent=moved(state.agent),
        deposed=moved(state.deposed),
        change=change,
    )


def _order(handler: Handler) -> tuple[int, int, str]:
    return handler.todo, handler.crashes, repr(handler.doing) if handler.doing else ""


def with_handler(state: State, number: int, handler: Handler) -> State:
    one, two = state.handlers
    return state._replace(handlers=(handler, two) if number == 0 else (one, handler))


def alive(doing: Doing | None, store: Store) -> Doing | None:
    if doing is not None and doing.write is not None:
        for slot, revision in doing.write.guards:
            if revision and store[slot][1] != revision:
                return None
    return doing


def doings(state: State) -> list[Doing]:
    found = (*(each.doing for each in state.handlers), state.flight, state.agent, state.deposed)
    return [each for each in found if each is not None]


def without_learner(state: State, node: str) -> State:
    return state._replace(learners=state.learners - {node}, synced=state.synced - {node})


def landed(state: State, stale: StaleStep) -> State:
    """A call of a deposed leader, as the group takes it: by member, whatever the term."""
    node, listed = stale.node, state.voters | state.learners
    match stale.call:
        case "AddLearner" if node not in listed and not state.learners:
            running = state.running | ({node} - state.silent)
            return state._replace(learners=frozenset({node}), running=running)
        case "Promote" if node in state.learners:
            return without_learner(state, node)._replace(voters=state.voters | {node})
        case "Remove" if node in listed and state.voters != {node}:
            voters = state.voters - {node}
            leader = state.leader if state.leader in voters else min(voters - state.silent)
            change = state.change if leader == state.leader else None
            return without_learner(state, node)._replace(voters=voters, leader=leader, change=change)
    return state
