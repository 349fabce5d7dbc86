"""Measurements of a process: shells name a row of the table of metrics, and know nothing of who collects it.

In the simulator, and wherever nobody collects, ``NO_MEASURES`` takes everything and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rebalance.ports.metric_rows import Metric


class Measures(Protocol):
    """Labels are given in the order of the row. Nothing here blocks, fails or yields to the event loop, and any
    thread may call it."""

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Adds to a counter. ``by`` is not negative."""
        ...

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        """Adds to a histogram."""
        ...

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """One series of a gauge."""
        ...

    def replace(self, metric: Metric, series: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """All series of a gauge, as labels and value: those that are not among them go."""
        ...


class NoMeasures:
    """A ``Measures`` that keeps nothing."""

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        return

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        return

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        return

    def replace(self, metric: Metric, series: Iterable[tuple[tuple[str, ...], float]]) -> None:
        return


NO_MEASURES = NoMeasures()
