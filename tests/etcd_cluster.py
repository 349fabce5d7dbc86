"""A real metastore of three members on this machine, whose members are killed, brought back, and frozen."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx

from rebalance.hosting.child import spawn
from rebalance.hosting.etcd_binary import find_etcd
from tests.ports import free_block

MEMBERS = 3
START_S = 90.0


class EtcdCluster:
    """Members are numbers from 0 on. ``start`` brings a killed one back with its data. ``options`` for etcd's
    command line."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._options = options
        ports = free_block(2 * MEMBERS)
        self._client_ports, self._peer_ports = ports[:MEMBERS], ports[MEMBERS:]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for member in range(MEMBERS):
            self.start(member)
        self.wait_for_leader()

    @property
    def endpoints(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._client_ports]

    def start(self, member: int) -> None:
        client = f"http://127.0.0.1:{self._client_ports[member]}"
        peer = f"http://127.0.0.1:{self._peer_ports[member]}"
        peers = ",".join(f"m{each}=http://127.0.0.1:{port}" for each, port in enumerate(self._peer_ports))
        data = self._directory / f"m{member}"
        command = [
            *(find_etcd().path, "--name", f"m{member}", "--data-dir", str(data)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", peers, "--log-level", "warn"),
            *self._options,
        ]
        self._processes[member] = spawn(command, log=self._directory / f"m{member}.log")

    def kill(self, member: int) -> None:
        process = self._processes.pop(member)
        process.kill()
        process.wait()

    def freeze(self, member: int) -> None:
        self._processes[member].send_signal(signal.SIGSTOP)

    def leader(self, members: int = 1) -> int | None:
        """The member that says of itself that it leads, and that so many ``members`` follow."""
        known = {member: found for member in self._processes if (found := self._status(member))}
        # What is zero is left out of the answer: a member that knows of no leader.
        named = [found.get("leader") for found in known.values()]
        for member, found in known.items():
            if found.get("leader") == found["header"]["member_id"] and named.count(found["leader"]) >= members:
                return member
        return None

    def wait_for_leader(self, members: int = MEMBERS) -> int:
        """Once ``members`` know of the same one. Blocks."""
        deadline = time.monotonic() + START_S
        while (leader := self.leader(members)) is None:
            assert time.monotonic() < deadline, f"no leader within {START_S} s: {self._directory}"
            time.sleep(0.1)
        return leader

    def stop(self) -> None:
        for member in tuple(self._processes):
            self.kill(member)

    def _status(self, member: int) -> dict[str, Any] | None:
        url = f"http://{self.endpoints[member]}/v3/maintenance/status"
        try:
            answer = httpx.post(url, json={}, trust_env=False, timeout=5)
        except httpx.TransportError:
            return None
        return dict(answer.json()) if answer.status_code == 200 else None
