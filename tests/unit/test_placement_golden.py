"""Golden vectors of the Java implementation, through the kernel and the steps of the job without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark import batch as batches
from spark.placement_job import place_batches, split
from tests.data.placement_golden import GoldenCase, golden_cases, rows_of
from tests.fixtures.kernels import only

CASES = golden_cases()


@pytest.mark.row("PME-077", "IEP-035", "IEP-038")
@pytest.mark.parametrize("kernel", ["numpy", "compiled"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_local_kernel(case: GoldenCase, kernel: str) -> None:
    """IEP-035, IEP-038, PME-077: the same nodes, roles and order as Java's."""
    with only(kernel):
        (result,) = batches.place_locally([case.request])
    assert rows_of(result) == case.rows


def test_the_steps_of_the_job_with_all_cases_in_one_batch() -> None:
    """The driver and its executors take these steps; here they are taken without them."""
    requests = [case.request for case in CASES]
    ranges = split(batches.encode(requests), parallelism=4)
    cells = pa.Table.from_batches(list(place_batches(iter(ranges.to_batches()))))
    results = batches.decode(requests, cells)
    assert [rows_of(result) for result in results] == [case.rows for case in CASES]
