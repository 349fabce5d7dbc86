"""Partitions that have lost their majority, and what a reset would do to them, as the recovery page shows them.

Made of what the REST API answers: no widget, no metastore. A dry run is a value that the page keeps, with what
was lost when it was made, so that it is never run once that has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.console.fragments import natural
from app.console.what_if import read_names
from app.console.zone_states import ZoneState
from catalog.core.errors import ErrorKind, RefusedError

Json = dict[str, Any]

NOT_ANSWERING = ("BROKEN", "UNAVAILABLE")
SHOWN = ("survivor", "empty", "possibly_lost_entries")
_NUMBERS = re.compile(r"(\d{1,6})(?:\s*-\s*(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a partition. ``revision`` is the data revision that it has completely, None: not known;
    ``verdict`` says why a reset does not use it, empty: it may."""

    node: str
    kind: str
    state: str
    revision: int | None = None
    generation: int = 0
    verdict: str = ""
    is_survivor: bool = False


@dataclass(frozen=True, slots=True)
class LostPartition:
    """``dead``: voters whose node or process does not answer. ``founding_on``: the node on which a reset founds
    the group now, empty: none is under way."""

    number: int
    state: str
    cause: str
    voters: int
    voters_alive: int
    dead: tuple[str, ...]
    founding_on: str
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class ZoneLoss:
    """A zone's partitions without a majority: ``numbers`` are all of them, ``partitions`` the first ones."""

    zone: str
    total: int
    numbers: tuple[int, ...]
    partitions: tuple[LostPartition, ...]

    @property
    def dead(self) -> tuple[str, ...]:
        return names_of(partition.dead for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class ResetRow:
    """What becomes of one partition. ``refusal``: why nothing does; ``lost``: how much may be, in words."""

    number: int
    survivor: str
    then: tuple[str, ...]
    lost: str
    note: str
    refusal: str
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class DryRun:
    """``request`` is what it was made for, ``answer`` what the API said; ``loss`` is what was lost then."""

    request: Json
    answer: tuple[Json, ...]
    loss: ZoneLoss
    rows: tuple[ResetRow, ...]

    @property
    def resets(self) -> list[ResetRow]:
        return [row for row in self.rows if not row.refusal]

    @property
    def emptied(self) -> int:
        """Partitions that would begin without data."""
        return sum(bool(reset["empty"]) for reset in self.answer)

    @property
    def entries(self) -> int:
        """Log entries that may be lost, of all partitions."""
        return sum(reset["possibly_lost_entries"] or 0 for reset in self.answer)

    @property
    def dead(self) -> tuple[str, ...]:
        """Voters of the partitions that would be reset, taken for dead."""
        numbers = {row.number for row in self.resets}
        lost = (partition for partition in self.loss.partitions if partition.number in numbers)
        return names_of(partition.dead for partition in lost)

    def is_stale(self, loss: ZoneLoss) -> bool:
        """Whether something else is lost now than when it was made."""
        return loss != self.loss


def names_of(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Each name once, n2 before n10."""
    return tuple(sorted({name for group in groups for name in group}, key=natural))


def read_partitions(text: str, partitions: int) -> list[int]:
    """Numbers and ranges such as ``0-3, 7``, ascending; empty: none is named.

    Raises RefusedError: INVALID_REQUEST, PARTITION_NOT_FOUND.
    """
    numbers: set[int] = set()
    for part in filter(None, re.split(r"[,;\s]+", re.sub(r"\s*-\s*", "-", text.strip()))):
        match = _NUMBERS.fullmatch(part)
        if match is None:
            message = f'"{part}" names no partition: write numbers and ranges, such as 0-3, 7'
            raise RefusedError(ErrorKind.INVALID_REQUEST, message)
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < partitions:
            message = f'"{part}": the zone has partitions 0 to {partitions - 1}'
            raise RefusedError(ErrorKind.PARTITION_NOT_FOUND, message)
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def ranges_of(numbers: Sequence[int]) -> str:
    """``numbers``, ascending, as ``read_partitions`` takes them."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in ranges)


def zones_with_loss(states: Iterable[ZoneState]) -> list[ZoneState]:
    """Those with most lost partitions first."""
    return sorted((state for state in states if state.lost), key=lambda state: (-state.lost, state.zone.name))


def lost_partition(state: Json, cause: str) -> LostPartition:
    """``state`` is the API's of the partition, ``cause`` what it waits for."""
    replicas = state["replicas"]
    return LostPartition(
        state["partition"],
        state["state"],
        cause,
        state["voters"],
        state["voters_alive"],
        names_of([[each["node"] for each in replicas if each["voter"] and each["state"] in NOT_ANSWERING]]),
        state["recovering_on"] or "",
        tuple(
            Copy(each["node"], "voter" if each["voter"] else "no voter", each["state"], verdict=each["reason"])
            for each in sorted(replicas, key=lambda each: natural(each["node"]))
            if each["state"] != "UNAVAILABLE"
        ),
    )


def zone_loss(
    zone: str, total: int, numbers: Sequence[int], states: Iterable[Json], causes: Sequence[str]
) -> ZoneLoss:
    """``numbers``: all that are lost; ``states``: the API's of the first of them; ``causes`` by partition."""
    rows = tuple(lost_partition(state, causes[state["partition"]]) for state in states)
    return ZoneLoss(zone, total, tuple(numbers), rows)


def dry_run(request: Json, answer: Sequence[Json], loss: ZoneLoss) -> DryRun:
    """Of the API's ``answer`` to ``request``."""
    return DryRun(request, tuple(answer), loss, tuple(reset_row(reset) for reset in answer))


def reset_row(reset: Json) -> ResetRow:
    number, refusal = reset["partition"], reset["refusal"]
    copies = candidates_of(reset)
    if refusal:
        return ResetRow(number, "", (), "", "", f"{refusal['name']}: {refusal['detail']}", copies)
    then = reset["then"]
    nodes = (*then["peers"], *then["learners"]) if then else (reset["survivor"],)
    if reset["empty"]:
        note = "No living node has a copy: the partition begins without data."
        return ResetRow(number, reset["survivor"], nodes, "everything", note, "", copies)
    entries = reset["possibly_lost_entries"]
    lost = f"up to {_entries(entries)}" if entries else "nothing that is known"
    note = (
        "Its process is stopped in order first."
        if reset["orderly"]
        else "Its process has crashed: it may know of more than is on its disk."
    )
    return ResetRow(number, reset["survivor"], nodes, lost, note, "", copies)


def consequence_of(run: DryRun, *, is_strong: bool) -> str:
    """What the last question before the reset says. ``is_strong``: of a STRONG_CONSISTENCY zone."""
    numbers = ranges_of([row.number for row in run.resets])
    lost = f"up to {_entries(run.entries)} may be lost" if run.entries else "no log entry is known to be lost"
    sentences = [f"Each group is founded anew on one copy (partitions {numbers}); {lost}."]
    if run.emptied:
        sentences.append(f"{run.emptied:,} of them begin without data: everything that they had is lost.")
    if run.dead:
        sentences.append(f"Taken for dead: {', '.join(run.dead)}. Their copies never vote again.")
        if is_strong:
            sentences.append(
                "One that is only cut off from etcd may still acknowledge writes, which would be lost: make "
                "sure that each of them is stopped, then type their names."
            )
    return " ".join(sentences)


def check_dead(text: str, dead: Sequence[str]) -> None:
    """Raises RefusedError: INVALID_REQUEST, when ``text`` does not name exactly the nodes taken for dead."""
    if set(read_names(text)) != set(dead):
        message = f"the nodes that are taken for dead are {', '.join(dead)}: type these names"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)


def _entries(count: int) -> str:
    return f"{count:,} log entr{'y' if count == 1 else 'ies'}"


def candidates_of(reset: Json) -> tuple[Copy, ...]:
    """Every copy that was compared, the one that goes on first."""
    copies = [
        Copy(node, "voter", "", position["committed"], is_survivor=node == reset["survivor"])
        for node, position in reset["copies"].items()
    ]
    return tuple(sorted(copies, key=lambda copy: (not copy.is_survivor, natural(copy.node))))


def accepted_of(answer: Iterable[Mapping[str, Any]]) -> list[Json]:
    """What a dry run has shown, as a reset takes it; together where it is the same, for a zone may have many
    partitions."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for reset in answer:
        if not reset["refusal"]:
            groups.setdefault(tuple(reset[name] for name in SHOWN), []).append(reset["partition"])
    return [dict(zip(SHOWN, shown, strict=True)) | {"partitions": numbers} for shown, numbers in groups.items()]
