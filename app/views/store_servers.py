"""Which store servers are missed."""

from __future__ import annotations

from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import STORE_ENGINE


def servers_down(views: KeyspaceViews) -> list[str]:
    """Living nodes that keep store zones and whose server takes no part. Nobody misses one while there is no
    zone for it."""
    ownership = views.ownership
    if not ownership.ring.cluster.zones:
        return []
    nodes = (record.node for record in views.live_records().values())
    keeping = {node.name for node in nodes if STORE_ENGINE in dict(node.engines).values()}
    return sorted(keeping - ownership.servers)
