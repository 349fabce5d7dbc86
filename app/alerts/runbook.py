"""The runbook's pages, as they are shipped: beside the package in a checkout, in the installation's ``share``
elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

from app.alerts.burn_rows import ALERT_ROWS

FOLDERS = (
    Path(__file__).parents[2] / "docs" / "runbook",
    Path(sys.prefix) / "share" / "zonekeeper" / "runbook",
)
NAMES = frozenset(row.name for row in ALERT_ROWS)


def runbook_page(name: str) -> str | None:
    """Markdown. None: there is no alert of this name. Raises OSError where its page is not installed."""
    if name not in NAMES:
        return None
    folder = next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[-1])
    return (folder / f"{name}.md").read_text()
