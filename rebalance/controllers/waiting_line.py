"""Partitions of one zone that wait for admission, as arrays: looking through all costs little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from catalog.core.zone import ZoneId
from rebalance.controllers.targets import NamedTarget
from rebalance.core.admission.bulk_write import BulkDecisions
from rebalance.core.admission.move_admission import NO_LIMIT, Move, Rooms, Waiting
from rebalance.kernels.admission import with_room

FREE, CLOSED = 0, 1
"""Entries of the room vector: room for everything, and for nothing."""
CHUNK = 256
"""Partitions that are tried before the rooms are looked at again."""


class NodeNumbers:
    """Each node's three entries in the room vector: as a donor, as a receiver, for one member more."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def entries(self, move: Move) -> list[int]:
        sides = enumerate((move.donors, move.receivers, move.joins), start=CLOSED + 1)
        return [side + 3 * self._number(node) for side, nodes in sides for node in nodes] or [FREE]

    def room(self, rooms: Rooms) -> npt.NDArray[np.int64]:
        """int64 [2 + 3 nodes]."""
        room = [NO_LIMIT, 0]
        for node in self._numbers:
            room += (rooms.donor_room(node), rooms.receiver_room(node), rooms.member_room(node))
        return np.array(room, dtype=np.int64)

    def _number(self, node: str) -> int:
        return self._numbers.setdefault(node, len(self._numbers))


class WaitingLine:
    """Waiting partitions of a zone, in order. ``named`` and ``decisions`` are those of its newest target."""

    def __init__(
        self,
        zone_id: ZoneId,
        named: NamedTarget,
        decisions: BulkDecisions,
        moves: Mapping[int, Move],
        nodes: NodeNumbers,
    ) -> None:
        self.zone_id = zone_id
        self.named = named
        self.decisions = decisions
        self._nodes = nodes
        self._numbers = sorted(moves)
        self._places = {number: place for place, number in enumerate(self._numbers)}
        self._moves: list[Move | None] = [moves[number] for number in self._numbers]
        entries = [nodes.entries(moves[number]) for number in self._numbers]
        width = max(map(len, entries), default=1)
        rows = [entry + entry[:1] * (width - len(entry)) for entry in entries]
        self._uses = np.array(rows, dtype=np.int32).reshape(len(rows), width)
        self._left = len(rows)
        self.due: set[int] = set()
        """Partitions that began to move otherwise: their target is planned, and needs no room."""

    def __len__(self) -> int:
        return self._left

    def __contains__(self, number: int) -> bool:
        """Check that the partition came with this line, waiting or not."""
        return number in self._places

    def remove(self, number: int) -> None:
        """The partition waits no more, and nothing of it is due."""
        self.update(number, None)
        self.due.discard(number)

    def update(self, number: int, move: Move | None) -> None:
        """Set what the partition waits to do now; None: it waits no more."""
        place = self._places[number]
        self._left += (move is not None) - (self._moves[place] is not None)
        self._moves[place] = move
        entries = [CLOSED] if move is None else self._nodes.entries(move)
        wider = len(entries) - self._uses.shape[1]
        if wider > 0:
            self._uses = np.pad(self._uses, ((0, 0), (0, wider)), mode="edge")
        self._uses[place] = entries + entries[:1] * (self._uses.shape[1] - len(entries))

    def candidates(self, rooms: Rooms) -> Iterator[Waiting]:
        """Yield the partitions whose nodes have room, in order; ``rooms`` may be used up while this goes on."""
        start = 0
        while True:
            places = with_room(self._uses, self._nodes.room(rooms), start)
            if not len(places):
                return
            for place in places[:CHUNK].tolist():
                move = self._moves[place]
                assert move is not None, "the row of what waits no more has no room"
                yield self._numbers[place], move
                start = place + 1
