"""Alerts that Prometheus alone judges: burn rates of the objectives, and what is not there to judge itself.

An objective has a long window that says that it matters and a short one that says that it goes on. A user's
mistake (``outcome="refused"``) is no failure. Below ``REQUESTS_MIN`` requests in the long window nothing is
said.
"""

from __future__ import annotations

from app.alerts.alert_rows import LEVEL_ROWS, AlertGroup, AlertRow, Severity

REQUESTS_MIN = 100
WINDOWS = (("1h", "5m", 14.4), ("6h", "30m", 6.0))
"""Long and short window, and the burn rate: two per cent of a month's budget in an hour, five in six."""
STATEMENT_S = "2.5"
PUT_S = "0.5"
"""Boundaries of buckets: a put during a planned move waits for less."""
_UNUSED = "Nothing fires: no request was counted. NoServer fires when that is because nobody serves."


def burning(bad: str, total: str, budget: float) -> str:
    """PromQL. ``bad`` and ``total``: counts of requests over ``{window}``; ``budget``: the part that may be
    bad."""
    return " or ".join(
        f"({bad.replace('{window}', long)} / {total.replace('{window}', long)} > {rate * budget:.4g}"
        f" and {bad.replace('{window}', short)} / {total.replace('{window}', short)} > {rate * budget:.4g}"
        f" and {total.replace('{window}', long)} >= {REQUESTS_MIN})"
        for long, short, rate in WINDOWS
    )


def _failed(counter: str) -> str:
    bad = f'sum(increase({counter}{{outcome="failed"}}[{{window}}]))'
    return burning(bad, f"sum(increase({counter}[{{window}}]))", 0.001)


def _slow(histogram: str, within_s: str) -> str:
    total = f'sum(increase({histogram}_count{{outcome="ok"}}[{{window}}]))'
    good = f'sum(increase({histogram}_bucket{{outcome="ok",le="{within_s}"}}[{{window}}]))'
    return burning(f"({total} - {good})", total, 0.01)


PROMETHEUS_ROWS = (
    AlertRow(
        "StatementFailures",
        Severity.PAGE,
        AlertGroup.SERVICE,
        0,
        "More than one statement in a thousand fails, by the installation's fault.",
        _failed("zonekeeper_statements_total"),
        _UNUSED,
    ),
    AlertRow(
        "StatementLatency",
        Severity.PAGE,
        AlertGroup.SERVICE,
        0,
        f"More than one statement in a hundred takes longer than {STATEMENT_S} s.",
        _slow("zonekeeper_statement_seconds", STATEMENT_S),
        _UNUSED,
    ),
    AlertRow(
        "PutFailures",
        Severity.PAGE,
        AlertGroup.SERVICE,
        0,
        "More than one put in a thousand fails, by the installation's fault.",
        _failed("zonekeeper_puts_total"),
        _UNUSED,
    ),
    AlertRow(
        "PutLatency",
        Severity.PAGE,
        AlertGroup.SERVICE,
        0,
        f"More than one put in a hundred takes longer than {PUT_S} s.",
        _slow("zonekeeper_put_seconds", PUT_S),
        _UNUSED,
    ),
    AlertRow(
        "NoServer",
        Severity.PAGE,
        AlertGroup.SERVICE,
        60,
        "No server is scraped: the state of the installation is unknown.",
        'absent(zonekeeper_build_info{role="server"})',
        "It fires: absence is what it is about.",
    ),
    AlertRow(
        "TargetMissing",
        Severity.TICKET,
        AlertGroup.MONITORING,
        120,
        "A process that Prometheus knows is not scraped.",
        'up{job="zonekeeper"} == 0',
        "Nothing fires: Prometheus knows no target. NoServer fires instead.",
        label="instance",
    ),
    AlertRow(
        "Watchdog",
        Severity.NONE,
        AlertGroup.MONITORING,
        0,
        "Always fires. When it stops, alerts no longer arrive.",
        "vector(1)",
        "It needs no series.",
    ),
)

ALERT_ROWS = (*LEVEL_ROWS, *PROMETHEUS_ROWS)
"""All alerts that ship."""
