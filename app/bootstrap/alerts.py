"""Composition of what judges and sends alerts."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from app.alerts.alert_watch import AlertWatch
from app.alerts.fact_reader import FactReader
from app.alerts.readiness_probe import controller_name
from app.alerts.webhook import Webhook
from app.configuration.settings import Settings
from catalog.secret_files import read_secret
from rebalance.core.keys import Keyspace
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.measures import Measures
from rebalance.ports.metastore import Metastore


def open_alerts(
    settings: Settings,
    facts: FactReader,
    metastore: Metastore,
    mirror: KeyspaceMirror,
    keyspace: Keyspace,
    measures: Measures,
    stack: AsyncExitStack,
) -> AlertWatch:
    """Raises ValueError for a webhook that cannot be used."""
    divisor = settings.alert_times_divisor
    stores = (metastore, mirror, keyspace, controller_name())
    if not settings.alert_webhook_url:
        return AlertWatch(facts.facts, *stores, divisor=divisor, measures=measures)
    file = settings.alert_webhook_secret_file
    secret = None if file is None else partial(read_secret, file)
    webhook = Webhook(settings.alert_webhook_url, secret, settings.url or "", measures, divisor)
    stack.push_async_callback(webhook.close)
    return AlertWatch(facts.facts, *stores, divisor=divisor, send=webhook.send, measures=measures)
