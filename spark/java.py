"""Choice of the Java for a Spark started from here, and what to install when there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rebalance.hosting.child import SPARK, environment
from spark.errors import JavaMissingError

JAVA_MAJOR_MIN = 17
ANSWER_LIMIT_S = 20.0
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')
_ADVICE = (
    f"install Java {JAVA_MAJOR_MIN} or later (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "Fedora: dnf install java-17-openjdk-headless) or set JAVA_HOME to one"
)


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    path: Path
    version: str


def find_java(environment: Mapping[str, str] = os.environ) -> JavaRuntime:
    """The Java at ``java_path``. Runs it once to ask its version.

    Raises JavaMissingError, whose message says what was looked at and what to install.
    """
    path = java_path(environment)
    return JavaRuntime(path, _checked_version(path))


def java_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The Java that Spark's scripts pick: JAVA_HOME if it is set, else PATH. Raises JavaMissingError."""
    home = environment.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise JavaMissingError(f"JAVA_HOME is {home}, where there is no bin/java: {_ADVICE}")
    else:
        executable = shutil.which("java", path=environment.get("PATH", os.defpath))
        if executable is None:
            raise JavaMissingError(f"Spark needs Java and there is none on PATH: {_ADVICE}")
        path = Path(executable)
    return path


def _checked_version(path: Path) -> str:
    try:
        answer = subprocess.run(
            [str(path), "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_LIMIT_S,
            check=False,
            env=environment(SPARK),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissingError(f"{path} does not run ({error}): {_ADVICE}") from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode != 0 or match is None:
        raise JavaMissingError(f"{path} -version gave no version (exit {answer.returncode}): {_ADVICE}")
    # Before 9, Java called itself 1.8.
    major = int(match[2] or 0) if match[1] == "1" else int(match[1])
    if major < JAVA_MAJOR_MIN:
        raise JavaMissingError(f"{path} is Java {major}: {_ADVICE}")
    return match[0].split('"')[1]
