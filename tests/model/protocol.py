"""Next moves of the model: handlers, the group's leader with its agent, and all faults.

The decisions are the product's own, called and never written again; so is the order of the group's steps. Every
transaction is read and decided in one step and committed in another. The rules are the protocol's invariants.
"""

from __future__ import annotations

from collections.abc import Iterator

from rebalance.core.assignments.guarded_write import Outcome
from rebalance.core.moves.group_steps import (
    AddLearner,
    Done,
    MoveLeader,
    Promote,
    Remove,
    Step,
    touches_voters,
)
from tests.model.decided import Decided, stage_in, view_of
from tests.model.rules import assigned, broken_rest, broken_rule, learning
from tests.model.store import (
    LOCK,
    PENDING,
    PLANNED,
    STABLE,
    commit,
    highest,
    joiners_in,
    voters_in,
)
from tests.model.world import (
    REAL,
    Change,
    Decisions,
    Doing,
    Handler,
    Kind,
    Scope,
    StaleStep,
    State,
    alive,
    canonical,
    doings,
    landed,
    with_handler,
    without_learner,
)

Move = tuple[str, str, State]
"""Name of a move, the rule that it breaks or "", and the state after it."""


class Protocol:
    def __init__(self, scope: Scope, decisions: Decisions = REAL) -> None:
        self._scope = scope
        self._locks = scope.strategy.locks_pending
        self._decided = Decided(scope, decisions)

    def successors(self, state: State) -> Iterator[Move]:
        for name, reached in self._moves(state):
            broken = broken_rule(state, reached, locks=self._locks)
            yield name, broken, reached if broken else canonical(self._settled(reached))

    def _settled(self, state: State) -> State:
        """Leaves out what can have no effect any more, so that states meet: a transaction with a guard on a
        revision that is gone (revisions never come back), and an event that the decision calls outdated (the
        trigger never goes back, which is a rule). Both would only be found out one step later."""
        store = state.store
        handlers = []
        for handler in state.handlers:
            todo = handler.todo
            for event in range(state.published):
                if todo & 1 << event and self._decided.is_outdated(store, event + 1):
                    todo &= ~(1 << event)
            handlers.append(Handler(todo, handler.crashes, alive(handler.doing, store)))
        agent = alive(state.agent, store)
        if state.agent is not None and agent is None:
            state = _unanswered(state, state.agent)
        return state._replace(
            handlers=(handlers[0], handlers[1]),
            flight=alive(state.flight, store),
            agent=agent,
            deposed=alive(state.deposed, store),
        )

    def at_rest(self, state: State) -> str:
        """No event is left, nothing runs: see ``broken_rest``."""
        return broken_rest(state, self._scope)

    def _moves(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._events(state)
        for number in (0, 1):
            yield from self._handler(state, number)
        yield from self._agent(state)
        yield from self._group(state)
        yield from self._members(state)
        yield from self._late(state)

    # Events and the controllers that handle them.

    def _events(self, state: State) -> Iterator[tuple[str, State]]:
        if state.published < len(self._scope.targets):
            told = [each._replace(todo=each.todo | 1 << state.published) for each in state.handlers]
            published = state.published + 1
            yield f"event {published}", state._replace(published=published, handlers=(told[0], told[1]))
        if state.faults.replays:
            faults = state.faults._replace(replays=state.faults.replays - 1)
            for number, handler in enumerate(state.handlers):
                for event in range(state.published):
                    if not handler.todo & 1 << event:
                        again = handler._replace(todo=handler.todo | 1 << event)
                        yield (
                            f"event {event + 1} told again to {number}",
                            with_handler(state, number, again)._replace(faults=faults),
                        )

    def _handler(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        handler = state.handlers[number]
        doing = handler.doing
        if handler.crashes and doing is not None:
            # It starts again with every event that there was.
            fresh = Handler((1 << state.published) - 1, handler.crashes - 1, None)
            yield f"handler {number} crashes", with_handler(state, number, fresh)
        if doing is None:
            for event in range(state.published):
                if handler.todo & 1 << event:
                    # A cancel that comes too late now is asked for again, until its target has ended.
                    found = self._decided.on_event(state, event + 1)
                    after = handler._replace(doing=found) if found.write else handler
                    yield f"handler {number} reads for event {event + 1}", with_handler(state, number, after)
            return
        idle = handler._replace(doing=None)
        yield from self._unknown(with_handler(state, number, idle), doing, f"handler {number}")
        committed = self._commit(state, doing)
        if committed is None:
            yield f"handler {number} is refused", with_handler(state, number, idle)
        else:
            after = idle._replace(todo=handler.todo & ~(1 << (doing.number - 1)))
            for more, reached in self._with_call(state, committed, doing):
                yield f"handler {number} commits {_name(doing)}{more}", with_handler(reached, number, after)

    # The agent beside the leader: it reads pending, asks the group, and answers the group's questions.

    def _agent(self, state: State) -> Iterator[tuple[str, State]]:
        if state.agent is not None:
            yield from self._agent_goes_on(state, state.agent)
            return
        pending, token = state.store[PENDING]
        change = state.change
        wanted = pending if pending is not None else state.store[STABLE][0]
        assert wanted is not None
        unlock = self._unlock(state, is_changing=change is not None)
        if unlock.write and not (change is not None and change.cleared):
            # Before anything else is asked for; a change that runs sees to its own lock.
            yield "agent finds a lock and no voter touched", state._replace(agent=unlock)
        elif change is None:
            if pending is not None or state.learners or state.voters != voters_in(wanted):
                yield "agent reads what is wanted", state._replace(agent=Doing(Kind.ASK, token, wanted, None))
        elif change.token != token and not (change.cleared and self._locks and change.token):
            yield "agent reads what is wanted now", state._replace(agent=Doing(Kind.ASK, token, wanted, None))
        if self._scope.strategy.value == "cancel" and pending is not None:
            yield from self._cancel(state, token)
        gone = joiners_in(state.store) & state.silent & self._scope.mortal
        if gone:
            found = self._decided.on_joiners_gone(state, gone)
            if found.write:
                yield f"agent gives up {''.join(sorted(gone))}", state._replace(agent=found)

    def _agent_goes_on(self, state: State, doing: Doing) -> Iterator[tuple[str, State]]:
        idle = state._replace(agent=None)
        if doing.kind == Kind.ASK:
            yield f"agent asks for {_nodes(doing.target)}", self._ask(idle, doing)
            return
        yield from self._unknown(_unanswered(idle, doing), doing, "agent")
        committed = self._commit(idle, doing)
        if committed is None:
            yield "agent is refused", _unanswered(idle, doing)
            return
        if doing.kind == Kind.CAUGHT_UP and committed.change:
            committed = committed._replace(change=committed.change._replace(cleared=True))
        elif doing.kind == Kind.UNLOCK and committed.change:
            same = committed.store[PENDING] == idle.store[PENDING]
            left = committed.change._replace(cleared=False)
            committed = committed._replace(change=left if same else None)
        elif doing.kind == Kind.APPLIED:
            committed = committed._replace(change=None)
        for more, reached in self._with_call(idle, committed, doing):
            yield f"agent commits {_name(doing)}{more}", reached

    def _ask(self, state: State, doing: Doing) -> State:
        change = state.change
        if change is not None:
            busy = change.cleared and self._locks and change.token
            if busy or doing.number < change.token:
                return state
        # On the way back to stable there is no pending to lock.
        cleared = not self._locks or doing.number == 0
        return state._replace(change=Change(doing.target, doing.number, cleared))

    def _cancel(self, state: State, token: int) -> Iterator[tuple[str, State]]:
        """Planned and nothing locked: CANCELLED or NOTHING_RUNNING; TOO_LATE for a change that touches
        voters."""
        if state.store[PLANNED][0] is None or state.store[LOCK][0] is not None:
            return
        if state.change is not None and state.change.cleared:
            return
        if state.change is not None:
            state = state._replace(change=None, learners=frozenset(), synced=frozenset())
        found = self._decided.decide(Kind.CANCELLED, state.store, token)
        yield "agent cancels", state._replace(agent=found if found.write else None)

    # The group.

    def _group(self, state: State) -> Iterator[tuple[str, State]]:
        if state.faults.elections:
            yield from self._elections(state)
        change = state.change
        if change is None or state.agent is not None:
            return
        if state.faults.failures:
            faults = state.faults._replace(failures=state.faults.failures - 1)
            yield "the change fails", state._replace(change=None, faults=faults)
        step = self._decided.step(state)
        copies = isinstance(step, Promote) and step.peer_url not in state.synced
        touches = not copies and touches_voters(step, view_of(state))
        if touches and change.cleared and change.token and change.token != state.store[PENDING][1]:
            # Asked for the intention, or refused by the hook: pending was called back or went on without one.
            yield "the change is superseded", state._replace(change=None)
        elif not touches:
            if change.cleared and self._locks and change.token:
                unlock = self._unlock(state)
                without = state._replace(change=change._replace(cleared=False))
                yield "voters left alone", state._replace(agent=unlock) if unlock.write else without
            elif isinstance(step, AddLearner | Remove):
                yield repr(step), self._taken(state, step)
        elif not change.cleared:
            asked = self._decided.decide(Kind.CAUGHT_UP, state.store, change.token, self._term(state))
            # Superseded: the change waits for the new list.
            after = state._replace(agent=asked) if asked.write else state._replace(change=None)
            yield "caught up", after
        elif isinstance(step, Done):
            yield from self._applied(state, change)
        else:
            yield repr(step), self._taken(state, step)

    def _applied(self, state: State, change: Change) -> Iterator[tuple[str, State]]:
        if not change.token:
            yield "back at stable", state._replace(change=None)
            return
        found = self._decided.decide(Kind.APPLIED, state.store, 0, change.target)
        reported = state._replace(applied=voters_in(change.target))
        after = reported._replace(agent=found) if found.write else reported._replace(change=None)
        yield f"{_nodes(change.target)} applied", after

    def _taken(self, state: State, step: Step) -> State:
        match step:
            case AddLearner(node):
                running = state.running | ({node} - state.silent)
                return state._replace(learners=state.learners | {node}, running=running)
            case Promote(node):
                return without_learner(state, node)._replace(voters=state.voters | {node})
            case Remove(node):
                return without_learner(state, node)._replace(voters=state.voters - {node})
            case MoveLeader(candidates):
                return state._replace(leader=candidates[0], change=None)
        raise AssertionError(f"{step} takes nothing but time")

    def _elections(self, state: State) -> Iterator[tuple[str, State]]:
        """Another member leads, or the same one after a restart. What the old leader's agent had decided may
        still be committed; one membership call of the old leader may still land."""
        left = state.faults._replace(elections=state.faults.elections - 1)
        deposed = state.agent if state.agent is not None and state.agent.write else None
        before = state._replace(change=None, agent=None, deposed=deposed, faults=left, synced=frozenset())
        stale = self._stale_call(state)
        for leader in sorted(state.voters - state.silent):
            elected = before._replace(leader=leader)
            yield f"{leader} is elected", elected
            if stale is not None:
                faults = left._replace(stale_steps=left.stale_steps - 1)
                yield f"{leader} is elected, {stale} on its way", elected._replace(stale=stale, faults=faults)

    def _stale_call(self, state: State) -> StaleStep | None:
        """Step that the leader may have sent last, and whose answer is not awaited any more."""
        change = state.change
        if change is None or not state.faults.stale_steps:
            return None
        step = self._decided.step(state)
        if not isinstance(step, AddLearner | Promote | Remove):
            return None
        is_sent = change.cleared or not touches_voters(step, view_of(state))
        return StaleStep(type(step).__name__, step.peer_url) if is_sent else None

    def _with_call(self, before: State, after: State, doing: Doing) -> Iterator[tuple[str, State]]:
        """Pending was replaced under a change that touches voters: its last call may be on its way."""
        yield "", after
        if doing.kind not in (Kind.CALL_BACK, Kind.GIVE_UP) or after.stale is not None:
            return
        change, stale = before.change, self._stale_call(before)
        is_late = change is not None and change.cleared and change.token == before.store[PENDING][1]
        if is_late and stale is not None and after.store[PENDING] != before.store[PENDING]:
            faults = after.faults._replace(stale_steps=after.faults.stale_steps - 1)
            yield f", {stale} on its way", after._replace(stale=stale, faults=faults)

    def _members(self, state: State) -> Iterator[tuple[str, State]]:
        """A learner is in sync some time; a node stops its member when neither the assignments nor the group
        name it."""
        for node in sorted(state.learners - state.synced - self._scope.never_in_sync - state.silent):
            yield f"{node} is in sync", state._replace(synced=state.synced | {node})
        for node in sorted(state.synced & self._scope.dying):
            silent = state.silent | {node}
            yield f"{node} falls silent", state._replace(synced=state.synced - {node}, silent=silent)
        yield from self._deaths(state)
        needed = assigned(state.store) | state.voters | state.learners
        for node in sorted(state.running - needed):
            yield f"{node} stops", state._replace(running=state.running - {node})
        wanted = learning(state.store)
        for node in sorted(wanted - state.mirrors):
            yield f"{node}'s mirror runs", state._replace(mirrors=state.mirrors | {node})
        for node in sorted(state.mirrors - wanted):
            yield f"{node}'s mirror goes", state._replace(mirrors=state.mirrors - {node})

    def _deaths(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield the deaths of nodes, at any stage. One that takes its group's majority with it is a loss and no
        move (M11)."""
        for node in sorted(self._scope.mortal & (assigned(state.store) | state.learners) - state.silent):
            silent = state.silent | {node}
            if 2 * len(state.voters - silent) <= len(state.voters):
                continue
            after = state._replace(synced=state.synced - {node}, running=state.running - {node}, silent=silent)
            if node != state.leader:
                yield f"{node} dies", after
            elif state.faults.elections:
                for name, reached in self._elections(after):
                    yield f"{node} dies and {name}", reached

    # What comes late.

    def _unknown(self, idle: State, doing: Doing, who: str) -> Iterator[tuple[str, State]]:
        if idle.faults.unknowns and idle.flight is None:
            faults = idle.faults._replace(unknowns=idle.faults.unknowns - 1)
            yield f"{who} does not hear of {_name(doing)}", idle._replace(flight=doing, faults=faults)

    def _late(self, state: State) -> Iterator[tuple[str, State]]:
        for field, doing in (("flight", state.flight), ("deposed", state.deposed)):
            if doing is None:
                continue
            without = state._replace(**{field: None})
            yield f"{_name(doing)} of the {field} is lost", without
            committed = self._commit(without, doing)
            if committed is not None:
                for more, reached in self._with_call(without, committed, doing):
                    yield f"{_name(doing)} of the {field} lands{more}", reached
                yield from self._late_answer(committed, field, doing)
        if state.stale is not None:
            without = state._replace(stale=None)
            yield "the stale step is refused", without
            yield f"stale {state.stale}", landed(without, state.stale)

    def _late_answer(self, state: State, field: str, doing: Doing) -> Iterator[tuple[str, State]]:
        """A deposed leader hears that it may go on, and its next call is on its way."""
        if field != "deposed" or doing.kind != Kind.CAUGHT_UP or not state.faults.stale_steps:
            return
        faults = state.faults._replace(stale_steps=state.faults.stale_steps - 1)
        for node in sorted(state.learners):
            stale = StaleStep("Promote", node)
            yield f"and goes on with {node}", state._replace(stale=stale, faults=faults)

    def _commit(self, state: State, doing: Doing) -> State | None:
        assert doing.write is not None
        guards = [revision for each in doings(state) if each.write for _, revision in each.write.guards]
        tokens = [each.number for each in doings(state) if each.kind not in Kind.OF_EVENTS]
        token = state.change.token if state.change else 0
        revision = max((highest(state.store), token, *guards, *tokens)) + 1
        store = commit(state.store, doing.write, revision)
        if store is None:
            return None
        newest = max(state.newest, doing.number) if doing.kind in Kind.OF_EVENTS else state.newest
        if doing.kind in Kind.OF_EVENTS and doing.number <= state.newest:
            newest = -1
        # A stale step may have undone what was applied: that the group is not what pending asks for, as it was
        # when that was read, is a report as well. What was reported for a pending that is called back, or goes
        # on without a joiner, is void.
        voids = doing.kind in (Kind.UNLOCK, Kind.GIVE_UP) or doing.write.outcome is Outcome.CALLED_BACK
        applied = voters_in(store[STABLE][0] or b"") if voids else state.applied
        return state._replace(store=store, newest=newest, applied=applied)

    def _term(self, state: State) -> bytes:
        return str(self._scope.elections - state.faults.elections + 1).encode()

    def _unlock(self, state: State, *, is_changing: bool = False) -> Doing:
        arguments = stage_in(state).value, self._term(state).decode(), str(int(is_changing))
        return self._decided.decide(Kind.UNLOCK, state.store, 0, " ".join(arguments).encode())


def _unanswered(state: State, doing: Doing) -> State:
    """A change that is to leave voters alone ends when nobody can tell whether the lock went."""
    is_asked = doing.kind == Kind.UNLOCK and state.change is not None and state.change.cleared
    return state._replace(change=None) if is_asked else state


def _nodes(target: bytes) -> str:
    return "".join(sorted(voters_in(target)))


def _name(doing: Doing) -> str:
    return f"{doing.write.outcome.value}({doing.number})" if doing.write else doing.kind
