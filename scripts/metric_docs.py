#!/usr/bin/env python3
"""Write docs/metrics-table.md from the table of metrics."""

from __future__ import annotations

from pathlib import Path

from rebalance.core.keyspace.records import ProcessRole
from rebalance.ports.metric_rows import MOVE_BUCKETS_S, REQUEST_BUCKETS_S, Metric, MetricRow

PAGE = Path(__file__).parents[1] / "docs" / "metrics-table.md"


def page() -> str:
    columns = ("Metric", "Type", "Labels", "Unit", "Scope", "Said by", "Meaning")
    lines = [columns, tuple("---" for _ in columns), *(cells(metric.row) for metric in Metric)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"""# Table of metrics
<!-- Made by scripts/metric_docs.py from rebalance/ports/metric_rows.py; change that table, not this file. -->

[Metrics](metrics.md) says how to scrape them and what labels mean. *Process*: each process speaks for itself;
add the values of several. *Installation*: every server says the same of the whole installation; take the `max`
of several. A gauge that is not known is absent. Beside these every process has `process_*` and `python_gc_*` of
the Prometheus client.

Bounds of the buckets, in seconds: of requests {bounds(REQUEST_BUCKETS_S)}; of moves {bounds(MOVE_BUCKETS_S)}.

{table}
"""


def cells(row: MetricRow) -> tuple[str, ...]:
    kind = row.type.value
    if row.buckets:
        kind += " of requests" if row.buckets == REQUEST_BUCKETS_S else " of moves"
    roles = (
        "all" if row.roles == frozenset(ProcessRole) else ", ".join(sorted(role.value for role in row.roles))
    )
    labels = ", ".join(f"`{label}`" for label in row.labels)
    return f"`{row.name}`", kind, labels, row.unit, row.scope.value, roles, row.help


def bounds(buckets: tuple[float, ...]) -> str:
    return ", ".join(f"{bound:g}" for bound in buckets)


if __name__ == "__main__":
    PAGE.write_text(page())
