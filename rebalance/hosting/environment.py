"""Environment that a child process inherits from ours.

A variable may hold a secret of somebody else's (a cloud key, the password of the catalog), and a process's
environment can be read by all who may look at the process. So a child inherits what is on its list and nothing
else. Patterns end in ``*`` where they match a whole family.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

SYSTEM = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR")
"""Variables about programs, the user, temporary files, and how texts and times are written. No proxies: our
processes talk to each other only, and never through one."""
ETCD = (*SYSTEM, "ETCD_UNSUPPORTED_ARCH")
"""Variables for etcd, without the other ``ETCD_*``: etcd refuses to start when one of them says what a flag
says."""
PYTHON = (
    *SYSTEM,
    # Where modules and shared libraries come from, also when this runs from a source tree.
    *("PYTHON*", "LD_LIBRARY_PATH", "XDG_CACHE_HOME"),
    # How many threads numeric libraries start, and how memory is given back: set for a whole machine.
    *("OMP_*", "OPENBLAS_*", "MKL_*", "NUMBA_*", "MALLOC_*"),
)
SPARK = (
    *PYTHON,
    # Which Java and which Spark, and how to reach a cluster; Spark's scripts and workers read the same.
    *("JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_*", "PYSPARK_*", "HADOOP_*"),
)


def environment(
    inherited: Sequence[str], more: Mapping[str, str] | None = None, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables of ``source`` (None: this process's) that ``inherited`` names, with ``more`` on top."""
    given = os.environ if source is None else source
    kept = {
        name: value for name, value in given.items() if any(fnmatchcase(name, pattern) for pattern in inherited)
    }
    return {**kept, **(more or {})}
