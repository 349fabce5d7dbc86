"""Ports of servers that tests start."""

from __future__ import annotations

from collections import deque

from rebalance.hosting import free_ports

_promised: deque[range] = deque(maxlen=200)
"""The newest blocks: by then the servers of those before are gone."""


def free_block(size: int) -> range:
    """Neighbouring free ports, none in a block that was given out lately: its server may not listen yet."""
    block = free_ports.free_block(size, avoid=_promised)
    _promised.append(block)
    return block


def free_port() -> int:
    return free_block(1).start
