"""Compiling a kernel to machine code, once for each machine and version of the kernels.

Compiling all of them takes seconds, so the code is kept in the user's cache folder. The folder's name holds a
digest of every kernel's source: numba by itself looks only at the file of the function, not at what it calls.
Where nothing can be kept (a read-only home, sources in a zip on an executor) kernels are compiled again by each
process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import numba
from numba import config

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """``function`` as machine code, compiled at its first call for each combination of argument types. It does
    not hold the interpreter's lock while it runs."""
    try:
        found = numba.njit(nogil=True, cache=_CACHE is not None)(function)
    except RuntimeError:
        found = numba.njit(nogil=True)(function)
    return cast("Function", found)


def _cache_folder() -> Path | None:
    """A folder that belongs to these very sources, or None where there can be none."""
    digest = hashlib.sha256()
    try:
        sources = sorted(Path(__file__).parent.glob("*.py"))
        if not sources:
            return None
        for source in sources:
            digest.update(source.read_bytes())
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = root / "zonekeeper" / f"kernels-{digest.hexdigest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


_CACHE = _cache_folder()
if _CACHE is not None and not config.CACHE_DIR:
    config.CACHE_DIR = str(_CACHE)
