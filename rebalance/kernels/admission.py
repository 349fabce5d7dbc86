"""Choice of the waiting moves that have room on all their nodes: array code under
``rebalance.core.admission.move_admission``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def with_room(uses: npt.NDArray[np.int32], room: npt.NDArray[np.int64], start: int) -> npt.NDArray[np.intp]:
    """Rows of ``uses``, from ``start`` on and in order, all of whose entries have room.

    ``uses`` int32 [N, K]: each row's indexes into ``room`` int64 [R]; a row that uses fewer than K repeats one,
    and one that uses none names an entry with room for everything. O((N - start) K).
    """
    return np.flatnonzero((room > 0)[uses[start:]].all(axis=1)) + start
