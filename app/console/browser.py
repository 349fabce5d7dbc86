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
    """Show HTML without the framework's cleaning: it came from a template."""
    return ui.html(content or Markup(), sanitize=False, tag=tag)


def fill(place: ui.html, content: Markup) -> None:
    place.set_content(content)


def call(function: str, *arguments: object) -> AwaitableResponse:
    """Calls a JavaScript function with values that JSON has. Awaited, it gives what the function returns."""
    values = ", ".join(json.dumps(argument) for argument in arguments)
    return ui.run_javascript(f"({function})({values})", timeout=ANSWER_S)


def set_height(element: Element, pixels: int) -> None:
    element.style(f"height: {pixels:d}px")


KEPT = "/_nicegui/kept"
"""Below the console; of a page, by its id: 204, or 410 where it has to be loaded anew."""


def look_for_server() -> None:
    """A page that has lost its socket asks whether the server still has it. A server that restarted or took
    over does not, nor does one that was out of reach for long: then the page is loaded anew. A page whose
    session ended is sent to the login. The refusal of a socket alone is never the answer, since NiceGUI's
    script would stay with a dead page."""
    ui.add_head_html("""<script>
      (() => {
        const LOOK_MS = 1000, ANSWER_MS = 5000, AGAIN_MS = 4000;
        let isAsking = false;
        const loadAnew = () => {
          // Where each request goes to another server, pages are not loaded without end.
          if (Date.now() - Number(sessionStorage.loadedAnewAt ?? 0) < AGAIN_MS) return;
          sessionStorage.loadedAnewAt = Date.now();
          location.reload();
        };
        setInterval(async () => {
          const socket = window.socket;
          socket?.io.reconnectionDelayMax(2000);
          if (isAsking || socket?.connected !== false) return;
          isAsking = true;
          try {
            const answer = await fetch('/console/_nicegui/kept/' + window.clientId, {
              headers: {Accept: 'text/html'},
              redirect: 'manual',
              signal: AbortSignal.timeout(ANSWER_MS),
            });
            if (answer.type === 'opaqueredirect' || answer.status === 410) loadAnew();
            else if (answer.ok && !socket.active) socket.connect();
          } catch { /* nobody is there yet */ } finally {
            isAsking = false;
          }
        }, LOOK_MS);
      })();
    </script>""")
