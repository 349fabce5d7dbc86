"""Do the copies of each partition agree? Update counters and sizes out of full maps (PME-088, PME-089)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

import pyarrow as pa

from spark.analysis import Analysis
from spark.frames import FrameKind
from spark.validation_job import COPIES_SCHEMA, computed


@dataclass(frozen=True, slots=True, order=True)
class Copy:
    """One copy as its node reports it; ``state`` is a CopyState's value, ``size`` a number of keys."""

    zone: int
    partition: int
    node: str
    state: str
    update_counter: int
    size: int


@dataclass(frozen=True, slots=True)
class Disagreement:
    """``copies`` are the OWNING ones of one partition, in node order."""

    zone: int
    partition: int
    copies: tuple[Copy, ...]

    def describe(self) -> str:
        """Names group, partition, nodes and values."""
        told = []
        for name, values in (
            ("update counters", {each.node: each.update_counter for each in self.copies}),
            ("sizes", {each.node: each.size for each in self.copies}),
        ):
            if len(set(values.values())) > 1:
                told.append(f"{name} differ: " + ", ".join(f"{node} {value}" for node, value in values.items()))
        return f"partition {self.zone}/{self.partition}: {'; '.join(told)}"


def analysis(copies: Sequence[Copy]) -> Analysis[list[Disagreement]]:
    """The partitions whose OWNING copies differ, in order. Copies in other states are not compared: they are
    being filled, or nobody wants them."""
    return of_table(pa.Table.from_pylist([asdict(each) for each in copies], COPIES_SCHEMA))


def of_table(copies: pa.Table) -> Analysis[list[Disagreement]]:
    """``copies`` with the columns of ``validation_job``."""
    return Analysis(FrameKind.VALIDATE, copies, computed, _decoded)


def _decoded(answer: pa.Table) -> list[Disagreement]:
    found = sorted(Copy(**row) for row in answer.to_pylist())
    grouped = groupby(found, key=lambda each: (each.zone, each.partition))
    return [Disagreement(zone, partition, tuple(each)) for (zone, partition), each in grouped]
