"""The one registry of a process: takes what shells measure, and writes it in Prometheus's text format.

Counters and histograms are prometheus_client's; gauges are kept here, so that one that was never set is absent
and not 0. Only what the process may say by the table is accepted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rebalance.core.metric_row import OTHER, MetricType, Role
from rebalance.core.metric_rows import Metric

log = structlog.get_logger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTER_SERIES_MAX = 400
HISTOGRAM_SERIES_MAX = 60
"""So many combinations of labels has one metric of that type; what comes later counts as ``_other``."""
GAUGE_SERIES_MAX = 1_000

Probe = Callable[[], None]
"""Sets gauges that are cheap to ask for. Called in each scrape: it walks nothing that grows."""


class Exposition(Collector):
    """Implements ``rebalance.ports.measures.Measures``."""

    def __init__(self, roles: Iterable[Role], version: str = "") -> None:
        """``roles``: what runs in the process; ``version``: of the build."""
        self._roles = frozenset(roles)
        self._registry = CollectorRegistry(auto_describe=False)
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the package is typed, this one is not
        self._vectors: dict[Metric, Counter | Histogram] = {}
        self._series: dict[Metric, dict[tuple[str, ...], Counter | Histogram]] = {}
        self._gauges: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._probes: list[Probe] = []
        self._lock = threading.Lock()
        for metric in Metric:
            if metric.row.roles & self._roles:
                self._open(metric)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        for role in sorted(self._roles, key=lambda role: role.value):
            self.set(Metric.BUILD_INFO, 1, version, role.value)

    def ask(self, probe: Probe) -> None:
        """Has ``probe`` called in each scrape. What it raises costs its own gauges only."""
        self._probes.append(probe)

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        series = self._of(metric, labels, COUNTER_SERIES_MAX)
        if isinstance(series, Counter):
            series.inc(by)

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        series = self._of(metric, labels, HISTOGRAM_SERIES_MAX)
        if isinstance(series, Histogram):
            series.observe(seconds)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        values = self._gauges.get(metric)
        if values is not None and (labels in values or len(values) < GAUGE_SERIES_MAX):
            with self._lock:
                values[labels] = value

    def replace(self, metric: Metric, series: Iterable[tuple[tuple[str, ...], float]]) -> None:
        if metric in self._gauges:
            values = dict(series)
            with self._lock:
                self._gauges[metric] = values

    def text(self) -> bytes:
        """All series, as of now; in the thread of the event loop. It never raises, and waits for nobody."""
        self.probe()
        return self.rendered()

    def probe(self) -> None:
        """Asks for the gauges that are cheap to ask for; in the thread of the event loop."""
        for probe in self._probes:
            try:
                probe()
            except Exception as error:
                log.warning("metrics are missing", error=f"{type(error).__name__}: {error}")

    def rendered(self) -> bytes:
        """All series as they are known; in any thread."""
        begun = time.perf_counter()
        text = generate_latest(self._registry)
        self.set(Metric.SERIES, text.count(b"\n") - text.count(b"\n#") - text.startswith(b"#"))
        self.set(Metric.SCRAPE_SECONDS, time.perf_counter() - begun)
        return text

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The gauges, for prometheus_client."""
        for metric, values in self._gauges.items():
            with self._lock:
                series = list(values.items())
            if not series:
                continue
            row = metric.row
            family = GaugeMetricFamily(row.name, row.help, labels=row.labels)
            for labels, value in series:
                family.add_metric(labels, value)
            yield family

    def _open(self, metric: Metric) -> None:
        row = metric.row
        if row.type is MetricType.GAUGE:
            self._gauges[metric] = {}
        elif row.type is MetricType.COUNTER:
            self._vectors[metric] = Counter(row.name, row.help, row.labels, registry=self._registry)
        else:
            self._vectors[metric] = Histogram(
                row.name, row.help, row.labels, buckets=row.buckets, registry=self._registry
            )
        if row.type is not MetricType.GAUGE:
            self._series[metric] = {} if row.labels else {(): self._vectors[metric]}

    def _of(self, metric: Metric, labels: tuple[str, ...], most: int) -> Counter | Histogram | None:
        """None: the process does not say it."""
        known = self._series.get(metric)
        if known is None:
            return None
        series = known.get(labels)
        if series is None:
            if len(known) >= most:
                return self._vectors[metric].labels(*(OTHER for _ in labels))
            series = known[labels] = self._vectors[metric].labels(*labels)
        return series
