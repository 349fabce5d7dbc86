"""A real Chromium, and consoles for it to look at."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

ROOT = Path(__file__).parents[2]
WAIT_MS = 90_000
START_MS = 180_000
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = ("--no-sandbox",)

Theme = Literal["light", "dark"]

expect.set_options(timeout=WAIT_MS)


@dataclass
class Stage:
    """``tests.console.stage`` in a process of its own."""

    process: subprocess.Popen[str]
    url: str

    @classmethod
    def start(cls, scene: str, port: int = 0) -> Stage:
        command = [sys.executable, "-m", "tests.console.stage", "--scene", scene, "--port", str(port)]
        pipe = subprocess.PIPE
        logs = ROOT / ".pytest_cache"
        logs.mkdir(exist_ok=True)
        log = (logs / f"stage-{scene}.log").open("w")
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=log, text=True)
        log.close()
        stage = cls(process, "")
        stage.url = stage._answer("http://")
        return stage

    def tell(self, line: str) -> None:
        """Returns when it is done."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self._answer("done")

    def _answer(self, start: str) -> str:
        """The next line that begins so; log lines are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line.strip()
        raise RuntimeError("the stage ended; its standard error is in .pytest_cache")

    def stop(self) -> None:
        for each in (self.process.stdin, self.process.stdout):
            if each is not None:
                each.close()
        self.process.terminate()
        self.process.wait(60)


def find_chromium() -> str:
    """The system's: Playwright's own would have to be fetched."""
    found = next((path for name in CHROMIUMS if (path := shutil.which(name))), None)
    if found is None:
        raise RuntimeError("the console's tests need Chromium: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Of a module: as long as Playwright runs there is an event loop, and other tests want their own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=CHROMIUM_FLAGS, timeout=START_MS
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """The small scene, shared by a module: tests change what others do not look at."""
    whole = Stage.start("small")
    yield whole
    whole.stop()


@pytest.fixture(scope="module")
def empty_stage() -> Iterator[Stage]:
    whole = Stage.start("empty")
    yield whole
    whole.stop()


@dataclass
class Visit:
    """A page and what went wrong in it."""

    page: Page
    url: str
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, path: str, wait_ms: float = WAIT_MS) -> Page:
        """``path`` below the console; until everything is read."""
        self.page.goto(self.url + path.lstrip("/"), timeout=wait_ms)
        self.page.wait_for_function("window.socket?.connected", timeout=wait_ms)
        expect(self.page.get_by_role("status")).to_contain_text("live", timeout=wait_ms)
        return self.page


@contextmanager
def visiting(browser: Browser, url: str, theme: Theme = "light") -> Iterator[Visit]:
    """Fails afterwards when a request left the host, a script broke or opened a dialog, or the page's policy
    stopped something."""
    context = browser.new_context(color_scheme=theme, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(WAIT_MS)
    visit = Visit(context.new_page(), url)
    host = urlsplit(url).netloc

    def note(request: Request) -> None:
        if urlsplit(request.url).netloc != host and not request.url.startswith(("data:", "blob:")):
            visit.outside.append(request.url)

    def note_stopped(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            visit.errors.append(message.text)

    visit.page.on("request", note)

    def note_script(dialog: Dialog) -> None:
        visit.errors.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    visit.page.on("console", note_stopped)
    visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
    # No page of the console asks in this way, so a script does that came with some data.
    visit.page.on("dialog", note_script)
    yield visit
    context.close()
    assert visit.outside == []
    assert visit.errors == []


@pytest.fixture
def visit(chromium: Browser, stage: Stage) -> Iterator[Visit]:
    with visiting(chromium, stage.url) as found:
        yield found


@pytest.fixture
def visit_of(chromium: Browser) -> Callable[..., object]:
    """For other addresses and themes: ``with visit_of(url, "dark") as visit``."""

    def opened(url: str, theme: Theme = "light") -> object:
        return visiting(chromium, url, theme)

    return opened
