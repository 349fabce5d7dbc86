"""Requests at random to a real server: with any keys, names and bodies, nothing ends or breaks, and no caller
does what is not granted."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from rebalance.core.keyspace.keys import Keyspace
from tests.e2e.installation import ANSWER_S, Installation, without_spark
from tests.fixtures.caller_fuzz import caller_fuzz
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.random_requests import FIELDS, TEXTS, Sender, random_body, random_text
from tests.fixtures.secure_server import SecureServer, serving_securely

SLICE, SOAK = 1_500, 100_000
CALLERS_SLICE = 400
CHECKED_EVERY = 2_000
"""Requests between two looks at the whole state."""
RESIDENT_MOST = 1.10
"""Most resident memory at the end, as a multiple of the server's after a tenth of the requests."""

PLACES = (
    *("zones/{}", "zones/{}/partitions", "zones/{}/routing", "nodes/{}/can-stop", "operations/{}"),
    *("statements/{}", "audit?by={}", "operations?zone={}", "audit?page_token={}"),
    "zones/FUZZED/recovery/states?node={}",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("fuzz")
    whole = Installation(directory / "data", 1, without_spark(directory))
    try:
        whole.start()
        whole.execute("CREATE ZONE fuzzed (PARTITIONS 1, REPLICAS 1)")
        yield whole
    finally:
        whole.stop()


def _request(chosen: random.Random) -> tuple[str, str, bytes | None, dict[str, str]]:
    kind = chosen.randrange(4)
    if kind == 0:
        target = f"/api/v1/zones/FUZZED/kv/{random_text(chosen)}"
        return (
            "PUT",
            target,
            json.dumps({"value": chosen.choice(TEXTS)}).encode(),
            {"Content-Type": "application/json"},
        )
    if kind == 1:
        return "GET", f"/api/v1/zones/FUZZED/kv/{random_text(chosen)}", None, {}
    if kind == 2:
        return (
            "GET",
            "/api/v1/" + chosen.choice(PLACES).format(random_text(chosen)),
            None,
            {"Zonekeeper-By": random_text(chosen)},
        )
    address = chosen.choice(list(FIELDS))
    method, target = address.split(" ")
    return method, target, random_body(chosen, FIELDS[address]), {"Content-Type": "application/json"}


def _tried(server: Installation, count: int, seed: int) -> tuple[int, int]:
    """Resident bytes of the server after a tenth, and at the end."""
    (process,) = server.processes("app.cli", "serve")
    chosen, warm = random.Random(seed), 0
    statuses: set[int] = set()
    with closing(Sender(server.access.connection(ANSWER_S), server.access.headers)) as sender:
        for number in range(count):
            method, target, body, headers = _request(chosen)
            status = sender.send(method, target, body, headers)
            assert status < 500, (number, method, target, body)
            statuses.add(status)
            if number == count // 10:
                warm = process.memory_info().rss
    assert {200, 400, 404} <= statuses
    assert process.status() != psutil.STATUS_ZOMBIE
    assert server.processes("app.cli", "serve") == [process]
    return warm, process.memory_info().rss


@pytest.mark.timeout(300)
def test_a_slice_of_requests_at_random(server: Installation) -> None:
    _tried(server, SLICE, 5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_memory_stays_with_requests_at_random(server: Installation) -> None:
    warm, end = _tried(server, SOAK, 6)
    print(f"resident after {SOAK // 10} requests {warm >> 20} MiB, after {SOAK} {end >> 20} MiB")
    assert end <= RESIDENT_MOST * warm


@pytest.fixture
def secured(etcd_server: Etcd, tmp_path: Path) -> Iterator[SecureServer]:
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    with serving_securely(tmp_path, etcd_server, Keyspace(f"fuzz-{tmp_path.name}/"), url) as opened:
        yield opened


def _tried_by_callers(server: SecureServer, count: int, seed: int) -> None:
    """Five callers, each of whom may do what the model of its grants says."""
    begun, checked = time.monotonic(), 0
    with caller_fuzz(server, seed) as fuzz:
        while fuzz.requests < count:
            fuzz.step()
            if fuzz.requests - checked >= CHECKED_EVERY:
                checked = fuzz.requests
                fuzz.check_state()
                print(f"{checked} requests, none different")
        fuzz.check_state()
    took_s = time.monotonic() - begun
    print(f"{fuzz.requests} requests in {took_s:.0f} s, seed {seed}: {dict(sorted(fuzz.counts.items()))}")


@pytest.mark.thorough("test_a_slice_of_requests_at_random, and test_role_walk for callers")
@pytest.mark.timeout(300)
def test_a_slice_of_requests_of_five_callers(secured: SecureServer) -> None:
    _tried_by_callers(secured, CALLERS_SLICE, 7)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_five_callers_do_what_is_granted_to_them(secured: SecureServer) -> None:
    _tried_by_callers(secured, SOAK, int(os.environ.get("SOAK_SEED", "8")))
