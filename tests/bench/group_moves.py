"""Moves of groups that are measured."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.calls.etcd_api import CallFailedError, EtcdApi
from rebalance.groups.files.etcd_tuning import MEMBER_ENVIRONMENT, EtcdTuning, InitialCluster, member_command
from rebalance.hosting.child import spawn, stop
from rebalance.hosting.etcd_binary import find_etcd
from rebalance.ports.groups import MemberEndpoints
from tests.fixtures.node_cluster import NodeCluster, is_settled
from tests.fixtures.ports import free_block

P0 = PartitionId(ZoneId(7), 0)


RETRY_S = 0.05


TUNING = EtcdTuning()


class BareGroup:
    """The same processes, driven by hand. A replaced member's directory is removed, as an agent does it."""

    def __init__(self, directory: Path, tuning: EtcdTuning = TUNING) -> None:
        self._directory = directory
        self._tuning = tuning
        self._numbers = itertools.count(1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.endpoints: dict[str, MemberEndpoints] = {}

    async def found(self, names: Sequence[str]) -> None:
        initial = {name: self._reserve(name).peer_url for name in names}
        for name in names:
            self._start(name, initial, "new")
        api = EtcdApi(self.endpoints[names[0]].client_url)
        await _until_done(lambda: api.claim_identity(str(P0).encode()))
        await api.close()

    def urls(self) -> tuple[str, ...]:
        return tuple(each.client_url for each in self.endpoints.values())

    async def replace_last(self) -> None:
        """Learner, process, promotion, removal; asked again until the group agrees."""
        asked, *_, leaving = self.endpoints
        api = EtcdApi(self.endpoints[asked].client_url)
        new = f"m{next(self._numbers)}"
        left = self.endpoints[leaving]
        endpoints = self._reserve(new)
        await _until_done(lambda: api.add_learner(endpoints.peer_url))
        members = {each.peer_url: each.member_id for each in await api.members(linearizable=True)}
        initial = {f"_{index}": url for index, url in enumerate(members) if url != endpoints.peer_url}
        self._start(new, {**initial, new: endpoints.peer_url}, "existing")
        await _until_done(lambda: api.promote(members[endpoints.peer_url]))
        await _until_done(lambda: api.remove(members[left.peer_url]))
        await api.close()
        self._end(leaving)

    def stop(self) -> None:
        for name in list(self._processes):
            self._end(name)

    def _reserve(self, name: str) -> MemberEndpoints:
        ports = free_block(2)
        self.endpoints[name] = MemberEndpoints(*(f"http://127.0.0.1:{port}" for port in ports))
        return self.endpoints[name]

    def _start(self, name: str, initial: dict[str, str], state: str) -> None:
        data = self._directory / name
        cluster = InitialCluster(initial, "bare", state)
        command = member_command(find_etcd().path, name, data, self.endpoints[name], cluster, self._tuning, {})
        log = self._directory / f"{name}.log"
        self._processes[name] = spawn(command, log=log, env=MEMBER_ENVIRONMENT)

    def _end(self, name: str) -> None:
        stop(self._processes.pop(name))
        self.endpoints.pop(name)
        shutil.rmtree(self._directory / name, ignore_errors=True)


async def _until_done(call: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except CallFailedError:
                await asyncio.sleep(RETRY_S)


class AgentGroup:
    """Real node processes; the metastore's keys are written as the controllers would write them."""

    def __init__(self, cluster: NodeCluster) -> None:
        self._cluster = cluster
        self._spare = "n4"

    async def found(self) -> None:
        await self._cluster.write_stable(P0, "n1", "n2", "n3")
        await self._cluster.until(lambda: is_settled(self._cluster, ("n1", "n2", "n3")), 60)

    async def replace(self) -> None:
        """A voter that does not lead goes; returns with the stable switch."""
        leader = getattr(self._cluster.configuration(P0), "leader", "")
        voters = sorted(self._cluster.stable(P0))
        leaving = next(name for name in voters if name != leader)
        target = [*(name for name in voters if name != leaving), self._spare]
        await self._cluster.write_pending(P0, *target)
        await self._cluster.until(lambda: self._cluster.stable(P0) == frozenset(target), 60)
        self._spare = leaving

    async def settle(self) -> None:
        """Wait until what the member left behind is cleaned up."""
        await self._cluster.until(lambda: self._cluster.record(P0, self._spare) is None, 60)
