"""A wall clock that jumps, for processes that are started under it: what the C library tells them is shifted by
as many seconds as the test says at that moment. Their monotonic clocks are the machine's."""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
SECONDS = struct.Struct("q")


class ShiftedClock:
    """Its files are in ``directory``, which outlives the processes."""

    def __init__(self, directory: Path) -> None:
        self._library = directory / "shifted_clock.so"
        self._shift = directory / "shift"
        self._shift.write_bytes(SECONDS.pack(0))
        compile_shift(self._library)

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to have this clock."""
        return {"LD_PRELOAD": str(self._library), "SHIFTED_CLOCK": str(self._shift)}

    def jump(self, seconds: int) -> None:
        """The clock is so far ahead of the machine's (behind it: negative) from now on."""
        with self._shift.open("r+b") as file:
            file.write(SECONDS.pack(seconds))


@functools.cache
def missing() -> str:
    """Why no process can have such a clock on this machine; empty when one can."""
    return "" if shutil.which("gcc") else "a wall clock that jumps needs gcc"


def compile_shift(library: Path) -> None:
    """Raises CalledProcessError."""
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run([*command, "-ldl"], check=True, capture_output=True)


def told_time(environment: dict[str, str]) -> float:
    """``time.time()`` of a Python that is started with ``environment``."""
    script = "import time; print(time.time())"
    command = [sys.executable, "-I", "-c", script]
    done = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True)
    return float(done.stdout)
