"""Signs of life of a process: to its parent that its event loop runs, in its log where it stands, and its
age.

The parent gives a child the writing end of a pipe; the child's loop writes a byte to it every second. A loop
that is blocked writes nothing, and neither does a process that is stopped. ``DUMP_SIGNAL`` makes a process
write the stacks of its threads to its standard error, also while its loop is blocked.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

VARIABLE = "ZONEKEEPER_HEARTBEAT_FD"
BEAT_S = 1.0
DUMP_SIGNAL = signal.SIGUSR2


def dump_on_signal() -> None:
    """Call early in a process."""
    with suppress(OSError, ValueError, AttributeError):
        # A standard error that is no file has nowhere to write to.
        faulthandler.register(DUMP_SIGNAL, file=sys.stderr, all_threads=True)


class Heart:
    """Heart of a child: beats from the loop that ``start`` is called in, for as long as the loop runs."""

    def __init__(self) -> None:
        given = os.environ.pop(VARIABLE, "")
        self._pipe = int(given) if given.isdigit() else None

    def start(self) -> None:
        if self._pipe is not None:
            os.set_inheritable(self._pipe, False)
            os.set_blocking(self._pipe, False)
            self._beat(self._pipe)

    def _beat(self, pipe: int) -> None:
        # A parent that does not read, or is gone, is no reason to stop.
        with suppress(OSError):
            os.write(pipe, b".")
        asyncio.get_running_loop().call_later(BEAT_S, self._beat, pipe)


class Pulse:
    """The parent's end, one a process. ``given`` is the child's end until ``keep`` is called."""

    def __init__(self) -> None:
        self._read, self.given = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self.given)}

    def keep(self) -> None:
        """The child has its end, and only the child may have it."""
        os.close(self.given)

    def heard(self) -> bool:
        """Check that anything has come since the last call."""
        try:
            return len(os.read(self._read, 1 << 16)) > 0
        except OSError:
            return False

    def close(self) -> None:
        os.close(self._read)


def age_of_this_process_s() -> float:
    """Seconds since the kernel started it; 0.0 where that cannot be read."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        booted = float(Path("/proc/uptime").read_text().split()[0])
        return max(0.0, booted - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0
