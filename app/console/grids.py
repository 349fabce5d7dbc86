"""Grids and charts that change: rows keep their place, focus and selection when their values change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from app.console.browser import call, set_height
from app.console.charts import Bars, bar_options
from app.console.fragments import link
from app.console.frame import go
from app.contract.columns import columns_of

ROW_PX, HEADER_PX = 38, 42
ROWS_SEEN_MAX = 16


def text_column(field: str, title: str, flex: int = 1) -> dict[str, Any]:
    """``flex``: the share of the width."""
    shared = {"sortable": True, "resizable": True, "minWidth": 90}
    return {**shared, "field": field, "headerName": title, "flex": flex}


def number_column(field: str, title: str) -> dict[str, Any]:
    return {
        **text_column(field, title),
        "type": "rightAligned",
        ":valueFormatter": "(p) => p.value === null ? '' : p.value.toLocaleString('en')",
    }


def grid_columns(row: type, *names: str, **flex: int) -> list[dict[str, Any]]:
    """Return columns for the fields of a row that are named; numbers are on the right. ``flex``: shares of the
    width that are not 1."""
    columns = columns_of(row)
    return [
        number_column(name, columns[name].title)
        if columns[name].is_number
        else text_column(name, columns[name].title, flex.get(name, 1))
        for name in names
    ]


def grid_row(row: type, body: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers as they are, everything else as text."""
    columns = columns_of(row).items()
    return {name: body[name] if column.is_number else column.text(body) for name, column in columns}


def details(row: type, body: Mapping[str, Any], *less: str) -> dict[str, str]:
    """Every field of a row by its title, as text; ``less``: but these."""
    return {column.title: column.text(body) for name, column in columns_of(row).items() if name not in less}


def live_grid(columns: list[dict[str, Any]], label: str, step: str) -> ui.aggrid:
    """Rows lead to the page of their name below ``step``."""
    return pick_grid(columns, label, lambda name: go(link(step, name)))


def pick_grid(columns: list[dict[str, Any]], label: str, pick: Callable[[str], None]) -> ui.aggrid:
    """``pick`` gets the name of the row that is selected, as the browser says it."""
    first = {**columns[0], "cellClass": "link"}
    grid = plain_grid([first, *columns[1:]], label)
    return grid.on("cellClicked", lambda event: pick(str(event.args["data"]["name"])), ["data"])


def plain_grid(columns: list[dict[str, Any]], label: str) -> ui.aggrid:
    """Rows are identified by their ``name``."""
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
    set_height(grid, HEADER_PX + ROW_PX + 4)
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


def patch_cells(chart: ui.echart, options: dict[str, Any], columns: list[int]) -> None:
    """Sends the cells of some columns of a heat map that is shown; ``options`` are the whole."""
    (series,) = options["series"]
    _keep(chart, options)
    cells = [cell for cell in series["data"] if cell[0] in columns]
    call(_PATCH, chart.id, columns, cells, options["aria"]["label"]["description"])


def bar_chart() -> ui.echart:
    """Make a chart without bars yet."""
    return ui.echart(bar_options(Bars((), ()))).classes("chart")


def show_chart(chart: ui.echart, options: dict[str, Any]) -> None:
    """Sends the options when they differ from what is shown."""
    if options != chart.options:
        _keep(chart, options)
        chart.update()


def _keep(chart: ui.echart, options: dict[str, Any]) -> None:
    """Past the wrapper, which would make an observer of each of ten thousand cells."""
    dict.clear(chart.options)
    dict.update(chart.options, options)
