"""A group's committed list as its members' nodes know it, and what the group's own store says of itself."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole
from rebalance.groups.calls.etcd_api import EtcdMemberEntry
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import GroupMember, PeerSight


def group_identity(partition: PartitionId) -> bytes:
    """What a group's own store says of itself, under ``IDENTITY_KEY``."""
    return str(partition).encode()


def group_members(
    entries: tuple[EtcdMemberEntry, ...],
    sights: Mapping[str, PeerSight],
    leaving: Mapping[str, float],
) -> tuple[GroupMember, ...]:
    """Entries with node names: what the members' own nodes say first, then the name that etcd knows."""
    named: dict[str, GroupMember] = {}
    for entry in sorted(entries, key=lambda other: other.peer_url not in sights):
        sight = sights.get(entry.peer_url)
        name = sight.node if sight else entry.name
        if not name or name in named:
            # An earlier incarnation of a node, or a learner that never started: named by its id.
            name = f"_{entry.member_id:x}"
        named[name] = GroupMember(
            node=name,
            member_id=f"{entry.member_id:x}",
            role=MemberRole.LEARNER if entry.is_learner else MemberRole.VOTER,
            peer_url=entry.peer_url,
            started=bool(entry.name),
            leaving=entry.peer_url in leaving,
        )
    return tuple(named.values())


def lists_itself(peer_url: str, name: str, tls: TlsFiles | None) -> bool:
    """True when the member, asked on its peer port, has applied its own announcement. Blocks for up to 1 s."""
    try:
        context = tls.context() if tls else None
        with urllib.request.urlopen(f"{peer_url}/members", timeout=1.0, context=context) as answer:
            # null of a member that knows nobody: it was restarted before it had its copy.
            members = json.load(answer) or ()
    except (OSError, ValueError):
        return False
    return any(member.get("name") == name and peer_url in member.get("peerURLs", ()) for member in members)
