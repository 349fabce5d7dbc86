"""An archive of the JVM's loaded classes, with which Spark starts in a third of the processor time.

Most of a start goes into some 15,000 classes that are the same each time. ``python -m spark.class_archive``,
which the set-up runs, starts Spark once, and its JVM writes them at its end, parsed and checked, to one file of
150 MB below the user's cache directory (XDG_CACHE_HOME or ``~/.cache``); every later JVM maps that file. One
that finds it unfit (another build, other jars) starts without it; one that knows no archives ignores the
options. A file that was cut off ends the JVM: it is removed then, and the next start does without.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from spark.errors import SessionError
from spark.java import JavaRuntime, find_java
from spark.session import SessionConfig, SparkCluster, launch_jvm, open_session, spark_home

_QUIET = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_path(java: JavaRuntime, environment: Mapping[str, str] = os.environ) -> Path:
    """File for this Java and this Spark, which may not exist."""
    home = spark_home()
    jars = sorted(entry.name for entry in (home / "jars").glob("*.jar"))
    key = "\n".join((str(java.path.resolve()), java.version, str(home.resolve()), *jars))
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "zonekeeper" / f"spark-classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def archive_options(java: JavaRuntime) -> tuple[str, ...]:
    """Options of a JVM that maps the archive, if there is one."""
    archive = archive_path(java)
    return (*_QUIET, f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()


def drop_archive(java: JavaRuntime) -> None:
    """Remove the archive: a JVM that mapped it has not started."""
    archive_path(java).unlink(missing_ok=True)


def write_archive(archive: Path) -> None:
    """Start Spark for one small job and have its JVM write the archive at its end.

    Raises SessionError, Spark's errors, or OSError.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_name(f"{archive.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as scratch:
        options = (*_QUIET, f"-XX:ArchiveClassesAtExit={unfinished}")
        config = SessionConfig("local[*]", Path(scratch), options=options)
        jvm = launch_jvm(config)
        session = open_session(config)
        SparkCluster(session).warm_up()
        session.stop()
        jvm.communicate()
    if jvm.returncode != 0 or not unfinished.exists():
        unfinished.unlink(missing_ok=True)
        raise SessionError(f"Spark's JVM wrote no archive of its classes (exit code {jvm.returncode})")
    unfinished.replace(archive)


def main() -> int:
    try:
        archive = archive_path(find_java())
        if not archive.exists():
            write_archive(archive)
    except Exception as error:
        print(f"Spark will start without an archive of its classes: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
