"""Composition of what judges and sends alerts."""

from __future__ import annotations

from functools import partial

from app.alerts.alert_watch import AlertWatch
from app.alerts.fact_reader import FactReader
from app.alerts.readiness_probe import controller_name
from app.alerts.webhook import Webhook
from app.bootstrap.composition import ProcessFrame
from catalog.secret_files import read_secret
from rebalance.metastore.mirror import KeyspaceMirror


def open_alerts(frame: ProcessFrame, facts: FactReader, mirror: KeyspaceMirror) -> AlertWatch:
    """Raises ValueError for a webhook that cannot be used."""
    settings, measures = frame.settings, frame.metrics
    divisor = settings.alert_times_divisor
    stores = (frame.metastore, mirror, frame.keyspace, controller_name())
    if not settings.alert_webhook_url:
        return AlertWatch(facts.facts, *stores, divisor=divisor, measures=measures)
    file = settings.alert_webhook_secret_file
    secret = None if file is None else partial(read_secret, file)
    webhook = frame.closing(Webhook(settings.alert_webhook_url, secret, settings.url or "", measures, divisor))
    return AlertWatch(facts.facts, *stores, divisor=divisor, send=webhook.send, measures=measures)
