"""The one place where the console hands HTML and scripts to the browser.

Both are this package's own: HTML comes from its templates, which escape what they are given; a script stands in
the source and gets what it works on as JSON. So no name of a zone, a node or a person is ever read as either.
``tests/unit/console/test_scripts.py`` refuses the framework's ways around this module.
"""

from __future__ import annotations

import json

from markupsafe import Markup
from nicegui import ui
from nicegui.awaitable_response import AwaitableResponse
from nicegui.element import Element

ANSWER_S = 5.0


def html(content: Markup | None = None, tag: str = "div") -> ui.html:
    """Not cleaned by the framework: it came from a template."""
    return ui.html(content or Markup(), sanitize=False, tag=tag)


def fill(place: ui.html, content: Markup) -> None:
    place.set_content(content)


def call(function: str, *arguments: object) -> AwaitableResponse:
    """Calls a JavaScript function with values that JSON has. Awaited, it gives what the function returns."""
    values = ", ".join(json.dumps(argument) for argument in arguments)
    return ui.run_javascript(f"({function})({values})", timeout=ANSWER_S)


def set_height(element: Element, pixels: int) -> None:
    element.style(f"height: {pixels:d}px")


def look_for_session() -> None:
    """A page whose session ended before its socket was open has nobody to tell it."""
    ui.add_head_html("""<script>
      setInterval(async () => {
        if (window.socket?.connected !== false) return;
        const asked = {headers: {Accept: 'text/html'}, redirect: 'manual'};
        const answer = await fetch('/console/_nicegui/session', asked).catch(() => null);
        if (answer?.type === 'opaqueredirect') location.reload();
      }, 2000);
    </script>""")
