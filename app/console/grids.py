"""AG Grids of rows that change: a row keeps its place, its focus and its selection when its values change."""

from __future__ import annotations

from typing import Any

from nicegui import ui

COLUMN: dict[str, Any] = {"sortable": True, "resizable": True, "filter": True, "minWidth": 96}


def number_column(field: str, title: str) -> dict[str, Any]:
    return {
        **COLUMN,
        "field": field,
        "headerName": title,
        "type": "rightAligned",
        ":valueFormatter": "(p) => p.value === null ? '' : p.value.toLocaleString('en')",
        "flex": 1,
    }


def live_grid(columns: list[dict[str, Any]], key: str, label: str, height: str) -> ui.aggrid:
    """Rows are told apart by their ``key``."""
    grid = ui.aggrid(
        {
            "columnDefs": columns,
            "rowData": [],
            ":getRowId": f"(p) => String(p.data.{key})",
            "rowHeight": 38,
            "headerHeight": 40,
            "animateRows": False,
            "ensureDomOrder": True,
            ":onCellKeyDown": "(e) => { if (e.event.key === 'Enter') e.event.target.click(); }",
        },
        theme="quartz",
        auto_size_columns=False,
    )
    return grid.classes("grid").style(f"height: {height}").props(f'aria-label="{label}" role="region"')


def show_rows(grid: ui.aggrid, rows: list[dict[str, Any]]) -> None:
    """Sends the rows when they differ from what is shown."""
    if rows != grid.options["rowData"]:
        # Not through the options' own update, which builds the grid anew.
        dict.__setitem__(grid.options, "rowData", rows)
        grid.run_grid_method("setGridOption", "rowData", rows)
