"""Use of a zone while partitions of it are lost: the zone's setting, after Ignite 2.

A partition is lost when no living copy owns it. It stays so until its last owner is back with everything, or
somebody resets it; under READ_WRITE_ALL until it is reset, as others may have taken writes meanwhile. Source:
PME-094..096.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from catalog.core.zone import LossPolicy


class Access(Enum):
    READ = "READ"
    WRITE = "WRITE"


_READ_ONLY = (LossPolicy.READ_ONLY_SAFE, LossPolicy.READ_ONLY_ALL)
_SAFE = (LossPolicy.READ_ONLY_SAFE, LossPolicy.READ_WRITE_SAFE)


def why_refused(policy: LossPolicy, access: Access, partition: int, lost: Collection[int]) -> str:
    """Reason that an operation on ``partition`` of a zone is refused; empty when it is not. ``lost``: the
    zone's lost partitions (PME-095)."""
    if not lost or policy is LossPolicy.IGNORE:
        return ""
    if access is Access.WRITE and policy in _READ_ONLY:
        some = ", ".join(map(str, sorted(lost)[:5]))
        return f"partitions {some} are lost and the policy {policy.value} refuses every write to the zone"
    if partition in lost and policy in _SAFE:
        return f"partition {partition} is lost and the policy {policy.value} refuses what touches it"
    return ""
