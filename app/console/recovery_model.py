"""Partitions that have lost their majority, and what a reset would do to them, as the recovery page shows them.

Made of what the REST API answers: no widget, no metastore. A dry run is a value that the page keeps, with what
was lost when it was made, so that it is never run once that has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from app.console.fragments import natural
from app.console.viewer import shown_cause
from app.console.zone_states import ZoneState
from app.views.shown_resets import shown_of
from catalog.core.errors import ErrorKind, RefusedError

Json = dict[str, Any]

LOGGING = ("VOTER", "JOINER")
"""Kinds of replicas that have a log."""
NOT_ANSWERING = ("BROKEN", "UNAVAILABLE")
LOST_FIELDS = ("partition", "state", "voters", "voters_alive", "recovering_on")
_NUMBERS = re.compile(r"(\d{1,6})(?:\s*-\s*(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class ZoneLoss:
    """A zone's partitions without a majority: ``numbers`` are all of them, ``partitions`` the first ones
    (``lost_partition``)."""

    zone: str
    total: int
    numbers: tuple[int, ...]
    partitions: tuple[Json, ...]

    @property
    def dead(self) -> tuple[str, ...]:
        return names_of(partition["dead"] for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class ResetRow:
    """Outcome of a reset for one partition. ``refusal``: why nothing does; ``lost``: how much may be, in words;
    ``copies``: every replica on a living node (``candidates_of``)."""

    number: int
    survivor: str
    then: tuple[str, ...]
    lost: str
    note: str
    refusal: str
    copies: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class DryRun:
    """``request`` says how it was made, ``answer`` is the API's for the partitions that were chosen; ``loss``
    is what was lost then."""

    request: Json
    answer: tuple[Json, ...]
    loss: ZoneLoss
    rows: tuple[ResetRow, ...]

    @property
    def resets(self) -> list[ResetRow]:
        return [row for row in self.rows if not row.refusal]

    @property
    def emptied(self) -> int:
        """Partitions that would start empty."""
        return sum(bool(reset["empty"]) for reset in self.answer)

    @property
    def entries(self) -> int:
        """Log entries and revisions that may be lost, of all partitions."""
        return sum(reset["possibly_lost_entries"] or 0 for reset in self.answer)

    @property
    def to_confirm(self) -> tuple[str, ...]:
        """Nodes that are taken for dead, which the request must name; none in a HIGH_AVAILABILITY zone."""
        return names_of(reset["to_confirm"] for reset in self.answer if not reset["refusal"])

    @property
    def unproven(self) -> list[tuple[str, str]]:
        """Nodes and their etcd's version, of which a revision proves nothing after a crash."""
        return sorted({pair for reset in self.answer for pair in reset["unproven"].items()})

    def request_of_reset(self, confirmed: Sequence[str]) -> Json:
        """Return the request that has the API do exactly what this has shown; ``confirmed``: nodes that are
        known to be dead."""
        numbers = [row.number for row in self.resets]
        shown = shown_of(self.answer)
        return {**self.request, "partitions": numbers, "shown": shown, "confirm_dead": list(confirmed)}

    def is_stale(self, loss: ZoneLoss) -> bool:
        """Check that something else is lost now than when it was made."""
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
            message = f'"{part}" is not a partition: enter numbers and ranges, such as 0-3, 7'
            raise RefusedError(ErrorKind.INVALID_REQUEST, message)
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < partitions:
            message = f'"{part}" is out of range: the zone has partitions 0 to {partitions - 1}'
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
    """Return the zones with a loss, those with most lost partitions first."""
    return sorted((state for state in states if state.lost), key=lambda state: (-state.lost, state.zone.name))


def lost_partition(state: Json, cause: str) -> Json:
    """``state`` is the API's of the partition, ``cause`` what it waits for; with ``dead``: voters whose node or
    process does not answer, and ``copies``: replicas on living nodes."""
    replicas = sorted(state["replicas"], key=lambda replica: natural(replica["node"]))
    dead = [row["node"] for row in replicas if row["voter"] and row["state"] in NOT_ANSWERING]
    living = (row for row in replicas if row["state"] != "UNAVAILABLE")
    copies = [
        {"node": row["node"], "kind": "voter" if row["voter"] else "learner", "state": row["state"]}
        for row in living
    ]
    # Log positions move all the time: they make no dry run stale.
    return {**{name: state[name] for name in LOST_FIELDS}, "cause": cause, "dead": dead, "copies": copies}


def zone_loss(
    zone: str, total: int, numbers: Sequence[int], states: Iterable[Json], causes: Sequence[str]
) -> ZoneLoss:
    """``numbers``: all that are lost; ``states``: the API's of the first of them; ``causes`` by partition."""
    rows = tuple(lost_partition(state, shown_cause(causes[state["partition"]])) for state in states)
    return ZoneLoss(zone, total, tuple(numbers), rows)


def dry_run(request: Json, answer: Sequence[Json], numbers: Sequence[int], loss: ZoneLoss) -> DryRun:
    """Make a dry run of the API's ``answer`` for the whole zone, so that partitions that cannot be reset are
    among it, with their copies. ``numbers``: those that were chosen; none: all."""
    chosen = tuple(reset for reset in answer if not numbers or reset["partition"] in numbers)
    return DryRun(request, chosen, loss, tuple(reset_row(reset) for reset in chosen))


def reset_row(reset: Json) -> ResetRow:
    number, refusal = reset["partition"], reset["refusal"]
    copies = candidates_of(reset)
    if refusal:
        return ResetRow(number, "", (), "", "", f"{refusal['name']}: {refusal['detail']}", copies)
    then = reset["then"]
    nodes = (*then["peers"], *then["learners"]) if then else (reset["survivor"],)
    if reset["empty"]:
        note = "The partition starts empty."
        return ResetRow(number, reset["survivor"], nodes, "everything", note, "", copies)
    entries = reset["possibly_lost_entries"]
    lost = f"up to {_entries(entries)}" if entries else "no known entry"
    return ResetRow(number, reset["survivor"], nodes, lost, _NOTES[reset["orderly"]], "", copies)


_NOTES = {
    True: "Its process is shut down cleanly first.",
    False: "Its process has crashed: entries may be missing on its disk.",
    None: "The replica has no log: all of its data is committed.",
}


def consequence_of(run: DryRun) -> str:
    """Return what the last question before the reset says."""
    numbers = ranges_of([row.number for row in run.resets])
    lost = f"up to {_entries(run.entries)} may be lost" if run.entries else "no entry is known to be lost"
    sentences = [f"Each group is founded anew from one replica (partitions {numbers}); {lost}."]
    if run.emptied:
        sentences.append(f"{run.emptied:,} of them start empty: all of their data is lost.")
    if run.to_confirm:
        sentences.append(
            f"Assumed dead: {', '.join(run.to_confirm)}. A node that is only cut off from etcd may still "
            "acknowledge writes, which would be lost. Make sure that each of these nodes is stopped, then "
            "enter their names."
        )
    return " ".join(sentences)


def _entries(count: int) -> str:
    return f"{count:,} entr{'y' if count == 1 else 'ies'}"


def candidates_of(reset: Json) -> tuple[Json, ...]:
    """Every replica on a living node, the best first, as the API describes it, and in words: ``kind``, ``log``
    and ``use``."""
    survivor = None if reset["empty"] else reset["survivor"]
    return tuple(
        {
            **candidate,
            "kind": candidate["kind"].lower(),
            "log": _log_of(candidate),
            "use": "the survivor" if candidate["node"] == survivor else _use_of(candidate),
        }
        for candidate in reset["candidates"]
    )


def _log_of(candidate: Json) -> str:
    """Write how far the replica's log goes: committed up to, and its newest entry."""
    committed, last = candidate["committed"], candidate["last"]
    if committed is None:
        return "unknown" if candidate["kind"] in LOGGING else "no log"
    return f"{committed:,}" if committed == last else f"{committed:,} of {last:,}"


def _use_of(candidate: Json) -> str:
    if candidate["usable"]:
        return "candidate"
    return "only if named" if candidate["by_name"] else "excluded"
