"""Bar charts of what nodes hold; colours are the style sheet's, read in the browser."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SCROLLED_FROM = 40
_PROPERTY = re.compile(r"--[a-z][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class Bars:
    """``series``: (name, a value for each of ``names``); stacked unless ``side_by_side``."""

    names: tuple[str, ...]
    series: tuple[tuple[str, tuple[int, ...]], ...]
    side_by_side: bool = False


def copies_of(rows: Sequence[Mapping[str, Any]]) -> Bars:
    """Replicas of nodes (``name``, ``voters``, ``leaders``, ``learners``), stacked. A leader votes too, and is
    one replica."""
    return Bars(
        tuple(row["name"] for row in rows),
        (
            ("leaders", tuple(row["leaders"] for row in rows)),
            ("other voters", tuple(row["voters"] - row["leaders"] for row in rows)),
            ("learners", tuple(row["learners"] for row in rows)),
        ),
    )


def css(name: str) -> str:
    """A script that reads a colour of the style sheet, with the theme that is on. Raises ValueError for what is
    no name of such a colour, because it becomes a part of the script."""
    if not _PROPERTY.fullmatch(name):
        raise ValueError(f"{name!r} is not a property of the style sheet")
    return f"getComputedStyle(document.body).getPropertyValue('{name}').trim()"


def _described(bars: Bars) -> str:
    """Describe the bars for those who do not see them."""
    levels = (f"{name} {min(values)} to {max(values)}" for name, values in bars.series if values)
    return f"Bars of {len(bars.names)} nodes: {', '.join(levels)}."


def bar_options(bars: Bars) -> dict[str, Any]:
    """ECharts options."""
    text = {":color": css("--ink")}
    line = {"lineStyle": {":color": css("--line")}}
    many = len(bars.names) > SCROLLED_FROM
    return {
        "animation": False,
        "aria": {"enabled": True, "label": {"description": _described(bars)}},
        "legend": {"textStyle": text, "right": 0, "top": 0},
        "tooltip": {
            "trigger": "axis",
            "axisPointer": {"type": "shadow"},
            ":backgroundColor": css("--panel"),
            "textStyle": text,
            ":borderColor": css("--line"),
        },
        "grid": {"left": 8, "right": 8, "top": 36, "bottom": 40 if many else 8, "containLabel": True},
        "xAxis": {
            "type": "category",
            "data": list(bars.names),
            "axisLabel": text,
            "axisTick": {"show": False},
            "axisLine": line,
        },
        "yAxis": {"type": "value", "minInterval": 1, "axisLabel": text, "splitLine": line},
        "series": [
            {
                "name": name,
                "type": "bar",
                "data": list(values),
                "barMaxWidth": 42,
                **({} if bars.side_by_side else {"stack": "all"}),
                "itemStyle": {":color": css(f"--series-{at + 1}")},
            }
            for at, (name, values) in enumerate(bars.series)
        ],
    }
