"""Lines of a paused zone."""

from __future__ import annotations

from typing import Any

NONE: dict[str, Any] = {
    **dict.fromkeys(("cluster_moves", "zone_moves", "donor_moves", "receiver_moves", "batch_size", "pause")),
    "zone_pauses": [],
}


PAUSE = {"by": "alice", "reason": "new disks", "since": "2026-01-01T10:00:00Z", "until": "2026-01-01T10:30:00Z"}


PAUSED = {
    **NONE,
    "cluster_moves": 8,
    "pause": PAUSE,
    "zone_pauses": [{**PAUSE, "reason": "", "until": None, "zone": "ORDERS", "zone_id": 1}],
}


PAUSE_LINES = [
    "paused by alice since 2026-01-01T10:00:00Z: new disks, until 2026-01-01T10:30:00Z",
    "zone ORDERS paused by alice since 2026-01-01T10:00:00Z",
]
