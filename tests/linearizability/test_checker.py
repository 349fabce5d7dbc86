"""The checker is judged before it judges: seeded histories, and the definition itself on tiny ones."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.linearizability.brute_force import is_linearizable
from tests.linearizability.checker import violations
from tests.linearizability.history import Action, Operation, Recorder, read, write

SCRIPT = Path(__file__).parent / "histories.txt"
LINE = re.compile(
    r"c(?P<client>\d+) (?P<action>\w+) ?(?P<words>[^\s].*?)?\s+"
    r"(?P<from>\d+)-(?P<to>\d+|\?)(?:\s+key=(?P<key>\w+))?"
)


@dataclass(frozen=True, slots=True)
class Case:
    good: bool
    name: str
    history: tuple[Operation, ...]


def cases() -> Iterator[Case]:
    for block in SCRIPT.read_text().split("\n\n"):
        head, *lines = block.strip().splitlines()
        if head.startswith("#"):
            continue
        verdict, _, name = head.partition(": ")
        assert verdict in ("good", "bad"), head
        yield Case(verdict == "good", name, tuple(map(parsed, lines)))


def parsed(line: str) -> Operation:
    found = LINE.fullmatch(line.strip())
    assert found, line
    action, words = Action(found["action"]), (found["words"] or "").split()
    returned = None if found["to"] == "?" else int(found["to"])
    value = words[1 if action is Action.CAS else 0] if words and words[0] != "-" else None
    return Operation(
        int(found["client"]),
        found["key"] or "a",
        action,
        value,
        int(found["from"]),
        returned,
        words[0] if action is Action.CAS else None,
        words[-1] != "no" if action is Action.CAS else True,
    )


@pytest.mark.parametrize(
    "case", list(cases()), ids=lambda case: f"{'good' if case.good else 'bad'}: {case.name}"
)
def test_seeded_histories(case: Case) -> None:
    """Ten and more that must be refused, ten and more that must not; the definition says the same."""
    found = violations(case.history)
    assert (not found) is case.good, "\n".join(map(str, found))
    assert is_linearizable(case.history) is case.good
    assert all("nothing explains" in str(each) for each in found)


def test_there_are_enough_of_both() -> None:
    found = list(cases())
    assert sum(case.good for case in found) >= 10
    assert sum(not case.good for case in found) >= 10


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Up to six operations on two values: few enough for the definition, with every kind of overlap."""
    operations = []
    for client in range(draw(st.integers(1, 6))):
        action = draw(st.sampled_from(list(Action)))
        begun = draw(st.integers(0, 8))
        is_open = action is not Action.GET and draw(st.integers(0, 3)) == 0
        values = st.sampled_from((None, "1", "2"))
        operations.append(
            Operation(
                client,
                "a",
                action,
                None if action is Action.DELETE else draw(values),
                begun,
                None if is_open else begun + draw(st.integers(0, 6)),
                draw(values) if action is Action.CAS else None,
                is_open or action is not Action.CAS or draw(st.booleans()),
            )
        )
    return operations


@settings(max_examples=examples(1_500), deadline=None)
@given(histories())
def test_the_checker_says_what_the_definition_says(history: list[Operation]) -> None:
    expected = is_linearizable(history)
    event(f"linearizable: {expected}")
    assert (not violations(history)) is expected


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 6))
def test_what_a_register_did_is_accepted_and_a_changed_answer_is_not(seed: int, clients: int) -> None:
    """Histories of 120 operations taken from a real register, with unknown outcomes; then one read is told a
    value that was overwritten long before."""
    history = simulated(random.Random(seed), clients)
    assert violations(history) == []
    reads = [each for each in history if each.action is Action.GET]
    if reads:
        last = max(reads, key=lambda each: each.invoked)
        changed = Operation(last.client, last.key, last.action, "never", last.invoked, last.returned)
        found = violations([changed if each is last else each for each in history])
        assert [each.operation for each in found] == [changed]


def simulated(chooser: random.Random, clients: int) -> list[Operation]:
    """Each operation takes effect at one instant between its begin and its end."""
    state: str | None = None
    history: list[Operation] = []
    effects: list[tuple[int, int, int, int | None, Action]] = []
    for client in range(clients):
        now = chooser.randrange(10)
        for _ in range(120 // clients):
            begun, effect = now, now + chooser.randrange(1, 10)
            ended = effect + chooser.randrange(1, 10)
            action = chooser.choice((Action.GET, Action.PUT, Action.PUT, Action.DELETE))
            is_open = action is not Action.GET and chooser.random() < 0.05
            if is_open:
                effect += chooser.randrange(300)
            effects.append((effect, client, begun, None if is_open else ended, action))
            now = ended + chooser.randrange(5)
    for number, (_, client, begun, returned, action) in enumerate(sorted(effects, key=lambda each: each[0])):
        if action is not Action.GET:
            state = None if action is Action.DELETE else str(number)
        history.append(Operation(client, "a", action, state, begun, returned))
    return history


def test_a_recorded_history_is_written_and_read_again(tmp_path: Path) -> None:
    """Record an operation that is open at the end as of unknown outcome; leave a get without an answer out."""
    recorder = Recorder()
    put = recorder.begin(1, "a", Action.PUT, "1")
    get = recorder.begin(2, "a", Action.GET)
    lost = recorder.begin(3, "a", Action.GET)
    unknown = recorder.begin(4, "a", Action.PUT, "2")
    recorder.begin(5, "b", Action.DELETE)
    recorder.end(put)
    recorder.end(get, "1")
    recorder.leave_open(lost)
    recorder.leave_open(unknown)
    history = recorder.history()
    told = [(each.client, each.value, each.returned is None) for each in history]
    assert told == [(1, "1", False), (2, "1", False), (4, "2", True), (5, None, True)]
    assert violations(history) == []
    write(tmp_path / "history.jsonl", history)
    assert read(tmp_path / "history.jsonl") == history


@pytest.mark.parametrize(
    ("read", "client", "explained"),
    [
        ((35, 40, "A"), 1, False),
        ((35, 40, "B"), 1, True),
        ((22, 40, "A"), 1, True),
        ((35, 40, "A"), 2, True),
    ],
    ids=["overtaken", "kept", "read before", "of another client"],
)
def test_what_a_client_has_given_up_does_not_overtake_its_next_write(
    read: tuple[int, int, str], client: int, explained: bool
) -> None:
    """Linearizable all of them are; a write of another client abandons nothing."""
    invoked, returned, told = read
    history = [
        Operation(1, "k", Action.PUT, "A", 10, None),
        Operation(client, "k", Action.PUT, "B", 20, 30),
        Operation(3, "k", Action.GET, told, invoked, returned),
    ]
    assert violations(history) == []
    assert (violations(history, own_order=True) == []) is explained


def test_what_was_given_up_may_take_effect_once_before_the_next_write_only() -> None:
    """Two reads see A and then B, a third one A again, while B is still on its way."""
    history = [
        Operation(1, "k", Action.PUT, "A", 10, None),
        Operation(1, "k", Action.PUT, "B", 20, 90),
        Operation(3, "k", Action.GET, "B", 30, 40),
        Operation(3, "k", Action.GET, "A", 50, 60),
    ]
    assert violations(history) == []
    assert violations(history, own_order=True) != []
