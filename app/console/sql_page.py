"""``/console/sql``: write statements, see what they would change, run them, and take the answers away."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from nicegui import ui

from app.console.browser import call, fill, html, set_height
from app.console.controls import ButtonKind, button, confirm
from app.console.feed import Topic
from app.console.fragments import EMPTY, Fragment, link, render
from app.console.frame import PageFrame, console_page, page_frame
from app.console.shared import NEW_ZONE, Site
from app.console.sql_editor import (
    ROWS_SHOWN_MAX,
    ScriptFailure,
    Sent,
    as_csv,
    as_json,
    changes_something,
    explained,
    failure,
    grid_options,
    has_rows,
    mark,
    offered_words,
    zone_words,
)
from app.contract.change_text import CHANGE_COLUMNS, change_cells
from app.sql.statements.results import ScriptError, ShownResult
from catalog.core.errors import StatementError
from parser.hidden_secrets import hide_secrets

ADDRESS_MAX = 4_000
"""A longer text is not put into the address."""
GRID_ROW_PX = 36
GRID_ROWS_MAX = 12

EXAMPLES = (
    ("Zones", "SHOW ZONES"),
    ("Assignments", "SELECT * FROM assignments LIMIT 100"),
    ("Unhealthy partitions", "SELECT * FROM global_zone_partition_states WHERE partition_state <> 'AVAILABLE'"),
    ("Operations", "SELECT * FROM operations"),
    ("New zone", NEW_ZONE),
)


_LABEL_EDITOR = """function label() {
  const editor = document.querySelector('.cm-content');
  if (editor) editor.setAttribute('aria-labelledby', 'editor-label');
  else setTimeout(label, 50);
}"""


_COMPLETE = """async (id, words) => {
  // Its script comes some moments after the page.
  while (!getElement(id)?.editorPromise) await new Promise((go) => setTimeout(go, 50));
  const editor = getElement(id);
  const view = await editor.editorPromise;
  const sql = await editor.findLanguage('SQL').load();
  const complete = (context) => {
    const typed = context.matchBefore(/["'][^"']*|\\w+/);
    if (!typed && !context.explicit) return null;
    const start = typed ? typed.text.toUpperCase() : '';
    const isQuoted = typed && !/\\w/.test(start[0]);
    // A quote that closes a name or a text begins none.
    if (isQuoted && context.state.sliceDoc(0, typed.from).split(start[0]).length % 2 === 0) return null;
    const named = new Set(context.state.sliceDoc(0, 100000).toUpperCase().split(/\\W+/));
    const isOffered = ({label, views}) =>
      label.toUpperCase().startsWith(start) &&
      label.length > start.length &&
      (!views?.length || views.some((name) => named.has(name)));
    const zones = JSON.parse(document.getElementById('sql-zones').dataset.names);
    const offeredZones = zones.map((label) => ({label, type: 'variable', detail: 'zone'}));
    const options = [...offeredZones, ...words].filter(isOffered);
    return options.length ? {from: typed ? typed.from : context.pos, options, filter: false} : null;
  };
  // The language alone: its own words are those of other databases.
  const offered = view.state.constructor.languageData.of(() => [{autocomplete: complete}]);
  view.dispatch({effects: editor.languageConfig.reconfigure([sql.language, offered])});
}"""


class _Editor:
    def __init__(self, site: Site, frame: PageFrame, text: str) -> None:
        self._site, self._frame = site, frame
        self._results: list[Mapping[str, Any]] = []
        with ui.element("section").classes("panel editor"):
            ui.label("Statements").classes("visually-hidden").props("id=editor-label")
            self._editor = ui.codemirror(
                text,
                language="SQL",
                theme="vscodeLight",
                line_wrapping=True,
                on_change=self._clear_mark,
                keymap={"Mod-Enter": self.run},
            ).classes("code")
            self._zones = Fragment()
            self._refusal = html().props('role="alert"')
            with ui.row().classes("tools"):
                run = button("Run", self.run, ButtonKind.PRIMARY)
                run.tooltip("Ctrl+Enter")
                button("Explain", self.explain)
                html(render("sql_examples", examples=EXAMPLES))
        self._answers = ui.element("section").classes("answers")
        self._answers.props('aria-live="polite" aria-label="Results"')

    async def draw(self) -> None:
        """The names of zones that the viewer sees now."""
        names = zone_words(zone.name for zone in (await self._site.catalog()).zones)
        self._zones.draw("sql_zones", names=json.dumps(names))

    async def settle(self) -> None:
        """The editor's colours are its own: the browser says which theme is on."""
        words = [word.to_json() for word in offered_words(self._site.services.sql.registry)]
        call(_COMPLETE, self._editor.id, words)
        # The editable part is what assistive software reads, and the element has no property for its name.
        call(_LABEL_EDITOR)
        dark = await call("() => document.body.classList.contains('body--dark')")
        if dark:
            self._editor.set_theme("vscodeDark")

    @property
    def _text(self) -> str:
        return str(self._editor.value or "")

    async def run(self) -> None:
        text = self._text
        self._remember(text)
        try:
            reader = self._site.services.reader
            changes = await reader.run(len(text), lambda stop: changes_something(text, reader.limits, stop))
        except StatementError as error:
            self._refuse(failure(error))
            return
        if not changes:
            await self._send(Sent(text))
            return

        async def act(_by: str, _reason: str) -> str:
            done = await self._send(Sent(text))
            return "The statements were run." if done else "A statement was refused: see the editor."

        consequence = "Each statement takes effect as soon as it has run. Explain shows what would move."
        confirm(self._frame, "Run the statements?", consequence, "Run", act)

    async def explain(self) -> None:
        text = self._text
        self._remember(text)
        await self._send(explained(text.rstrip().rstrip(";")))

    async def _send(self, sent: Sent) -> bool:
        """Send the text; True if all of it was done."""
        self._clear_mark()
        try:
            self._site.services.require_metastore()
            self._show(await self._site.services.sql.run_script(sent.text))
        except StatementError as error:
            if isinstance(error, ScriptError):
                self._show(error.results)
            self._refuse(failure(error, sent))
            return False
        return True

    def _remember(self, text: str) -> None:
        if len(text) <= ADDRESS_MAX:
            ui.navigate.history.replace(link("sql", text=hide_secrets(text)))

    def _refuse(self, refusal: ScriptFailure) -> None:
        fill(self._refusal, render("sql_refusal", failure=refusal))
        text = self._text
        if refusal.line is None or refusal.column is None or not text:
            return
        start, end = mark(text, refusal.line, refusal.column)
        line = min(refusal.line, text.count("\n") + 1)
        self._editor.decorations = [
            {"kind": "line", "line": line, "class": "cm-wrong-line"},
            {"kind": "mark", "from": start, "to": end, "class": "cm-wrong"},
        ]
        self._editor.reveal_line(line)

    def _clear_mark(self) -> None:
        fill(self._refusal, EMPTY)
        if self._editor.decorations:
            self._editor.decorations = []

    def _show(self, results: tuple[ShownResult, ...] | Any) -> None:
        self._results = [result.to_json() for result in results]
        self._answers.clear()
        with self._answers:
            if len(self._results) > 1:
                with ui.row().classes("tools"):
                    button("Download all as JSON", self._download_json, ButtonKind.QUIET)
            for result in self._results:
                self._show_one(result)

    def _show_one(self, result: Mapping[str, Any]) -> None:
        rows = len(result["data"]) if has_rows(result) else 0
        with ui.element("article").classes("panel"):
            changed = None if has_rows(result) else dict(zip(CHANGE_COLUMNS, change_cells(result), strict=True))
            cut = max(0, rows - ROWS_SHOWN_MAX)
            html(render("sql_result", result=result, changed=changed, rows=rows, cut=cut))
            if not has_rows(result):
                return
            if rows:
                height = 60 + GRID_ROW_PX * min(rows + 1, GRID_ROWS_MAX)
                grid = ui.aggrid(grid_options(result), theme="quartz", auto_size_columns=False)
                set_height(grid.classes("grid"), height)
            with ui.row().classes("tools"):
                button("Download CSV", lambda: self._download_csv(result))
                button("Download JSON", lambda: self._download_one(result))

    def _download_csv(self, result: Mapping[str, Any]) -> None:
        ui.download.content(as_csv(result), f"zonekeeper-{result['n']}.csv", "text/csv")

    def _download_one(self, result: Mapping[str, Any]) -> None:
        name = f"zonekeeper-{result['n']}.json"
        ui.download.content(json.dumps(result, ensure_ascii=False, indent=2), name, "application/json")

    def _download_json(self) -> None:
        ui.download.content(as_json(self._results), "zonekeeper.json", "application/json")


def register(site: Site) -> None:
    @console_page("/sql")
    async def sql(request: Request, text: str = "SHOW ZONES") -> None:
        note = "Run any statement that the API and SQL clients accept. Errors are marked in the text."
        with page_frame(site, request, "SQL", "sql", note=note) as frame:
            editor = _Editor(site, frame, text)
            await frame.live(editor.draw, Topic.ZONES)
            ui.timer(0, editor.settle, once=True)
