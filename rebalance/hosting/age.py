"""Age of this process, its start and its imports included."""

from __future__ import annotations

import os
from pathlib import Path


def age_of_this_process_s() -> float:
    """Seconds since the kernel started it; 0.0 where that cannot be read."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        booted = float(Path("/proc/uptime").read_text().split()[0])
        return max(0.0, booted - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0
