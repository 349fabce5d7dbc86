"""Which group, and which life of it, a call is meant for: compared in the very transaction that answers it.

An address may belong to another group by now (ports are used again), and a member that comes back may be of a
life of the group that was given up. Neither takes a put, and what it says is no answer to a get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aetcd import rpc

from rebalance.core.keys import PartitionId
from rebalance.groups.etcd_api import GENERATION_KEY, IDENTITY_KEY
from rebalance.groups.member_list import group_identity


class WrongGroupError(Exception):
    """The address belongs to a member of another group, or of one that is not ready yet: nothing was done."""


class WrongGenerationError(WrongGroupError):
    """It belongs to a member of the group, of another life than the one that was expected: nothing was done."""

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
        identity = group_identity(self.partition)
        own = rpc.Compare(key=IDENTITY_KEY, target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL, value=identity)
        if self.generation is None:
            return [own]
        if not self.generation:
            return [own, absent(GENERATION_KEY)]
        value = b"%d" % self.generation
        same = rpc.Compare(key=GENERATION_KEY, target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL, value=value)
        return [own, same]

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


def absent(key: bytes) -> Any:
    return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=0)


def get(key: bytes, *, serializable: bool = False) -> Any:
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key, serializable=serializable))
