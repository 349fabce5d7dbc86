"""The product's group host, with a record of what it was asked for and of what it reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rebalance.core.assignments import Assignments
from rebalance.core.keys import PartitionId
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.etcd_tuning import EtcdTuning
from rebalance.ports.groups import ChangeAnswer, Failed, FailureCode, GroupChange, GroupEvent, StepInput


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
    """One attempt that has failed."""

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

    def change(self, partition: PartitionId) -> GroupChange | None:
        change = super().change(partition)
        return RecordedChange(change, self, self.requests[-1]) if change is not None else None

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


class RecordedChange:
    """Everything goes straight on."""

    def __init__(self, change: GroupChange, host: RecordedHost, request: Request) -> None:
        self._change = change
        self._host = host
        self._request = request

    async def advance(self, given: StepInput) -> GroupEvent:
        event = await self._change.advance(given)
        if isinstance(event, Failed) and event.failure.code is not FailureCode.CANCELLED:
            request = self._request
            failure = Failure(request.partition, event.failure.code, request.term, request.token)
            self._host.failures.append(failure)
        return event

    async def close(self) -> None:
        await self._change.close()
