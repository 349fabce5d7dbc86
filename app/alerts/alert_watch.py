"""Watch over the alerts: every server judges them, every few seconds; one of them, by a lease, stores and sends
its judgements.

The stored judgements keep ``starts_ms`` over restarts, and let all servers show the same. While the metastore
is away each server uses its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from app.alerts.alert_rows import BY_NAME, Severity, findings_of, for_ms
from app.alerts.conditions import InstallationFacts
from app.alerts.silences import Silences
from app.core.alerts import (
    Alert,
    AlertRecord,
    Alerts,
    AlertState,
    adopted,
    ended,
    is_told,
    judge,
    shown_order,
)
from app.views.answer_state import OK
from rebalance.controllers.controller_leadership import ControllerLeadership
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.txn import KeyValue
from rebalance.metastore.guarded_update import update_key
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore, MetastoreError
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric

log = structlog.get_logger(__name__)

JUDGE_S = 5.0
JUDGE_LEAST_S = 0.5
LEASE_S = 10
STUCK_SHOWN_MAX = 20
"""Number of stuck operations that have a series each: those that have stood still for longest."""

Sent = Callable[[tuple[Alert, ...]], Awaitable[None]]


async def _until_lost() -> None:
    """Wait until cancelled: the work of the lease's holder is done by ``look``."""
    await asyncio.Event().wait()


@dataclass(eq=False)
class AlertWatch:
    """``name``: of this server, among those that campaign. ``divisor`` shortens every time alike: for trials.
    ``send`` (None: there is no webhook) gets what fires and what was resolved lately, without what is silenced,
    after each look, where this server is the one to send; it must return at once."""

    facts: Callable[[], Awaitable[InstallationFacts]]
    metastore: Metastore
    mirror: KeyspaceMirror
    keyspace: Keyspace
    name: str
    divisor: float = 1.0
    send: Sent | None = None
    measures: Measures = NO_MEASURES

    def __post_init__(self) -> None:
        self.silences = Silences(self.metastore, self.mirror, self.keyspace)
        self._leadership = ControllerLeadership(
            self.metastore, self.keyspace, self.name, LEASE_S, self.keyspace.alert_sender
        )
        self._pause_s = max(JUDGE_S / self.divisor, JUDGE_LEAST_S)
        self._for_ms = partial(for_ms, divisor=self.divisor)
        self._alerts: Alerts = {}
        self._has_adopted = False
        self.judged_ms = 0
        """Unix time of the last judgement, in milliseconds; 0: there was none yet."""

    @property
    def alerts(self) -> list[Alert]:
        """Alerts as they were judged last, in the order of ``shown_order``: firing ones first."""
        return shown_order(self._alerts.values())

    @property
    def ended(self) -> tuple[Alert, ...]:
        """The last that were resolved, the newest first."""
        stored = read(self.mirror.get(self.keyspace.ended_alerts), AlertRecord.decode)
        kept = stored.alerts if isinstance(stored, AlertRecord) else ()
        return ended(kept, self._alerts.values())

    async def run(self) -> None:
        """Campaign for the sender's lease, and look every few seconds, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._leadership.run(_until_lost), name="sender's lease")
            while True:
                await self.look()
                await asyncio.sleep(self._pause_s)

    async def look(self) -> None:
        """Look once: read the facts and judge them; store the alerts and send them if that is this server's
        turn."""
        facts = await self.facts()
        self._adopt()
        before, now_ms = self._alerts, time.time_ns() // 1_000_000
        self._alerts = judge(before, findings_of(facts), self._for_ms, now_ms)
        self.judged_ms = now_ms
        _log_changes(before, self._alerts)
        self._measure(facts)
        has_metastore = facts.metastore == OK
        if self._leadership.is_leader and has_metastore:
            await self._store()
        if self.send is not None and (self._leadership.is_leader or not has_metastore):
            begun = (alert for alert in self.alerts if alert.state is not AlertState.PENDING)
            silences = self.silences.now()
            await self.send(tuple(alert for alert in begun if is_told(alert, silences)))

    def _measure(self, facts: InstallationFacts) -> None:
        firing = [alert for alert in self._alerts.values() if alert.state is AlertState.FIRING]
        counts = Counter(BY_NAME[alert.name].severity for alert in firing)
        series = ((severity, counts[severity]) for severity in (Severity.PAGE, Severity.TICKET))
        self.measures.replace(Metric.ALERTS_FIRING, (((each.value,), count) for each, count in series))
        self.measures.set(Metric.OPERATIONS_STUCK, len(facts.stuck_moves))
        stuck = sorted(facts.stuck_moves.items(), key=lambda item: item[1], reverse=True)[:STUCK_SHOWN_MAX]
        self.measures.replace(
            Metric.OPERATION_STILL_SECONDS, (((operation,), still_s) for operation, still_s in stuck)
        )

    def _adopt(self) -> None:
        if not self.mirror.is_loaded:
            return
        stored = read(self.mirror.get(self.keyspace.alerts), AlertRecord.decode)
        if isinstance(stored, AlertRecord):
            self._alerts = adopted(self._alerts, stored.by_key, is_first=not self._has_adopted)
        self._has_adopted = True

    async def _store(self) -> None:
        record = AlertRecord(tuple(self.alerts))

        def changed(item: KeyValue | None) -> bytes | None:
            stored = read(item, AlertRecord.decode)
            if isinstance(stored, AlertRecord):
                return None if _marks(stored) == _marks(record) else record.encode()
            # One that cannot be read is a later build's: it is left alone.
            return record.encode() if stored is None and record.alerts else None

        def with_ended(item: KeyValue | None) -> bytes | None:
            stored = read(item, AlertRecord.decode)
            if isinstance(stored, Unreadable):
                return None
            kept = stored.alerts if stored is not None else ()
            now = ended(kept, record.alerts)
            return AlertRecord(now).encode() if len(now) > len(kept) or now[:1] != kept[:1] else None

        try:
            await update_key(self.metastore, self.keyspace.alerts, changed)
            await update_key(self.metastore, self.keyspace.ended_alerts, with_ended)
        except MetastoreError as error:
            log.info("alerts not stored", error=str(error))


def _marks(record: AlertRecord) -> set[tuple[object, ...]]:
    """All but the words, in which numbers change with every look."""
    return {
        (*alert.key, alert.state, alert.since_ms, alert.starts_ms, alert.ends_ms) for alert in record.alerts
    }


def _log_changes(before: Alerts, after: Alerts) -> None:
    for key, alert in after.items():
        earlier = before.get(key)
        if alert.state is AlertState.PENDING or (earlier is not None and earlier.state is alert.state):
            continue
        report = log.warning if alert.state is AlertState.FIRING else log.info
        report(f"alert {alert.state.value}", alert=alert.name, **dict(alert.labels), text=alert.text)
