"""Requests at random to a real server: whatever keys, names and bodies are made of, nothing ends or breaks."""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote_from_bytes, urlsplit

import psutil
import pytest

from tests.e2e.installation import ANSWER_S, Installation, without_spark

SLICE, SOAK = 1_500, 100_000
RESIDENT_MOST = 1.10
"""Of what the server had after a tenth of the requests."""

TEXTS = (
    "",
    "x",
    "n1",
    "FUZZED",
    "SHOW ZONES",
    "CREATE ZONE fuzzed",
    "a\nb",
    "\x00",
    "\ud800",
    "\udfff\ud800",
    "🙂",
    "9" * 400,
)
SCALARS = (None, True, False, 0, 1, -1, 2**31, 2**53, 2**64, 1.5, 1e308, -0.0, *TEXTS)
FIELDS = {
    "POST /api/v1/statements": ("sql", "wait_timeout", "on_wait_timeout", "validate_only", "plan_id", "else"),
    "POST /api/v1/plan": ("files", "prune", "sql", "plan_id", "name", "text"),
    "POST /api/v1/zones/FUZZED/verify": ("partitions", "samples", "seed", "saved", "partition", "keys"),
    "PATCH /api/v1/rebalance/limits": (
        "cluster_moves",
        "windows",
        "pause",
        "zone_pauses",
        "by",
        "reason",
        "for_s",
    ),
    "PUT /api/v1/nodes/n1/drain": ("by", "reason"),
    "POST /api/v1/operations/1-1/pause": ("by", "reason", "for_s"),
    "POST /api/v1/operations/1-1/partitions/cancel": ("by", "reason", "partitions"),
}
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


class Sender:
    """One connection, opened anew where the server closes it."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_S)

    def close(self) -> None:
        self._connection.close()

    def send(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> int:
        self._connection.request(method, target, body, headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status


def _request(chosen: random.Random) -> tuple[str, str, bytes | None, dict[str, str]]:
    kind = chosen.randrange(4)
    if kind == 0:
        target = f"/api/v1/zones/FUZZED/kv/{_text(chosen)}"
        return (
            "PUT",
            target,
            json.dumps({"value": chosen.choice(TEXTS)}).encode(),
            {"Content-Type": "application/json"},
        )
    if kind == 1:
        return "GET", f"/api/v1/zones/FUZZED/kv/{_text(chosen)}", None, {}
    if kind == 2:
        return (
            "GET",
            "/api/v1/" + chosen.choice(PLACES).format(_text(chosen)),
            None,
            {"Zonekeeper-By": _text(chosen)},
        )
    address = chosen.choice(list(FIELDS))
    method, target = address.split(" ")
    return method, target, _body(chosen, FIELDS[address]), {"Content-Type": "application/json"}


def _text(chosen: random.Random) -> str:
    """As it stands in an address: UTF-8, bytes that are none, and percent signs that mean nothing."""
    if chosen.random() < 0.5:
        raw = "".join(
            chr(chosen.choice((chosen.randrange(128), chosen.randrange(0xD800)))) for _ in range(4)
        ).encode()
    else:
        raw = chosen.randbytes(chosen.randint(0, 6))
    return quote_from_bytes(raw, safe="/.") + chosen.choice(("", "", "", "", "%", "%2", "%zz"))


def _body(chosen: random.Random, fields: tuple[str, ...]) -> bytes:
    if chosen.random() < 0.15:
        return chosen.randbytes(chosen.randint(0, 40))
    if chosen.random() < 0.02:
        return b"[" * 100_000
    value = {name: _value(chosen, fields, 3) for name in fields if chosen.random() < 0.5}
    text = json.dumps(value, ensure_ascii=chosen.random() < 0.5)
    return text.encode(errors="surrogatepass")


def _value(chosen: random.Random, fields: tuple[str, ...], depth: int) -> Any:
    if depth == 0 or chosen.random() < 0.6:
        return chosen.choice(SCALARS)
    if chosen.random() < 0.5:
        return [_value(chosen, fields, depth - 1) for _ in range(chosen.randrange(3))]
    return {chosen.choice(fields): _value(chosen, fields, depth - 1) for _ in range(chosen.randrange(3))}


def _tried(server: Installation, count: int, seed: int) -> tuple[int, int]:
    """Resident bytes of the server after a tenth, and at the end."""
    (process,) = server.processes("app.cli", "serve")
    chosen, warm = random.Random(seed), 0
    statuses: set[int] = set()
    with closing(Sender(server.url)) as sender:
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
