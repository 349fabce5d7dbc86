"""What a partition's group is to become, as its keys show it."""

from __future__ import annotations

from dataclasses import dataclass

from rebalance.core.assignments import Assignments
from rebalance.nodes.partition_view import NodePartitionView


@dataclass(frozen=True, slots=True)
class DesiredPeers:
    """``revision``: of pending; 0 means back to stable. A member that comes back has another peer URL."""

    target: Assignments
    revision: int
    urls: dict[str, str]


def pending_revision(view: NodePartitionView) -> int:
    """0: there is no pending."""
    return view.pending.mod_revision if view.pending is not None else 0


def desired_peers(view: NodePartitionView) -> DesiredPeers | None:
    """What the mirror shows as wanted now."""
    if view.pending is not None:
        target = view.pending.value
        return DesiredPeers(target, view.pending.mod_revision, peer_urls(view, target))
    return DesiredPeers(view.stable.value, 0, peer_urls(view, view.stable.value)) if view.stable else None


def peer_urls(view: NodePartitionView, target: Assignments) -> dict[str, str]:
    """Peer URLs of the target's nodes, as far as they have reserved a member."""
    return {
        name: view.records[name].value.peer_url
        for name in target.peers
        if name in view.records and view.records[name].value.peer_url
    }
