"""One request of a partition's data over all of its attempts, and how one of them failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rebalance.core.keyspace.keys import PartitionId
from rebalance.ports.groups import GroupError, Route


@dataclass(slots=True)
class DataRequest:
    """``route``, ``url`` and ``limit_s`` are the present attempt's. ``may_be_done``: an earlier attempt may
    have been carried out, or may yet be. ``failure``: of the last attempt."""

    partition: PartitionId
    deadline: float
    route: Route
    url: str = ""
    limit_s: float = 0.0
    attempts: int = 0
    may_be_done: bool = False
    failure: AttemptFailedError | None = None

    @property
    def left_s(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)


class AttemptFailedError(Exception):
    """The same request may be sent to another one. ``refusal``: makes the error of a request that ends with
    this failure, where no attempt may have been carried out; None: its outcome is unknown all the same.
    ``is_well``: the one that was asked is fine; ``is_route_old``: the route named an earlier generation;
    ``leader``: URL of the server that does it, as far as is known."""

    def __init__(
        self,
        message: str,
        refusal: Callable[[str], GroupError] | None = None,
        *,
        is_well: bool = False,
        is_route_old: bool = False,
        leader: str = "",
    ) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.is_well = is_well
        self.is_route_old = is_route_old
        self.leader = leader
