"""A real ``zonectl serve --auth`` that is given more than it takes: so many statements run, so many wait, the
next is refused, each accepted one is answered once, slow connections end, and health is answered meanwhile.

What fills the server never ends by itself, so that no test depends on how fast anything is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trino
from trino.auth import BasicAuthentication

from app.sql.statements.statement_line import RUNNING_MAX
from rebalance.core.keyspace.keys import Keyspace
from tests.bench.figures import percentile
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.secure_server import SecureServer, password_of, serving_securely
from tests.fixtures.server_load import SlowConnections, client_from, watched
from tests.fixtures.waiting import until

ADMIN = "the-administrator"
USERS = ("the-administrator", "the-operator", "the-stranger", "the-reader")
"""Enough for all places: of one user a part of them runs at once."""
ADDRESSES = tuple(f"127.0.0.{number}" for number in range(11, 19))
SLOW_ADDRESSES = tuple(f"127.0.0.{number}" for number in range(21, 29))
WATCH_ADDRESS, OTHER_ADDRESS = "127.0.0.31", "127.0.0.32"
ENDLESS = "WITH RECURSIVE t (x) AS (SELECT 1 UNION ALL SELECT (x * 7) % 1000003 FROM t) SELECT count(*) FROM t"
STATEMENTS = "/api/v1/statements"
PATIENCE_S = 600.0
READY_P99_S = 1.0
MEMORY_MB = 300.0
FOR_CHANGES = 2
"""Every second statement that waits is a change."""
DRIVER_S = 1.0
ATTEMPTS = 9


@dataclass(frozen=True)
class Load:
    """``running`` and ``waiting`` are the server's settings; a header, a handshake and a body may take
    ``header_s`` and ``body_s``."""

    running: int
    waiting: int
    slow: int
    header_s: float
    body_s: float

    @property
    def settings(self) -> dict[str, str]:
        return {
            "ZONEKEEPER_SQL_RUNNING_MAX": str(self.running),
            "ZONEKEEPER_SQL_WAITING_MAX": str(self.waiting),
            "ZONEKEEPER_HTTP_HEADER_TIMEOUT_S": str(self.header_s),
            "ZONEKEEPER_HTTP_BODY_TIMEOUT_S": str(self.body_s),
            "ZONEKEEPER_QUERY_TIMEOUT_S": "600",
            "ZONEKEEPER_CONSOLE": "false",
        }


LOADS = [
    pytest.param(Load(8, 40, 60, 1.0, 2.0), id="small"),
    pytest.param(Load(64, 1_000, 500, 10.0, 30.0), id="whole", marks=pytest.mark.soak),
]

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.slow("a server of its own that is filled and emptied"),
    pytest.mark.thorough("each bound alone is in test_http_edge and test_query_line"),
]


@pytest.fixture(params=LOADS)
def load(request: pytest.FixtureRequest) -> Load:
    chosen: Load = request.param
    return chosen


@pytest.fixture
def server(load: Load, etcd_server: Etcd, tmp_path: Path) -> Iterator[SecureServer]:
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    keyspace = Keyspace(f"test-bounds-{load.running}/")
    with serving_securely(tmp_path, etcd_server, keyspace, url, load.settings) as opened:
        yield opened


class Clients:
    """One for each address and user, in turns."""

    def __init__(self, server: SecureServer, stack: ExitStack) -> None:
        pairs = [(address, user) for user in USERS for address in ADDRESSES]
        self._clients = [stack.enter_context(client_from(server, *pair)) for pair in pairs]
        self.first = self._clients[0]

    def submit(self, texts: Sequence[str]) -> list[str]:
        """The ids of logged statements that are not waited for. Changes are sent by an administrator."""
        with ThreadPoolExecutor(len(ADDRESSES)) as threads:
            return list(threads.map(self._submitted, range(len(texts)), texts))

    def _submitted(self, number: int, text: str) -> str:
        client = self._clients[number % len(self._clients)]
        if text.startswith("CREATE"):
            client = self._clients[number % len(ADDRESSES)]
        answer = client.post(STATEMENTS, json={"sql": text, "wait_timeout": 0})
        assert answer.status_code in (200, 202), answer.text
        return str(answer.json()["statement_id"])

    def document(self, statement_id: str) -> dict[str, Any]:
        body: dict[str, Any] = self.first.get(f"{STATEMENTS}/{statement_id}").raise_for_status().json()
        return body

    def cancel(self, ids: Sequence[str]) -> None:
        for statement_id in ids:
            self.first.post(f"{STATEMENTS}/{statement_id}/cancel", json={}).raise_for_status()


@contextmanager
def full(load: Load, clients: Clients) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """All places are taken and the line is full: the ids of what runs, and texts and ids of what waits."""
    blockers = clients.submit([ENDLESS] * load.running)
    texts = [
        f"CREATE ROLE w{number}" if number % FOR_CHANGES else f"SELECT {number}"
        for number in range(load.waiting)
    ]
    try:
        yield blockers, texts, clients.submit(texts)
    finally:
        clients.cancel(blockers)


def refusals(server: SecureServer) -> Iterator[httpx.Response]:
    """Answers to a statement sent in each way, from an address that has no statement running yet."""
    with client_from(server, OTHER_ADDRESS, ADMIN) as client:
        yield client.post(STATEMENTS, json={"sql": "SELECT 1"})
        yield client.post(STATEMENTS, json={"sql": "CREATE ZONE refused", "wait_timeout": 0})
        yield client.post(STATEMENTS, json={"sql": "CREATE ZONE refused"}, headers={"Idempotency-Key": "k"})
        yield client.post(STATEMENTS, json={"sql": "CREATE ZONE refused", "validate_only": True})
        for sql in ("SELECT 1", "CREATE ZONE refused"):
            yield client.post("/v1/statement", content=sql, headers={"X-Trino-User": ADMIN})


def driver_answer(server: SecureServer) -> list[list[Any]]:
    """Rows that a driver gets which retries requests refused with 503."""
    with trino.dbapi.connect(
        host="127.0.0.1",
        port=server.https_port,
        http_scheme="https",
        user=ADMIN,
        auth=BasicAuthentication(ADMIN, password_of(ADMIN)),
        verify=str(server.ca_file),
        max_attempts=ATTEMPTS,
    ) as connection:
        rows: list[list[Any]] = connection.cursor().execute("SELECT 7").fetchall()
        return rows


def check_ends(clients: Clients, texts: Sequence[str], ids: Sequence[str]) -> None:
    """Each statement has the one end that is its own, and each change is in the catalog's history once."""
    assert len(set(ids)) == len(texts)
    for text, statement_id in zip(texts, ids, strict=True):
        over = until(lambda one=statement_id: _over(clients.document(one)))
        assert over["state"] == "SUCCEEDED", (text, over.get("error"))
        (result,) = over["results"]
        if text.startswith("SELECT"):
            assert result["data"] == [[int(text.split()[1])]]
        else:
            assert (result["applied"], result["sql"]) == (True, text)
    events = {"sql": "SELECT statement FROM events"}
    rows = clients.first.post(STATEMENTS, json=events).raise_for_status().json()["results"][0]["data"]
    made = Counter(text for (text,) in rows)
    assert {text: made[text] for text in texts if text.startswith("CREATE")} == {
        text: 1 for text in texts if text.startswith("CREATE")
    }
    assert not any("refused" in text for text in made)


def _over(document: dict[str, Any]) -> dict[str, Any] | None:
    return document if document["state"] not in ("PENDING", "RUNNING") else None


def _ending(document: dict[str, Any]) -> str:
    return str(document["error"]["name"])


def test_a_server_that_is_full_refuses_and_answers_what_it_accepted(
    server: SecureServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        # The driver's library would believe these before the authority that it is given.
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as stack:
        clients = Clients(server, stack)
        # What is loaded with the first statements of each kind is there before.
        check_ends(clients, *(pair := ["SELECT 1", "CREATE ZONE first (PARTITIONS 1)"], clients.submit(pair)))
        watch = stack.enter_context(watched(server, WATCH_ADDRESS))
        drivers = stack.enter_context(ThreadPoolExecutor(1))
        with full(load, clients) as (blockers, texts, ids):
            slow = stack.enter_context(SlowConnections(server, SLOW_ADDRESSES, load.slow))
            for refused in refusals(server):
                assert (refused.status_code, refused.json()["name"]) == (503, "TOO_MANY_STATEMENTS")
                assert int(refused.headers["Retry-After"]) > 0
            places = sorted(clients.document(one)["queue_position"] for one in ids)
            assert places == list(range(1, load.waiting + 1))
            assert [clients.document(one)["state"] for one in blockers] == ["RUNNING"] * load.running
            # It doubles its pauses: what it is given must not be long.
            answer = drivers.submit(driver_answer, server)
            assert not wait([answer], DRIVER_S).done
        answered, slow_s = slow.ends()
        assert answer.result(PATIENCE_S) == [[7]]
        check_ends(clients, texts, ids)
        # A query waits for one of its few places for a minute.
        assert {_ending(clients.document(one)) for one in blockers} <= {
            "STATEMENT_CANCELED",
            "QUERY_WAIT_TIMEOUT",
        }
    p99_s = percentile(watch.seconds, 0.99)
    print(
        f"\n{load.running} statements run, {load.waiting} wait, {load.slow} slow connections ended after "
        f"{slow_s:.1f} s; /readyz p50 {percentile(watch.seconds, 0.5) * 1e3:.1f} ms, p99 {p99_s * 1e3:.1f} ms, "
        f"most {max(watch.seconds) * 1e3:.1f} ms of {len(watch.seconds)}; memory {watch.before_mb:.0f} MB, at "
        f"most {watch.most_mb - watch.before_mb:.0f} MB more"
    )
    # The third that begins no handshake is closed without a word.
    assert answered == load.slow - len(range(0, load.slow, 3))
    assert watch.failures == []
    assert watch.most_mb - watch.before_mb <= MEMORY_MB
    # A time says something of the full load on a machine of one's own alone.
    assert load.running < RUNNING_MAX or p99_s <= READY_P99_S
