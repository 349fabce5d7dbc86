"""Keeps the file of scrape targets that a server was asked for, for Prometheus's file_sd."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import structlog

from app.views.scrape_targets import scrape_targets
from rebalance.core.keyspace.keys import Keyspace
from rebalance.metastore.mirror import KeyspaceMirror

log = structlog.get_logger(__name__)

LOOK_S = 2.0


async def keep_targets_file(path: Path, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
    """Until cancelled. Written when it changes; as long as the metastore was never read it stays as it was."""
    written = ""
    while True:
        text = json.dumps(scrape_targets(mirror, keyspace), indent=2) + "\n"
        if mirror.is_loaded and text != written:
            draft = path.with_suffix(".draft")
            try:
                draft.write_text(text)
                draft.replace(path)
                written = text
            except OSError as error:
                log.warning("scrape targets not written", path=str(path), error=str(error))
        await asyncio.sleep(LOOK_S)
