"""Compiling a kernel to machine code, once for each machine and version of the kernels.

Compiling all of them takes seconds, so the code is kept in the user's cache folder, also on Spark executors,
which import the kernels from a zip at another path each time. What is kept belongs to a digest of every
kernel's source: numba by itself looks only at the file of the function, not at what it calls. Where nothing can
be kept (a read-only home) kernels are compiled again by each process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TypeVar, cast

import numba
from numba import config

Function = TypeVar("Function", bound=Callable[..., object])


class KernelCacheLocator:
    """Place where numba keeps a kernel: in a folder that belongs to the digest, wherever the sources are. It
    has what numba asks of a cache locator."""

    def __init__(self, function: Callable[..., object], folder: Path) -> None:
        self._folder = folder
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(self._folder)

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., object], py_file: str) -> KernelCacheLocator | None:
        """Return a locator for our functions; None for other people's: numba then asks its own locators."""
        if _CACHE is None or not py_func.__module__.startswith(f"{__package__}."):
            return None
        return cls(py_func, _CACHE)


def compiled(function: Function) -> Function:
    """``function`` as machine code, compiled at its first call for each combination of argument types. It does
    not hold the interpreter's lock while it runs."""
    try:
        dispatcher = numba.njit(nogil=True, cache=_CACHE is not None)(function)
    except RuntimeError:
        dispatcher = numba.njit(nogil=True)(function)
    return cast("Function", dispatcher)


def _cache_folder() -> Path | None:
    """A folder that belongs to these very sources, or None where there can be none."""
    digest = hashlib.sha256()
    try:
        sources = [entry for entry in resources.files(__package__).iterdir() if entry.name.endswith(".py")]
        for source in sorted(sources, key=lambda entry: entry.name):
            digest.update(source.read_bytes())
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = root / "zonekeeper" / f"kernels-{digest.hexdigest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


_CACHE = _cache_folder()
_LOCATOR = f"{__name__}.{KernelCacheLocator.__name__}"
if _CACHE is not None and not config.CACHE_LOCATOR_CLASSES:
    config.CACHE_LOCATOR_CLASSES = ",".join(
        (_LOCATOR, *("UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator"))
    )
