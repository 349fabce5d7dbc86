"""Where the causes that a command has shown are explained."""

from __future__ import annotations

from collections.abc import Iterable

from app.cli.output import say
from rebalance.core.causes.cause_table import anchor

PAGES_MAX = 5


def say_pages(causes: Iterable[str]) -> None:
    """One line, in the order of ``causes``; none where nothing waits."""
    pages = [page for page in dict.fromkeys(map(anchor, causes)) if page]
    if pages:
        rest = " and others" if len(pages) > PAGES_MAX else ""
        say(f"Explained in {', '.join(pages[:PAGES_MAX])}{rest}")
