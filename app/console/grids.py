"""Grids and charts that change: rows keep their place, focus and selection when their values change."""

from __future__ import annotations

from typing import Any

from nicegui import ui

COLUMN: dict[str, Any] = {"sortable": True, "resizable": True, "minWidth": 90}
ROW_PX, HEADER_PX = 38, 42
ROWS_SEEN_MAX = 16


def number_column(field: str, title: str) -> dict[str, Any]:
    return {
        **COLUMN,
        "field": field,
        "headerName": title,
        "type": "rightAligned",
        ":valueFormatter": "(p) => p.value === null ? '' : p.value.toLocaleString('en')",
        "flex": 1,
    }


def live_grid(columns: list[dict[str, Any]], key: str, label: str) -> ui.aggrid:
    """Rows are told apart by their ``key``."""
    grid = ui.aggrid(
        {
            "columnDefs": columns,
            "rowData": [],
            ":getRowId": f"(p) => String(p.data.{key})",
            "rowHeight": ROW_PX,
            "headerHeight": HEADER_PX,
            "animateRows": False,
            "ensureDomOrder": True,
            ":onCellKeyDown": "(e) => { if (e.event.key === 'Enter') e.event.target.click(); }",
        },
        theme="quartz",
        auto_size_columns=False,
    )
    return grid.classes("grid").props(f'aria-label="{label}" role="region"')


def show_rows(grid: ui.aggrid, rows: list[dict[str, Any]]) -> None:
    """Sends the rows when they differ from what is shown."""
    if rows != grid.options["rowData"]:
        grid.style(f"height: {HEADER_PX + ROW_PX * min(max(len(rows), 1), ROWS_SEEN_MAX) + 4}px")
        # Not through the options' own update, which builds the grid anew.
        dict.__setitem__(grid.options, "rowData", rows)
        grid.run_grid_method("setGridOption", "rowData", rows)


def show_chart(chart: ui.echart, options: dict[str, Any]) -> None:
    """Sends the options when they differ from what is shown."""
    if options != chart.options:
        # Past the wrapper, which would make an observer of each of ten thousand cells.
        dict.clear(chart.options)
        dict.update(chart.options, options)
        chart.update()
