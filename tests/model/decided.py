"""Decisions of the product in a state of the model: its own functions, called and never written again."""

from __future__ import annotations

from functools import cache

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import Decision
from rebalance.core.keyspace.records import ConfigurationRecord, ConfiguredMember, MemberRole, Stage
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.moves.group_steps import GroupView, ObservedMember, Step, stage_of
from tests.model.store import (
    GIVEN_UP,
    KEYS,
    PENDING,
    PLANNED,
    STABLE,
    Nodes,
    Store,
    learners_in,
    observed_in,
    trigger_in,
    voters_in,
    write_of,
)
from tests.model.world import CallBack, Decisions, Doing, Kind, Scope, State


class Decided:
    """Each decision is asked for once for the same keys."""

    def __init__(self, scope: Scope, decisions: Decisions) -> None:
        self._scope = scope
        self._decisions = decisions
        self._decide = cache(self._doing)
        self._step = cache(self._next_step)

    def decide(self, kind: str, store: Store, number: int, target: bytes = b"") -> Doing:
        """``number``: an event, or a token; ``target``: what else the decision is told, as it hashes."""
        return self._decide(kind, store, number, target)

    def on_event(self, state: State, number: int) -> Doing:
        """A target, or the cancel of one. What the group has published is what it is now, and not guarded
        here: the keeper may look at it any time before it writes."""
        if isinstance(self._scope.targets[number - 1], CallBack):
            voters = ",".join(sorted(state.voters)).encode()
            return self._decide(Kind.CALL_BACK, state.store, number, voters)
        return self._decide(Kind.TRIGGER, state.store, number, b"")

    def is_outdated(self, store: Store, number: int) -> bool:
        """The event can never have an effect any more: the trigger is not below it, or its target has ended."""
        event = self._scope.targets[number - 1]
        if not isinstance(event, CallBack):
            return not self._decide(Kind.TRIGGER, store, number, b"").write
        processed = trigger_in(store)
        is_over = store[PENDING][0] is None and store[PLANNED][0] is None
        return processed > event.of or (processed == event.of and is_over)

    def on_joiners_gone(self, state: State, gone: Nodes) -> Doing:
        holding = state.voters - state.silent
        target = b"|".join(",".join(sorted(nodes)).encode() for nodes in (gone, holding))
        return self._decide(Kind.GIVE_UP, state.store, 0, target)

    def step(self, state: State) -> Step:
        """Step of the change that runs."""
        assert state.change is not None
        target = state.change.target
        awaited = (learners_in(target) - state.mirrors) & state.voters
        stable = voters_in(state.store[STABLE][0] or b"")
        return self._step(view_of(state, awaited), target, stable)

    def _next_step(self, view: GroupView, target: bytes, stable: Nodes) -> Step:
        step: Step = self._decisions.next_step(view, Assignments.decode(target).peers, tuple(stable))
        return step

    def _doing(self, kind: str, store: Store, number: int, target: bytes) -> Doing:
        # What was told and is not needed any more would keep states apart.
        kept = b"" if kind in (Kind.CALL_BACK, Kind.GIVE_UP) else target
        return Doing(kind, number, kept, write_of(self._call(kind, store, number, target)))

    def _call(self, kind: str, store: Store, number: int, target: bytes) -> Decision:
        observed, functions = observed_in(store), self._decisions
        match kind:
            case Kind.TRIGGER:
                wanted = self._scope.targets[number - 1]
                return functions.on_trigger(observed, wanted, number, strategy=self._scope.strategy)
            case Kind.CALL_BACK:
                return self._called_back(store, number, target)
            case Kind.GIVE_UP:
                gone, holding = (each.decode().split(",") for each in target.split(b"|"))
                return functions.on_joiners_gone(
                    observed, dict.fromkeys(gone, ""), given_up_key=GIVEN_UP, holding=holding
                )
            case Kind.APPLIED:
                return functions.on_applied(observed, Assignments.decode(target))
            case Kind.CAUGHT_UP:
                return functions.on_catch_up_finished(observed, number, term=int(target), joiner="")
            case Kind.CANCELLED:
                return functions.on_cancelled(observed, number, is_cancelled=True)
        stage, term, changing = target.decode().split()
        return functions.on_unlock(observed, Stage(stage), term=int(term), of_earlier_terms=bool(int(changing)))

    def _called_back(self, store: Store, number: int, voters: bytes) -> Decision:
        """Call back as the keeper of operations does: a move that has begun is called back, another one
        withdrawn."""
        event, observed = self._scope.targets[number - 1], observed_in(store)
        assert isinstance(event, CallBack)
        if observed.pending is not None:
            configuration = _published(voters)
            found = self._decisions.on_call_back(observed, configuration, event.of, number)
            if found.transaction is not None:
                return found
        return self._decisions.on_withdrawal(observed, event.of, number)


def view_of(state: State, awaited: Nodes = frozenset()) -> GroupView:
    """``awaited``: who has no mirror yet and needs one before it goes. A node that died is seen as down."""
    return _viewed(state.voters, state.learners, state.leader, awaited, state.silent)


@cache
def _viewed(voters: Nodes, learners: Nodes, leader: str, awaited: Nodes, silent: Nodes) -> GroupView:
    members = [
        ObservedMember(
            node,
            MemberRole.VOTER if node in voters else MemberRole.LEARNER,
            started=node not in silent,
            down=node in silent,
            announced=True,
            mirror_awaited=node in awaited,
        )
        for node in (*sorted(voters), *sorted(learners))
    ]
    return GroupView(tuple(members), leader)


def stage_in(state: State) -> Stage:
    pending = state.store[PENDING][0]
    stable = voters_in(state.store[STABLE][0] or b"")
    return stage_of(state.voters, state.learners, stable, voters_in(pending) if pending else None)


@cache
def _published(voters: bytes) -> KeyValue:
    names = voters.decode().split(",")
    members = {name: ConfiguredMember(name, MemberRole.VOTER, "p") for name in names}
    value = ConfigurationRecord(1, names[0], Stage.CATCHING_UP, members).encode()
    return KeyValue(KEYS.configuration, value, 1, 1, 1)
