"""The webhook: alerts are sent to one address in their current state, at least once, and again after failures.

Nothing is queued: after a failure the next attempt sends the state of that time. One request runs at a time, so
a receiver that hangs holds up only later messages to itself; a message that it refuses holds up no other.
Messages are signed, and have the format of Alertmanager's webhook, version 4. Alerts of one group are one
message: a node that is lost with 64 partitions of as many zones is reported once.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx
import structlog

from app.alerts.alert_rows import ALERT_ROWS, AlertGroup
from app.core.alerts import Alert, AlertState
from rebalance.core.backoff import Backoff
from rebalance.hosting.tls_handshakes import closed_handshakes
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric

TIME_HEADER = "Zonekeeper-Timestamp"
SIGNATURE_HEADER = "Zonekeeper-Signature"
ALERTS_MAX = 100
"""Most alerts in one message, which gives the number of those that are left out."""
HEARTBEAT = AlertGroup.MONITORING.value
NEVER = "0001-01-01T00:00:00Z"
_ROWS = {row.name: row for row in ALERT_ROWS}


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """``mark``: another one when the group has changed. ``is_firing`` False: all of it is resolved."""

    group: str
    mark: frozenset[tuple[str, str, int]]
    is_firing: bool
    document: Mapping[str, Any]

    @property
    def body(self) -> bytes:
        return json.dumps(self.document, ensure_ascii=False, separators=(",", ":")).encode()


def messages(alerts: Iterable[Alert], url: str) -> list[WebhookMessage]:
    """One for each group that has alerts which fire or were resolved lately. ``url``: where the console is."""
    groups: dict[str, list[Alert]] = {}
    for alert in alerts:
        if alert.state is not AlertState.PENDING:
            groups.setdefault(_ROWS[alert.name].group.value, []).append(alert)
    return [_message(group, together, url) for group, together in groups.items()]


def heartbeat(now_ms: int, url: str) -> WebhookMessage:
    """Make the message that is sent regularly, so that its receiver notices when it is missing."""
    alert = Alert("Watchdog", (), AlertState.FIRING, now_ms, "Zonekeeper can send alerts.", now_ms)
    return _message(HEARTBEAT, [alert], url)


def _message(group: str, alerts: list[Alert], url: str) -> WebhookMessage:
    is_firing = any(not alert.is_over for alert in alerts)
    told = [_alert(alert, url) for alert in alerts[:ALERTS_MAX]]
    mark = frozenset((alert.fingerprint, alert.state.value, alert.starts_ms) for alert in alerts)
    document = {
        "version": "4",
        "groupKey": f'{{}}:{{group="{group}"}}',
        "truncatedAlerts": len(alerts) - len(told),
        "status": "firing" if is_firing else "resolved",
        "receiver": "webhook",
        "groupLabels": {"group": group},
        "commonLabels": _common(told, "labels"),
        "commonAnnotations": _common(told, "annotations"),
        "externalURL": url,
        "alerts": told,
    }
    return WebhookMessage(group, mark, is_firing, document)


def _alert(alert: Alert, url: str) -> dict[str, Any]:
    row = _ROWS[alert.name]
    own = {"alertname": alert.name, "severity": row.severity.value, "group": row.group.value}
    return {
        "status": alert.state.value,
        "labels": {**own, **dict(alert.labels)},
        "annotations": {"summary": row.summary, "description": alert.text, "runbook": row.page},
        "startsAt": rfc3339(alert.starts_ms),
        "endsAt": rfc3339(alert.ends_ms) if alert.ends_ms else NEVER,
        "generatorURL": url,
        "fingerprint": alert.fingerprint,
    }


def _common(alerts: list[dict[str, Any]], field: str) -> dict[str, str]:
    first, *others = (alert[field] for alert in alerts)
    return {name: text for name, text in first.items() if all(other.get(name) == text for other in others)}


def rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Over the time stamp, a full stop, and the body, so that an old message cannot be sent as a new one."""
    signed = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


log = structlog.get_logger(__name__)

LIMIT_S = 5.0
HEARTBEAT_S = 300.0
REPEAT_S = 3_600.0
"""Seconds after which a message is sent again for alerts that still fire."""
RETRY = Backoff(5.0, 300.0)


RECEIVER = ""
"""Stands in place of a group for what holds up all messages."""
LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class WebhookError(Exception):
    """A message was not taken, with the reason in a line."""


class MessageRefusedError(WebhookError):
    """The receiver refuses this message (4xx), and may take others."""


@dataclass(eq=False)
class Webhook:
    """``url`` is where messages are posted, ``secret`` reads what they are signed with (None: they are not; it
    raises ValueError), and ``console`` is what they link to. ``divisor`` shortens the times between messages:
    for trials."""

    url: str
    secret: Callable[[], str] | None = None
    console: str = ""
    measures: Measures = NO_MEASURES
    divisor: float = 1.0

    def __post_init__(self) -> None:
        """Raises ValueError for an address that is none, or a secret that cannot be read."""
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
            raise ValueError("ZONEKEEPER_ALERT_WEBHOOK_URL is an http or https address")
        if self.secret is not None:
            self.secret()
        self._retry = Backoff(RETRY.first_s / self.divisor, RETRY.most_s / self.divisor)
        self._failed: dict[str, tuple[Backoff, float]] = {}
        """The backoff, and the time of the next attempt, by group."""
        self._told: dict[str, tuple[object, float]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._chance = random.Random()
        self._http = httpx.AsyncClient(timeout=LIMIT_S, follow_redirects=False, trust_env=False)

    async def send(self, alerts: Sequence[Alert]) -> None:
        """Tells what has changed since it was told last. Returns at once."""
        now = asyncio.get_running_loop().time()
        is_busy = self._sending is not None and not self._sending.done()
        if is_busy or self._is_held_up(RECEIVER, now):
            return
        due = self._due(messages(alerts, self.console), now)
        if due:
            self._sending = asyncio.ensure_future(self._deliver(due))

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending
        await self._http.aclose()

    def _due(self, now_told: list[WebhookMessage], now: float) -> list[WebhookMessage]:
        """Messages that are to be sent now. Groups that are gone, which were sent as resolved before, are
        forgotten, so that a later message of theirs begins anew."""
        groups = {message.group for message in now_told} | {HEARTBEAT, RECEIVER}
        self._told = {group: told for group, told in self._told.items() if group in groups}
        self._failed = {group: failed for group, failed in self._failed.items() if group in groups}
        due = [message for message in now_told if self._is_due(message, now)]
        beat = heartbeat(time.time_ns() // 1_000_000, self.console)
        beaten = self._told.get(HEARTBEAT)
        if beaten is None or now - beaten[1] >= HEARTBEAT_S / self.divisor:
            due.append(beat)
        return [message for message in due if not self._is_held_up(message.group, now)]

    def _is_held_up(self, group: str, now: float) -> bool:
        return group in self._failed and now < self._failed[group][1]

    def _is_due(self, message: WebhookMessage, now: float) -> bool:
        told = self._told.get(message.group)
        if told is None or told[0] != message.mark:
            return True
        return message.is_firing and now - told[1] >= REPEAT_S / self.divisor

    async def _deliver(self, due: list[WebhookMessage]) -> None:
        for message in due:
            try:
                async with asyncio.timeout(LIMIT_S):
                    await self._post(message.body)
            except MessageRefusedError as error:
                self._note_failure(message, error, message.group)
                continue
            except (TimeoutError, WebhookError, httpx.HTTPError, ValueError, OSError) as error:
                self._note_failure(message, error, RECEIVER)
                return
            self.measures.count(Metric.WEBHOOK_MESSAGES, "sent")
            self._told[message.group] = message.mark, asyncio.get_running_loop().time()
            for group in (message.group, RECEIVER):
                self._failed.pop(group, None)

    async def _post(self, body: bytes) -> None:
        """Raises WebhookError for an answer other than 2xx: a redirection is not followed. MessageRefusedError:
        a later message may be taken."""
        headers = {"Content-Type": "application/json", "User-Agent": "zonekeeper"}
        if self.secret is not None:
            timestamp = str(int(time.time()))
            secret = await asyncio.to_thread(self.secret)
            headers |= {TIME_HEADER: timestamp, SIGNATURE_HEADER: signature(secret, timestamp, body)}
        # What the receiver says is not read: it may be of any length.
        extensions = closed_handshakes()
        async with self._http.stream(
            "POST", self.url, content=body, headers=headers, extensions=extensions
        ) as answer:
            if not answer.is_success:
                refused = answer.is_client_error and answer.status_code not in LATER
                raise (MessageRefusedError if refused else WebhookError)(f"HTTP {answer.status_code}")

    def _note_failure(self, message: WebhookMessage, error: Exception, held_up: str) -> None:
        self.measures.count(Metric.WEBHOOK_MESSAGES, "failed")
        retry = self._failed.get(held_up, (self._retry, 0.0))[0].failed()
        delay_s = retry.delay_s(self._chance.random())
        self._failed[held_up] = retry, asyncio.get_running_loop().time() + delay_s
        # The address may hold a secret: its host is enough.
        log.warning(
            "alerts not sent",
            host=urlsplit(self.url).hostname,
            group=message.group,
            error=str(error) or f"no answer within {LIMIT_S:.0f} s",
            again_in_s=round(delay_s, 1),
        )
