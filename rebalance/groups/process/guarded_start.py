"""The start of a member's process under the node's fence: it becomes the member only once it is guarded."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.hosting import child
from rebalance.hosting.environment import ETCD
from rebalance.ports.fence import MemberGuard, WatchLostError


class StartRefusedError(Exception):
    """The message is the reason that the member's record shows."""


async def start_guarded(
    guard: MemberGuard,
    partition: PartitionId,
    command: Sequence[str],
    log_path: Path,
    env: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """After ``guard.refusal``, which may take its time. Raises StartRefusedError; no process is left then, or
    when it is cancelled."""
    held = child.spawn_held(command, log=log_path, inherited=ETCD, env=env)
    try:
        await guard.guard(partition, held.process.pid)
    except WatchLostError as error:
        held.abandon()
        reason = str(error)
        raise StartRefusedError(reason if reason.startswith("FENCED") else Cause.FENCED.text(reason)) from error
    except BaseException:
        held.abandon()
        raise
    held.release()
    return held.process
