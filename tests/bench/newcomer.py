"""``python -m tests.bench.newcomer``: a newcomer's first minutes, with a terminal and a browser, timed.

Runs the commands of the README's tour up to an altered zone that is seen in the console, each in a fresh
directory, and prints the seconds of each. ``--zonectl`` may be that of another build; several take turns.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

from tests.fixtures.console_stage import CHROMIUM_FLAGS, START_MS, WAIT_MS, find_chromium
from tests.fixtures.up_process import ENDED_WITHIN_S

COMMANDS = (
    ("sql", "-e", "CREATE ZONE orders (PARTITIONS 4, REPLICAS 1)", "--wait"),
    ("kv", "put", "orders", "customer-17", '{"total": 42}'),
    ("sql", "-e", "ALTER ZONE orders SET (REPLICAS 3)", "--wait"),
    ("kv", "get", "orders", "customer-17"),
)
LINK = re.compile(r"https?://\S+/console/login#zkl_\S+")
PAGE = re.compile(r"console at (https?://\S+/console)\b")
READY_S = 300.0
QUESTION = re.compile(r"(?i)password|\[y/n\]|certificate.*(verify|trust)|warning")


@dataclass
class Terminal:
    """`zonectl up` on one, and all that it has printed."""

    process: subprocess.Popen[bytes]
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def until(self, *patterns: re.Pattern[str]) -> str:
        """Text of the first pattern that is printed, its last group or the whole."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and self.process.poll() is None:
            for pattern in patterns:
                if match := pattern.search(self.text):
                    return match[match.lastindex or 0]
            time.sleep(0.02)
        raise RuntimeError(f"not printed: {[pattern.pattern for pattern in patterns]}\n{self.text}")


@contextmanager
def terminal(zonectl: Path, options: Sequence[str], folder: Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([zonectl, "up", *options], cwd=folder, stdout=theirs, stderr=theirs)
    os.close(theirs)
    opened = Terminal(process)

    def read() -> None:
        with suppress(OSError):
            while piece := os.read(ours, 4_096):
                opened.pieces.append(piece.decode())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield opened
    finally:
        process.terminate()
        process.wait(ENDED_WITHIN_S)
        reader.join(10)
        os.close(ours)


def tour(zonectl: Path, options: Sequence[str], browser: Browser) -> dict[str, float]:
    """Seconds of each step; ``questions``: lines that ask or warn; ``commands``: how many were typed."""
    seconds: dict[str, float] = {}
    began = time.monotonic()

    def note(step: str, since: float) -> None:
        seconds[step] = time.monotonic() - since

    shown = ""
    with tempfile.TemporaryDirectory(prefix="newcomer-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with terminal(zonectl, options, folder) as up:
            # A build without login prints the page alone.
            address = up.until(LINK if "--auth" in _help(zonectl) else PAGE)
            note("up: console's address is printed", began)
            context = browser.new_context(ignore_https_errors=True)
            context.set_default_timeout(WAIT_MS)
            page = context.new_page()
            since = time.monotonic()
            page.goto(address)
            expect(page.get_by_role("status")).to_contain_text("live", timeout=WAIT_MS)
            note("console: first page is live", since)
            for command in COMMANDS:
                since = time.monotonic()
                done = subprocess.run([zonectl, *command], cwd=folder, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                shown += done.stdout + done.stderr
                note(" ".join(("zonectl", *command)), since)
            since = time.monotonic()
            page.goto(f"{address.partition('/console')[0]}/console/zones/ORDERS")
            expect(page.locator("body")).to_contain_text("PARTITIONS 4, REPLICAS 3", timeout=WAIT_MS)
            note("console: the altered zone is seen", since)
            note("all", began)
            context.close()
            shown += up.text
    seconds["questions and warnings"] = len(QUESTION.findall(shown))
    seconds["commands"] = 1 + len(COMMANDS)
    return seconds


def _help(zonectl: Path) -> str:
    return subprocess.run([zonectl, "up", "--help"], capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zonectl", type=Path, action="append", help="of a build; may be repeated")
    parser.add_argument("--option", action="append", default=[], help="of `zonectl up`, of the last build")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    builds: list[Path] = given.zonectl or [Path(".venv/bin/zonectl")]
    results: dict[Path, list[dict[str, float]]] = {build.absolute(): [] for build in builds}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=CHROMIUM_FLAGS, timeout=START_MS
        )
        for _ in range(given.runs):
            for build, runs in results.items():
                options = given.option if build == builds[-1].absolute() else []
                runs.append(tour(build, options, browser))
                print(f"{build}: {runs[-1]['all']:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)
        browser.close()
    for build, runs in results.items():
        print(build)
        for step in runs[0]:
            figures = [run[step] for run in runs]
            print(f"  {statistics.median(figures):7.2f}  ({min(figures):.2f} to {max(figures):.2f})  {step}")


if __name__ == "__main__":
    main()
