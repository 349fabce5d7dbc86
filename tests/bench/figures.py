"""Figures of a benchmark: medians, and ratios against a baseline of the same minute."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence


def timed(action: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each run, after one that does not count."""
    action()
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        action()
        found.append(time.perf_counter() - begun)
    return found


def percentile(seconds: Sequence[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(name: str, seconds: Sequence[float], per: int = 1, note: str = "") -> float:
    """Prints a line; returns the median seconds of one."""
    median = statistics.median(seconds) / per
    p99 = percentile(seconds, 0.99) / per
    print(f"{name:<62} p50 {median * 1e3:10.3f} ms   p99 {p99 * 1e3:10.3f} ms   {1 / median:12,.0f}/s   {note}")
    return median


def ratio(name: str, ours: float, baseline: float) -> None:
    """Baseline's time over ours: 1 is as fast as the baseline, 0.5 takes twice as long."""
    print(f"{name:<62} {baseline / ours:.2f} of the baseline")
