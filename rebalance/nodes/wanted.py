"""What a leader's agent is to bring its group to, as its mirrors show it."""

from __future__ import annotations

from dataclasses import dataclass

from rebalance.core.assignments import Assignments
from rebalance.nodes.partition_view import PartitionView


@dataclass(frozen=True, slots=True)
class Wanted:
    """``revision``: of pending; 0 means back to stable. A member that comes back has another peer URL."""

    target: Assignments
    revision: int
    urls: dict[str, str]


def revision_of(view: PartitionView) -> int:
    """Of pending; 0: there is none."""
    return view.pending.mod_revision if view.pending is not None else 0


def wanted_of(view: PartitionView) -> Wanted | None:
    """What the mirror shows as wanted now."""
    if view.pending is not None:
        target = view.pending.value
        return Wanted(target, view.pending.mod_revision, urls_of(view, target))
    return Wanted(view.stable.value, 0, urls_of(view, view.stable.value)) if view.stable else None


def urls_of(view: PartitionView, target: Assignments) -> dict[str, str]:
    """Peer URLs of the target's nodes, as far as they have reserved a member."""
    return {
        name: view.records[name].value.peer_url
        for name in target.peers
        if name in view.records and view.records[name].value.peer_url
    }
