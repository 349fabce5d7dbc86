"""Losses if a node stopped now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from app.views.keyspace_views import KeyspaceViews
from app.views.mirror_freshness import MetastoreSilence, as_of
from catalog.core.zone import ZoneId
from rebalance.core.moves.drain import DrainLoss, losses

SHOWN_MAX = 1_000


def can_stop(
    node: str, views: KeyspaceViews, zones: Mapping[ZoneId, str], silence: MetastoreSilence | None = None
) -> dict[str, Any]:
    """Losses if the node stopped now, and whether it can stop. ``zones``: names by id; partitions of other
    zones are being dropped, and do not count. While the metastore is silent the losses are not known, and the
    node cannot stop."""
    alive = views.alive()
    counts: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []
    held = Counter[str]()
    for partition in views.held_by(node):
        held["copies" if views.ownership.has(partition.zone_id) else "members"] += 1
        zone = zones.get(partition.zone_id)
        view, _ = views.view(partition, None)
        for loss, detail in losses(view, node, alive) if zone is not None else ():
            counts[loss.value] += 1
            if len(shown) < SHOWN_MAX:
                where = {"zone": zone, "zone_id": partition.zone_id, "partition": partition.partition}
                shown.append({**where, "loss": loss.value, "detail": detail})
    hinders = any(counts[loss.value] for loss in DrainLoss if loss.hinders)
    verdict = {
        "node": node,
        "can_stop": silence is None and not hinders,
        "members": held["members"],
        "copies": held["copies"],
        "losses": dict(sorted(counts.items())),
        "partitions": shown,
    }
    return as_of(verdict, silence)
