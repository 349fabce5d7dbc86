"""A process that keeps one mirror, to be killed: ``python -m tests.mirror_process DIR FIRST LAST
SOURCE...``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from rebalance.groups.etcd_mirror import EtcdMirrorHost
from rebalance.groups.reservations import Reservations
from tests.group_hosts import P0, TUNING

GROUP = "token"


def book(directory: Path, ports: range) -> Reservations:
    return Reservations(directory, ports, folder="mirrors")


async def _run(directory: Path, ports: range, sources: tuple[str, ...]) -> None:
    host = EtcdMirrorHost(book(directory, ports), tuning=TUNING)
    host.open("m")
    await host.follow(P0, GROUP, sources)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])), tuple(sys.argv[4:])))
