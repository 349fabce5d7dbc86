"""The product's group host, with a record of what it was asked for and of what it reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rebalance.core.assignments import Assignments
from rebalance.core.keys import PartitionId
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.etcd_tuning import EtcdTuning
from rebalance.ports.groups import ChangeAnswer, FailureCode, GroupListener, ReconfigurationFailure


@dataclass(frozen=True, slots=True)
class Request:
    """One call of ``change_peers_and_learners``."""

    partition: PartitionId
    term: int
    token: int
    target: Assignments
    answer: ChangeAnswer


@dataclass(frozen=True, slots=True)
class Failure:
    """One call of ``on_reconfiguration_error``."""

    partition: PartitionId
    code: FailureCode
    term: int
    token: int


class RecordedHost(EtcdGroupHost):
    """While it is ``held``, members that are to join a group are reserved here and not started."""

    def __init__(self, data_dir: Path, ports: range, *, tuning: EtcdTuning | None = None) -> None:
        super().__init__(data_dir, ports, tuning=tuning)
        self.requests: list[Request] = []
        self.failures: list[Failure] = []
        self.held = False

    def open(self, node: str, listener: GroupListener) -> None:
        super().open(node, cast(GroupListener, _RecordedListener(listener, self.failures)))

    async def join(self, partition: PartitionId, peers: Mapping[str, str], generation: int = 0) -> None:
        if not self.held:
            await super().join(partition, peers, generation)

    async def change_peers_and_learners(
        self,
        partition: PartitionId,
        term: int,
        token: int,
        target: Assignments,
        endpoints: Mapping[str, str],
        stable: Sequence[str] = (),
    ) -> ChangeAnswer:
        answer = await super().change_peers_and_learners(partition, term, token, target, endpoints, stable)
        self.requests.append(Request(partition, term, token, target, answer))
        return answer

    @property
    def accepted(self) -> list[Request]:
        return [each for each in self.requests if each.answer is ChangeAnswer.RECEIVED]


class _RecordedListener:
    """Everything but the hook of failures goes straight on."""

    def __init__(self, listener: GroupListener, failures: list[Failure]) -> None:
        self._listener = listener
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)

    async def on_reconfiguration_error(
        self, partition: PartitionId, failure: ReconfigurationFailure, term: int, token: int
    ) -> None:
        self._failures.append(Failure(partition, failure.code, term, token))
        await self._listener.on_reconfiguration_error(partition, failure, term, token)
