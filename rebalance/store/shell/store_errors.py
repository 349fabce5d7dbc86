"""Errors of reading and opening a store."""

from __future__ import annotations

import struct

import lmdb


class StoreDiskError(Exception):
    """Base of what opening a store raises; this class itself: the system refuses it.

    StoreDiskError
    ├── NoStoreError          there is no store in the directory
    ├── StoreFormatError      a later build has written it
    ├── StoreInUseError       another process has it open
    └── StoreDamagedError     what is in it cannot be read
    """


class NoStoreError(StoreDiskError):
    """A missing store, for readers only: a server makes one."""


class StoreFormatError(StoreDiskError):
    """A store of another format; nothing was changed."""


class StoreInUseError(StoreDiskError):
    """Two servers must not write to one store."""


class StoreDamagedError(StoreDiskError):
    """The file is not one of LMDB, its pages contradict each other, or a value is none of ours."""


DAMAGED_PAGES = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.IncompatibleError)
"""LMDB's errors about a file, not about the system, which may give it room, memory or rights again."""
UNREADABLE = (*DAMAGED_PAGES, ValueError, struct.error)
"""Errors while stored bytes are read and decoded."""


def damaged(place: str, error: Exception) -> StoreDamagedError:
    """``place``: the file."""
    return StoreDamagedError(f"{place} cannot be read: {type(error).__name__}: {error}")
