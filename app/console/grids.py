"""Grids and charts that change: rows keep their place, focus and selection when their values change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from app.console.browser import call, set_height

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


def live_grid(columns: list[dict[str, Any]], label: str) -> ui.aggrid:
    """Rows are told apart by their ``name``."""
    grid = ui.aggrid(
        {
            "columnDefs": columns,
            "rowData": [],
            ":getRowId": "(p) => String(p.data.name)",
            "rowHeight": ROW_PX,
            "headerHeight": HEADER_PX,
            "animateRows": False,
            "ensureDomOrder": True,
            ":onCellKeyDown": "(e) => { if (e.event.key === 'Enter') e.event.target.click(); }",
        },
        theme="quartz",
        auto_size_columns=False,
    )
    grid.props["aria-label"] = label
    return grid.classes("grid").props('role="region"')


def show_rows(grid: ui.aggrid, rows: list[dict[str, Any]]) -> None:
    """Sends the rows that differ from what is shown; all of them when some have come or gone."""
    shown = grid.options["rowData"]
    if rows == shown:
        return
    # Not through the options' own update, which builds the grid anew.
    dict.__setitem__(grid.options, "rowData", rows)
    if [row["name"] for row in rows] == [row["name"] for row in shown]:
        changed = [row for row, before in zip(rows, shown, strict=True) if row != before]
        grid.run_grid_method("applyTransaction", {"update": changed})
        return
    set_height(grid, HEADER_PX + ROW_PX * min(max(len(rows), 1), ROWS_SEEN_MAX) + 4)
    grid.run_grid_method("setGridOption", "rowData", rows)


_PATCH = """(element, changed, cells, description) => {
  const chart = getElement(element)?.chart;
  if (!chart) return;
  const columns = new Set(changed);
  const data = chart.getOption().series[0].data.filter((cell) => !columns.has(cell[0]));
  chart.setOption({series: [{data: data.concat(cells)}], aria: {label: {description}}});
}"""


def patch_cells(chart: ui.echart, options: dict[str, Any], columns: Sequence[int]) -> None:
    """Sends the cells of some columns of a heat map that is shown; ``options`` are the whole."""
    (series,) = options["series"]
    dict.clear(chart.options)
    dict.update(chart.options, options)
    wanted = set(columns)
    cells = [cell for cell in series["data"] if cell[0] in wanted]
    call(_PATCH, chart.id, sorted(wanted), cells, options["aria"]["label"]["description"])


def show_chart(chart: ui.echart, options: dict[str, Any]) -> None:
    """Sends the options when they differ from what is shown."""
    if options != chart.options:
        # Past the wrapper, which would make an observer of each of ten thousand cells.
        dict.clear(chart.options)
        dict.update(chart.options, options)
        chart.update()
