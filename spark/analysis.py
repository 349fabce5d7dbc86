"""A question that Spark answers, and this process where Spark cannot be had: the same functions on the same
tables.

One value object a kind of question, made by ``what_if``, ``plan_transfers``, ``skew`` and ``copies``;
``SparkPlacementEngine.answer`` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from spark.frames import FrameKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Analysis(Generic[T]):
    """``table`` is what the job of ``kind`` takes, ``compute`` does the same here, ``decode`` reads the answer
    of either. All plain computation, run in a thread."""

    kind: FrameKind
    table: pa.Table
    compute: Callable[[pa.Table], pa.Table]
    decode: Callable[[pa.Table], T]

    def here(self) -> T:
        return self.decode(self.compute(self.table))
