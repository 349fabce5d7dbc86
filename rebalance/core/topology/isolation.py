"""How long members of HIGH_AVAILABILITY zones go on serving on a node that nobody hears, and how much longer a
partition that lost its majority waits before it is founded anew.

A node is *fenced* when its metastore has confirmed no renewal of its lease for ``fence_ms``, counted from when
the last confirmed one was sent: then every member of such a zone on it is killed, and none starts before the
node is heard again. A controller that has seen a majority of voters absent for ``reset_after_ms`` of each of
their fences, without a break, may take them for silent: no client gets an answer from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.codec import Codec, Form, Record, natural

STOP_MS = 1_000
"""From the end of a node's time to its processes being dead, at most."""
ELECTION_MS = 2_000
"""An election of the metastore's takes no longer."""
MARGIN_MS = 1_000
WAIT_MS = STOP_MS + ELECTION_MS + MARGIN_MS


@dataclass(frozen=True, slots=True)
class FenceRecord(Record):
    """``fences/<node>``: what the node of this incarnation keeps to, in milliseconds. It stays when the node's
    lease ends: it says how long nobody may count on its silence."""

    incarnation: str
    fence_ms: int


FenceRecord.codec = Codec(
    FenceRecord,
    required=("incarnation", "fence_ms"),
    forms={"fence_ms": Form(natural, int)},
)


def reset_s_min(lease_s: int) -> int:
    """The smallest ``Limits.ha_reset_s`` that nodes with leases of ``lease_s`` can keep to."""
    return lease_s + -(-WAIT_MS // 1_000)


def fence_ms_of(reset_s: int, lease_s: int) -> int:
    """What a node with leases of ``lease_s`` keeps to while ``Limits.ha_reset_s`` is ``reset_s``."""
    return max(1_000 * reset_s - WAIT_MS, 1_000 * lease_s)


def reset_after_ms(reset_s: int, fence_ms: int) -> int:
    """How long a voter's node must have been absent that kept to ``fence_ms``. More than ``reset_s`` after a
    decrease that the node had not followed when it was last heard."""
    return max(1_000 * reset_s, fence_ms + WAIT_MS)
