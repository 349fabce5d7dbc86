"""Messages to the webhook, over a real receiver."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.alerts.webhook import ALERTS_MAX, Webhook, messages
from app.core.alerts import Alert, AlertState
from catalog.secret_files import read_secret
from rebalance.ports.metric_rows import Metric, NoMeasures

PATIENCE_S = 60.0


def fires(name: str, labels: dict[str, str] | None = None, starts_ms: int = 1_000) -> Alert:
    return Alert(name, tuple((labels or {}).items()), AlertState.FIRING, 0, "it is so", starts_ms)


def is_over(name: str) -> Alert:
    return Alert(name, (), AlertState.RESOLVED, 0, "it was so", 1_000, 2_000)


@dataclass
class Request:
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


@dataclass
class Receiver:
    """``answer`` is sent to each request, but a refusal to messages of the group ``refused``; None: nothing
    ever is."""

    url: str = ""
    answer: bytes | None = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    refused: str = ""
    requests: list[Request] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    ends: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A sender that is closed leaves a request unsent.
        with suppress(asyncio.IncompleteReadError, OSError):
            await self._answer(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in head)}
        self.requests.append(Request(headers, await reader.readexactly(int(headers["content-length"]))))
        self.arrived.set()
        if self.answer is None:
            await self.ends.wait()
        else:
            is_refused = self.requests[-1].document["groupLabels"]["group"] == self.refused
            writer.write(self.answer.replace(b"200 OK", b"400 No") if is_refused else self.answer)
            await writer.drain()

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Group and status of each message, without heartbeats."""
        told = (request.document for request in self.requests)
        return [
            (each["groupLabels"]["group"], each["status"])
            for each in told
            if each["groupLabels"]["group"] != "monitoring"
        ]


class Counted(NoMeasures):
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        assert metric is Metric.WEBHOOK_MESSAGES
        self.outcomes += labels


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        receiver.ends.set()
        server.close()
        # A connection is a task from the moment it is accepted, before `serve` sees it.
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def webhook(receiver: Receiver, **given: Any) -> AsyncIterator[Webhook]:
    sender = Webhook(receiver.url, **given)
    try:
        yield sender
    finally:
        await sender.close()


async def until(condition: Callable[[], bool], again: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await again()
            await asyncio.sleep(0.01)


def test_64_partitions_of_a_lost_node_are_one_message() -> None:
    lost = [fires("PartitionWithoutMajority", {"zone": f"Z{number}"}) for number in range(64)]
    (message,) = messages([*lost, fires("NodeDown", {"node": "n3"})], "")
    assert message.group == "nodes"
    assert len(message.document["alerts"]) == 65
    assert message.document["commonLabels"] == {"group": "nodes"}


def test_a_message_is_bounded_and_says_what_it_leaves_out() -> None:
    lost = [fires("PartitionWithoutMajority", {"zone": f"Z{number}"}) for number in range(ALERTS_MAX + 7)]
    (message,) = messages(lost, "")
    assert (len(message.document["alerts"]), message.document["truncatedAlerts"]) == (ALERTS_MAX, 7)


def test_a_message_is_what_alertmanager_would_send() -> None:
    (message,) = messages([fires("NodeDown", {"node": "n3"})], "https://z")
    document = json.loads(message.body)
    assert document["version"] == "4"
    assert document["groupKey"] == '{}:{group="nodes"}'
    assert (document["status"], document["receiver"], document["externalURL"]) == (
        "firing",
        "webhook",
        "https://z",
    )
    (alert,) = document["alerts"]
    assert alert["labels"] == {"alertname": "NodeDown", "severity": "ticket", "group": "nodes", "node": "n3"}
    assert alert["annotations"]["runbook"] == "docs/runbook/NodeDown.md"
    assert (alert["startsAt"], alert["endsAt"]) == ("1970-01-01T00:00:01.000Z", "0001-01-01T00:00:00Z")
    assert alert["fingerprint"] == fires("NodeDown", {"node": "n3"}).fingerprint


def test_a_group_of_which_something_fires_still_is_not_resolved() -> None:
    (message,) = messages([is_over("NodeDown"), fires("DiskFull", {"node": "n1"})], "")
    assert message.document["status"] == "firing"
    assert [each["status"] for each in message.document["alerts"]] == ["resolved", "firing"]
    (over,) = messages([is_over("NodeDown")], "")
    assert (over.document["status"], over.is_firing) == ("resolved", False)


async def test_what_changes_is_told_once_and_a_heartbeat_comes_by_itself() -> None:
    counted = Counted()
    async with receiving() as receiver, webhook(receiver, measures=counted) as sender:

        async def look() -> None:
            await sender.send([fires("NoController")])

        await until(lambda: len(counted.outcomes) == 2, look)
        assert receiver.groups == [("control", "firing")]
        assert receiver.requests[1].document["alerts"][0]["labels"]["alertname"] == "Watchdog"
        await look()
        await asyncio.sleep(0)

        async def resolved() -> None:
            await sender.send([is_over("NoController")])

        await until(lambda: len(counted.outcomes) == 3, resolved)
        assert receiver.groups == [("control", "firing"), ("control", "resolved")]
        assert set(counted.outcomes) == {"sent"}


async def test_what_fires_on_is_repeated() -> None:
    async with receiving() as receiver, webhook(receiver, divisor=1e6) as sender:

        async def look() -> None:
            await sender.send([fires("NoController")])

        await until(lambda: len(receiver.groups) >= 3, look)


async def test_a_message_is_signed_over_its_time_and_body_with_the_secret_that_is_in_the_file_now(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    async with (
        receiving() as receiver,
        webhook(receiver, secret=partial(read_secret, secret), divisor=1e6) as sender,
    ):
        secret.write_text("second\n")

        async def look() -> None:
            await sender.send([fires("NoController")])

        await until(lambda: bool(receiver.requests), look)
        request = receiver.requests[0]
        signed = request.headers["zonekeeper-timestamp"].encode() + b"." + request.body
        expected = hmac.new(b"second", signed, hashlib.sha256).hexdigest()
        assert request.headers["zonekeeper-signature"] == f"sha256={expected}"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /hook\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
async def test_what_is_not_taken_is_told_again_and_a_redirection_is_not_followed(answer: bytes) -> None:
    counted = Counted()
    async with receiving() as receiver, webhook(receiver, measures=counted, divisor=1_000) as sender:
        good, receiver.answer = receiver.answer, answer

        async def look() -> None:
            await sender.send([fires("NoController")])

        await until(lambda: counted.outcomes == ["failed"], look)
        assert len(receiver.requests) == 1
        receiver.answer = good
        await until(lambda: "sent" in counted.outcomes, look)
        assert receiver.groups[-1] == ("control", "firing")


async def test_a_message_that_is_refused_is_told_again_and_holds_up_no_other() -> None:
    counted = Counted()
    async with receiving() as receiver, webhook(receiver, measures=counted, divisor=1_000) as sender:
        receiver.refused = "control"

        async def look() -> None:
            await sender.send([fires("NoController"), fires("NodeDown", {"node": "n3"})])

        await until(lambda: "sent" in counted.outcomes, look)
        assert receiver.groups[:2] == [("control", "firing"), ("nodes", "firing")]
        assert counted.outcomes[:2] == ["failed", "sent"]
        receiver.refused, failed = "", counted.outcomes.count("failed")
        told = len(receiver.groups)
        await until(lambda: ("control", "firing") in receiver.groups[told:], look)
        assert counted.outcomes.count("failed") == failed


async def test_a_receiver_that_hangs_holds_nobody_up_and_is_given_up() -> None:
    counted = Counted()
    async with receiving() as receiver, webhook(receiver, measures=counted) as sender:
        receiver.answer = None

        async def look() -> None:
            await sender.send([fires("NoController")])

        await until(receiver.arrived.is_set, look)
        await look()
        assert counted.outcomes == [], "send has returned before the answer"
        await until(lambda: counted.outcomes == ["failed"], look)
        assert len(receiver.requests) == 1, "one at a time"


@pytest.mark.parametrize("url", ["", "ftp://x/y", "https://", "nonsense"])
def test_an_address_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(ValueError, match="ZONEKEEPER_ALERT_WEBHOOK_URL"):
        Webhook(url)


def test_a_secret_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="secret file"):
        Webhook("https://hooks.example/x", partial(read_secret, tmp_path / "missing"))
