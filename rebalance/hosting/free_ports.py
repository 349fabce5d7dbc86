"""Finding TCP ports that stay ours: below the ephemeral range, so that no outgoing connection takes them."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from pathlib import Path

LOWEST = 10_240
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def first_ephemeral_port() -> int:
    """Return where the kernel's range for outgoing connections begins (32768 where it cannot be read)."""
    try:
        return int(EPHEMERAL_RANGE.read_text().split()[0])
    except OSError:
        return 32_768


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Check that the port can be bound now. Nothing is reserved by asking."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def usual_ports() -> range:
    return range(LOWEST, max(first_ephemeral_port(), LOWEST + 2))


def free_block(
    size: int,
    host: str = "127.0.0.1",
    attempts: int = 200,
    avoid: Sequence[range] = (),
    within: range | None = None,
) -> range:
    """``size`` neighbouring ports ``within`` those (None: the usual ones), all free now, chosen at random, none
    of them in a block of ``avoid`` (promised to somebody, though nothing may listen there yet). Raises
    RuntimeError when none is found."""
    chooser = random.SystemRandom()
    within = within or usual_ports()
    starts = range(within.start, within.stop - size + 1)
    for _ in range(attempts if starts else 0):
        start = chooser.choice(starts)
        block = range(start, start + size)
        if any(start < other.stop and other.start < block.stop for other in avoid):
            continue
        if all(is_free(port, host) for port in block):
            return block
    raise RuntimeError(f"no block of {size} free ports from {within.start} to {within.stop - 1} on {host}")
