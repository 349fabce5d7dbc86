"""What Prometheus scrapes: every process that has registered, as its service discovery reads it."""

from __future__ import annotations

from urllib.parse import urlsplit

from app.contract.metrics import ScrapeTarget
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.self_reports import ProcessRecord, ProcessRole
from rebalance.metastore.mirror import KeyspaceCopy


def scrape_targets(mirror: KeyspaceCopy, keyspace: Keyspace) -> list[ScrapeTarget]:
    """By name. Processes of builds that register no address, and entries that cannot be read, are left out:
    what is not scraped is missed by Prometheus's own alert."""
    targets: list[ScrapeTarget] = []
    for item in mirror.below(keyspace.processes):
        record = read(item, ProcessRecord.decode)
        if isinstance(record, Unreadable) or not record.metrics:
            continue
        url = urlsplit(record.metrics)
        name = item.key.removeprefix(keyspace.processes)
        labels = {
            "__scheme__": url.scheme,
            "__metrics_path__": url.path or "/metrics",
            "process": name,
            "role": record.role,
        }
        if record.role == ProcessRole.NODE.value:
            labels["node"] = name
        targets.append({"targets": [url.netloc], "labels": labels})
    return targets
