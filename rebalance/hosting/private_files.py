"""Files that only their owner can read: those that will be written, and those that are there already."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import structlog

log = structlog.get_logger(__name__)

T = TypeVar("T")

NOTE_FORMAT = 1
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write_privately() -> None:
    """Write files privately from now on: directories 0700 and files 0600, of this process and of its
    children."""
    os.umask(OTHERS)


def replace_privately(path: Path, content: bytes) -> None:
    """``path`` holds ``content``, all of it or what it held before, also when the machine stops in the middle.

    The file is made anew with 0600 whatever the umask, under a name that nobody can have prepared: a link is
    not followed, and what is there is not written to. Raises OSError.
    """
    draft = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise


def write_note(path: Path, **fields: object) -> bool:
    """Write a note of one's own, whole or not at all. False: it was not written, as on a full disk, which
    ends no process."""
    draft = path.with_suffix(".draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps({"v": NOTE_FORMAT, **fields}))
        draft.replace(path)
    except OSError as error:
        log.warning("a note is not written", path=str(path), error=str(error))
        return False
    return True


def read_note(path: Path, parse: Callable[[dict[str, Any]], T], otherwise: T) -> T:
    """Read a note of one's own; ``otherwise`` where it is missing or damaged, which says nothing."""
    try:
        document = json.loads(path.read_text())
        return parse(document) if document.get("v", NOTE_FORMAT) == NOTE_FORMAT else otherwise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return otherwise


def tighten(directory: Path, ours: Sequence[str]) -> list[str]:
    """Take from others what they may do with the entries of ``directory`` that a pattern of ``ours`` names, and
    with the directory itself when nothing else is in it. One that holds other things is not ours to close,
    nor is one that everybody may write to, as /tmp.

    Links are not followed. What is closed already is not looked into, so a second time costs next to nothing.
    Returns what could not be closed, with the reason.
    """
    failures: list[str] = []
    try:
        names = os.listdir(directory)
        is_shared = bool(os.stat(directory).st_mode & stat.S_ISVTX)
    except OSError as error:
        return [f"{directory}: {error.strerror or error}"]
    known = [name for name in names if any(fnmatchcase(name, pattern) for pattern in ours)]
    for name in known:
        _close(os.path.join(directory, name), failures)
    if len(known) == len(names) and not is_shared:
        _close_one(os.fspath(directory), failures)
    return failures


def _close(path: str, failures: list[str]) -> None:
    """A directory after all that is in it: one that is found closed was closed to the end."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode) or not mode & OTHERS:
            return
        if stat.S_ISDIR(mode):
            for name in os.listdir(path):
                _close(os.path.join(path, name), failures)
    except FileNotFoundError:
        return
    except OSError as error:
        failures.append(f"{path}: {error.strerror or error}")
    _close_one(path, failures)


def _close_one(path: str, failures: list[str]) -> None:
    try:
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        if mode & OTHERS:
            os.chmod(path, mode & ~OTHERS)
    except FileNotFoundError:
        return
    except OSError as error:
        failures.append(f"{path}: {error.strerror or error}")
