"""Child processes that cannot outlive their parent, and that inherit only what is on a list.

``setpriv --pdeathsig KILL`` makes the kernel end a child when the *thread* that spawned it ends, so spawn
from a long-lived thread (the main one). ``preexec_fn`` is not used: in a process that runs gRPC it deadlocks
now and then. Each child leads a session of its own, so that a terminal's Ctrl-C reaches only the parent,
which stops its children in order.

A variable of the environment may hold a secret of somebody else's (a cloud key, the password of the catalog),
and a process's environment can be read by all who may look at the process. So a child inherits the variables
of its list and nothing else. Patterns end in ``*`` where they match a whole family.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

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


ORPHAN_CHECK = 'test "$PPID" = "$0" && exec "$@"'
HELD = 'test "$PPID" = "$0" && read -r _ && exec "$@" </dev/null'


LOG_BYTES_MAX = 8 << 20
LOGS_KEPT = 3


class MissingToolError(RuntimeError):
    """A program that must be on PATH is not; the message names the command that installs it."""


def guarded_command(argv: Sequence[str], script: str = ORPHAN_CHECK) -> list[str]:
    """The command line that runs ``argv`` as a child of this process so that it dies with it.

    The signal is asked for only once the child runs; a parent that died before that would leave it alone.
    So, with the signal set, a shell looks whose child it is, and becomes ``argv`` if it is still ours.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise MissingToolError("setpriv is needed to start child processes: install util-linux")
    return [setpriv, "--pdeathsig", "KILL", "--", "/bin/sh", "-c", script, str(os.getpid()), *argv]


def spawn(
    argv: Sequence[str],
    *,
    log: Path | IO[bytes] | None = None,
    inherited: Sequence[str] = SYSTEM,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start ``argv`` as a guarded child; stdout and stderr are appended to ``log`` (None: inherited). Of our
    variables it gets those that ``inherited`` names (``environment``), and ``env``."""
    full_env = environment(inherited, env)
    command = guarded_command(argv)
    if isinstance(log, Path):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            return _popen(command, stream, full_env, cwd, pass_fds)
    return _popen(command, log, full_env, cwd, pass_fds)


def rotate_log(path: Path, bytes_max: int = LOG_BYTES_MAX, kept: int = LOGS_KEPT) -> None:
    """``x.log`` becomes ``x.log.1`` (and .1 becomes .2, ...) once it is larger than ``bytes_max``."""
    if not path.exists() or path.stat().st_size <= bytes_max:
        return
    for index in range(kept - 1, 0, -1):
        older = path.with_name(f"{path.name}.{index}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{index + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def rotate_open_log(path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Rotate, as ``rotate_log`` with one earlier part, a log that a child appends to meanwhile: it goes on at
    the start. What it writes just then may be lost. Raises OSError."""
    if path.stat().st_size > bytes_max:
        shutil.copyfile(path, path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)


@dataclass(frozen=True, slots=True)
class HeldChild:
    """A child that is not yet what it was started as: it becomes it when it is released."""

    process: subprocess.Popen[bytes]
    _gate: int

    def release(self) -> None:
        """Release the child, also one that has ended meanwhile."""
        try:
            with suppress(BrokenPipeError):
                os.write(self._gate, b"\n")
        finally:
            os.close(self._gate)

    def abandon(self) -> None:
        """Give the child up before it runs the program."""
        os.close(self._gate)
        self.process.kill()
        self.process.wait()


def spawn_held(
    argv: Sequence[str], *, log: Path, inherited: Sequence[str] = SYSTEM, env: Mapping[str, str] | None = None
) -> HeldChild:
    """Start a held child, otherwise as ``spawn``; a parent that ends before it has released the child leaves
    none."""
    log.parent.mkdir(parents=True, exist_ok=True)
    reads, gate = os.pipe2(os.O_CLOEXEC)
    try:
        with log.open("ab") as stream:
            command = guarded_command(argv, HELD)
            process = _popen(command, stream, environment(inherited, env), None, (), stdin=reads)
    except BaseException:
        os.close(gate)
        raise
    finally:
        os.close(reads)
    return HeldChild(process, gate)


def _popen(
    command: list[str],
    stream: IO[bytes] | None,
    env: Mapping[str, str],
    cwd: Path | None,
    pass_fds: Sequence[int],
    *,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stream,
        stderr=subprocess.STDOUT if stream is not None else None,
        env=env,
        cwd=cwd,
        pass_fds=pass_fds,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes], grace_s: float = 5.0) -> int:
    """SIGTERM, then SIGKILL after ``grace_s``; returns the exit code. Blocks: call it off the event loop."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()
