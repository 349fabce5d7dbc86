"""Which store servers take part, and which are missed."""

from __future__ import annotations

from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import STORE_ENGINE


def servers_up(views: KeyspaceViews) -> dict[str, bool]:
    """Whether its server takes part, by living node that keeps store zones. Empty while there is no zone for
    them."""
    ownership = views.ownership
    if not ownership.ring.cluster.zones:
        return {}
    nodes = (record.node for record in views.live_records().values())
    keeping = {node.name for node in nodes if STORE_ENGINE in dict(node.engines).values()}
    return {name: name in ownership.servers for name in sorted(keeping)}


def servers_down(views: KeyspaceViews) -> list[str]:
    """Living nodes whose server is missed."""
    return [name for name, is_up in servers_up(views).items() if not is_up]
