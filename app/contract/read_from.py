"""Which replica of a partition answers a read."""

from __future__ import annotations

from enum import Enum


class ReadFrom(Enum):
    LEADER = "leader"
    LEARNER = "learner"
    REPLICA = "replica"
