"""Identity of the group, and of the life of it, that a call addresses: compared in the transaction that
answers.

An address may belong to another group by now (ports are used again), and a member that comes back may be of a
life of the group that was given up. Neither takes a put, and what it says is no answer to a get.
``group_members`` names a group's committed list as its members' nodes know it.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole
from rebalance.groups.calls.etcd_api import (
    GENERATION_KEY,
    IDENTITY_KEY,
    EtcdMemberEntry,
    absent,
    get,
    has_value,
)
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.groups import GroupMember, PeerSight


def group_identity(partition: PartitionId) -> bytes:
    """Name by which a group's own store identifies itself, under ``IDENTITY_KEY``."""
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


class WrongGroupError(Exception):
    """The address belongs to a member of another group, or of one that is not ready yet: nothing was done."""


class WrongGenerationError(WrongGroupError):
    """The address belongs to a member of the group, but of another generation than expected: nothing was
    done."""

    def __init__(self, url: str, partition: PartitionId, expected: int, answered: int) -> None:
        super().__init__(
            f"WRONG_GENERATION: {url} is of generation {answered} of partition {partition}; "
            f"the routing map names generation {expected}"
        )
        self.expected = expected
        self.answered = answered

    @property
    def is_map_old(self) -> bool:
        """Else the member is of a life that was given up, or is behind the others."""
        return self.answered > self.expected


@dataclass(frozen=True, slots=True)
class GroupGuard:
    """``generation``: None takes any."""

    partition: PartitionId
    generation: int | None = None

    def compares(self) -> list[Any]:
        """Conditions of a transaction."""
        own = has_value(IDENTITY_KEY, group_identity(self.partition))
        if self.generation is None:
            return [own]
        if not self.generation:
            return [own, absent(GENERATION_KEY)]
        return [own, has_value(GENERATION_KEY, b"%d" % self.generation)]

    def reads(self, *, serializable: bool = False) -> list[Any]:
        """Two reads for where the conditions do not hold; ``check`` takes what they find."""
        return [get(key, serializable=serializable) for key in (IDENTITY_KEY, GENERATION_KEY)]

    def check(self, url: str, identities: Sequence[Any], generations: Sequence[Any]) -> None:
        """Raises WrongGroupError, WrongGenerationError."""
        identity, expected = identities[0].value if identities else b"", group_identity(self.partition)
        if identity != expected:
            raise WrongGroupError(f"{url} is {identity.decode(errors='replace')!r}, not {expected.decode()!r}")
        written = generations[0].value if generations else b"0"
        if self.generation is None or written == b"%d" % self.generation:
            return
        if not written.isdigit():
            raise WrongGroupError(f"{url} has {written!r} in place of a generation")
        raise WrongGenerationError(url, self.partition, self.generation, int(written))
