"""Cost of the login, over connections that stay: an installation with it and one without, in turns."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from tests.bench.figures import report
from tests.fixtures.local_access import LocalAccess
from tests.fixtures.up_process import Up

ROUNDS = 5
CALLS = 200
FIRST_CALLS = 20
CALL_S = 60.0
USER, PASSWORD = "alice", "correct horse battery"
SCRIPT = """
    CREATE ZONE plain (PARTITIONS 1, REPLICAS 1);
    CREATE ZONE kept (PARTITIONS 1, REPLICAS 1) STORAGE PROFILES ['bulk']
"""
ACCEPTED = "at most 10 % or 0.5 ms more is accepted"
WITHOUT, LOGIN = "--no-auth", "--auth"

Call = Callable[[httpx.Client, int], httpx.Response]


def put(zone: str) -> Call:
    return lambda client, number: client.put(
        f"/api/v1/zones/{zone}/kv/k{number % 50}", json={"value": "x" * 100}
    )


def statement(text: str) -> Call:
    """``{}``: two values in turns."""
    return lambda client, number: client.post("/api/v1/statements", json={"sql": text.format(number % 2)})


CALLED: Mapping[str, Call] = {
    "put, zone of etcd groups": put("plain"),
    "put, zone of store servers": put("kept"),
    "SELECT": statement("SELECT ZONE_NAME FROM SYSTEM.ZONES"),
    "SHOW ZONES": statement("SHOW ZONES"),
    "ALTER ZONE": statement("ALTER ZONE plain SET (AUTO SCALE UP 10{})"),
}


class Server:
    """Server of a running installation, with one connection to it that stays."""

    def __init__(self, up: Up, stack: ExitStack) -> None:
        self.access = LocalAccess.of(up.served().directory)
        self.client = stack.enter_context(self.access.client(CALL_S))
        self._process = psutil.Process(up.pid_of("server"))

    def processor_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, Server]]:
    with ExitStack() as stack:
        ups = {option: Up(tmp_path / option.strip("-"), "--nodes", "1", option) for option in (WITHOUT, LOGIN)}
        for up in ups.values():
            stack.callback(up.stop)
        yield {option: Server(up, stack) for option, up in ups.items()}


def prepare(client: httpx.Client) -> None:
    """Create both zones, and wait until each takes a key."""
    client.post("/api/v1/statements", json={"sql": SCRIPT}).raise_for_status()
    for zone in ("plain", "kept"):
        deadline = time.monotonic() + CALL_S
        while put(zone)(client, 0).status_code != httpx.codes.OK:
            assert time.monotonic() < deadline, f"{zone} takes no key"
            time.sleep(0.2)


def timed(call: Call, client: httpx.Client, numbers: Iterator[int]) -> list[float]:
    seconds = []
    for number in itertools.islice(numbers, CALLS):
        begun = time.perf_counter()
        call(client, number).raise_for_status()
        seconds.append(time.perf_counter() - begun)
    return seconds


@pytest.mark.slow("servers with and without login, asked in turns")
def test_calls_over_a_connection_that_stays(servers: dict[str, Server]) -> None:
    numbers = itertools.count()
    for server in servers.values():
        prepare(server.client)
    for name, call in CALLED.items():
        medians: dict[str, list[float]] = {option: [] for option in servers}
        processor: dict[str, list[float]] = {option: [] for option in servers}
        for turn in range(ROUNDS + 1):
            for option, server in servers.items():
                before = server.processor_s()
                seconds = timed(call, server.client, numbers)
                if turn:
                    medians[option].append(statistics.median(seconds))
                    processor[option].append((server.processor_s() - before) / CALLS)
        without, login = (statistics.median(medians[option]) * 1e3 for option in (WITHOUT, LOGIN))
        costs = [statistics.median(processor[option]) * 1e3 for option in (WITHOUT, LOGIN)]
        print(
            f"{name:<30} without {without:8.3f} ms, login {login:8.3f} ms: {login - without:+.3f} ms, "
            f"{login / without - 1:+.1%}; processor time {costs[0]:.2f} and {costs[1]:.2f} ms   ({ACCEPTED})"
        )


@pytest.mark.slow("each password takes a third of a second")
def test_first_connections_and_passwords(servers: dict[str, Server]) -> None:
    """Each of the calls opens a connection of its own; a password that was right is remembered for 60 s."""
    server = servers[LOGIN]
    sql = f"CREATE USER {USER} WITH PASSWORD '{PASSWORD}'; GRANT viewer TO {USER}"
    server.client.post("/api/v1/statements", json={"sql": sql}).raise_for_status()
    for option, called in servers.items():
        report(f"first call of a connection, {option}", [first_call(called.access) for _ in range(FIRST_CALLS)])
    # The server's users are at most two seconds old.
    time.sleep(3)
    by_password = httpx.Client(
        base_url=server.access.url, verify=server.access.verify, auth=(USER, PASSWORD), trust_env=False
    )
    with by_password:
        seconds = []
        for _ in range(FIRST_CALLS):
            begun = time.perf_counter()
            by_password.get("/api/v1/zones", timeout=CALL_S).raise_for_status()
            seconds.append(time.perf_counter() - begun)
    report("first call with a password, its connection too", seconds[:1])
    report("further calls with it", seconds[1:])


def first_call(access: LocalAccess) -> float:
    with access.client(CALL_S) as client:
        begun = time.perf_counter()
        client.get("/api/v1/zones").raise_for_status()
        return time.perf_counter() - begun
