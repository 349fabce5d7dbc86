"""Arrays as one binary cell of an Arrow table: numpy's ``npz``, without pickles."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def pack(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(blob: bytes) -> dict[str, npt.NDArray[Any]]:
    with np.load(io.BytesIO(blob), allow_pickle=False) as arrays:
        return dict(arrays)
