"""What every process says of itself in the metastore. Store servers have it, too, which are back the sooner the
less they import.
"""

from __future__ import annotations

from app.build import own_commit, own_version
from catalog.core.codec import FORMAT, LEVELLED
from catalog.core.level import LEVEL
from rebalance.core.self_reports import ProcessRecord, ProcessRole


def entry_of(role: ProcessRole, metrics_url: str) -> ProcessRecord:
    """``metrics_url``: where Prometheus reads what the process measures."""
    return ProcessRecord(
        role.value,
        build=own_version(),
        formats=(FORMAT, LEVELLED),
        metrics=metrics_url,
        commit=own_commit(),
        level=LEVEL,
    )
