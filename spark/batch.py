"""A batch of placement requests as the *zones* table of the job, and its *cells* as results.

Shapes and columns are those of ``placement_job``; here they meet the port's value objects. Everything is plain
computation without I/O, run in a thread because a batch of thousands of zones takes tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.core.zone import ZoneId
from rebalance.kernels.rendezvous import (
    NodeDictionary,
    effective_replicas,
    node_dictionary,
    place_hashed,
    voters,
)
from rebalance.ports.placement import Engine, PlacementError, PlacementRequest, PlacementResult
from spark.arrays import encode_problem
from spark.errors import JobFailedError
from spark.placement_job import ZONES_SCHEMA

if TYPE_CHECKING:
    from rebalance.kernels.balanced import BalancedPlan

RENDEZVOUS, BALANCED = "rendezvous", "balanced"
ALGORITHMS = (RENDEZVOUS, BALANCED)
PARTITIONS_MAX = 2_147_483_647
WARM_UP = (PlacementRequest(ZoneId(0), ("a", "b", "c"), 8, 3, 3),)
"""A batch of which nobody wants the result."""


def encode(batch: Sequence[PlacementRequest]) -> pa.Table:
    """*zones* [Z], row ``i`` for request ``i``. Raises PlacementError for one that no engine can place."""
    dictionaries = _dictionaries(batch)
    problems = [None if plan is None else plan.problem for plan in balanced_plans(batch)]
    columns = {
        "zone": range(len(batch)),
        "partitions": [request.partitions for request in batch],
        "replicas": [request.replicas for request in batch],
        "hashes": [_bytes(dictionaries[request.nodes].hashes) for request in batch],
        "order": [_bytes(dictionaries[request.nodes].order) for request in batch],
        "problem": [None if problem is None else encode_problem(problem) for problem in problems],
    }
    return pa.table(columns, schema=ZONES_SCHEMA)


def decode(batch: Sequence[PlacementRequest], cells: pa.Table) -> list[PlacementResult]:
    """Assemble the matrices, one copy of each range. Raises PlacementError for a zone that the executors
    refused, JobFailedError when ranges are missing or do not fit."""
    bad = cells.filter(cells.column("error").is_valid()).select(["zone", "error"])
    for row in bad.to_pylist():
        raise PlacementError(batch[row["zone"]].zone_id, row["error"])
    matrices = [_empty_matrix(request) for request in batch]
    filled = [0] * len(batch)
    for piece in cells.to_batches():
        blobs = piece.column("cells")
        for row, (zone, first, count) in enumerate(_rows(piece)):
            values = np.frombuffer(blobs[row].as_buffer(), dtype="<i4")
            target = matrices[zone][first : first + count]
            if values.size != target.size:
                raise JobFailedError(f"zone {batch[zone].zone_id}: {values.size} cells for {target.size}")
            target[...] = values.reshape(target.shape)
            filled[zone] += count
    for request, matrix, rows in zip(batch, matrices, filled, strict=True):
        if matrix.size and rows != len(matrix):
            raise JobFailedError(f"zone {request.zone_id}: {rows} of {len(matrix)} partitions came back")
    return [_result(problem, matrix, Engine.SPARK) for problem, matrix in zip(batch, matrices, strict=True)]


def place_locally(batch: Sequence[PlacementRequest]) -> list[PlacementResult]:
    """The same kernel in this process. Raises PlacementError naming the first zone that cannot be placed."""
    dictionaries = _dictionaries(batch)
    results = []
    for request, plan in zip(batch, balanced_plans(batch), strict=True):
        try:
            if plan is not None:
                from rebalance.kernels.balanced import settle

                matrix = settle(plan)
            else:
                matrix = place_hashed(dictionaries[request.nodes], range(request.partitions), request.replicas)
        except ValueError as error:
            raise PlacementError(request.zone_id, str(error)) from error
        results.append(_result(request, matrix, Engine.LOCAL))
    return results


def balanced_plans(batch: Sequence[PlacementRequest]) -> list[BalancedPlan | None]:
    """The plans of the balanced zones, None for others: one after the other, for each takes the ceilings of the
    others into account. Raises PlacementError."""
    plans: list[BalancedPlan | None] = [None] * len(batch)
    if all(request.algorithm != BALANCED for request in batch):
        return plans
    # Compiled kernels are loaded where somebody asks for them.
    from rebalance.kernels.balanced import Placed, PlacementProblem, plan

    surplus: dict[str, npt.NDArray[np.float64]] = {}
    for at, request in enumerate(batch):
        if request.algorithm != BALANCED:
            continue
        before = request.previous
        elsewhere = np.zeros((3, len(request.nodes))) if request.elsewhere is None else request.elsewhere.copy()
        for column, node in enumerate(request.nodes):
            elsewhere[:, column] += surplus.get(node, 0.0)
        problem = PlacementProblem(
            request.nodes,
            request.partitions,
            request.replicas,
            request.consensus,
            None if before is None else Placed(before.nodes, before.matrix, before.consensus),
            request.weights,
            request.domains,
            elsewhere,
        )
        try:
            made = plan(problem)
        except ValueError as error:
            raise PlacementError(request.zone_id, str(error)) from error
        plans[at] = made
        for column, node in enumerate(request.nodes):
            surplus[node] = surplus.get(node, np.zeros(3)) + made.surplus()[:, column]
    return plans


def _dictionaries(batch: Sequence[PlacementRequest]) -> dict[tuple[str, ...], NodeDictionary]:
    """One per distinct set of nodes: zones mostly share them."""
    known: dict[tuple[str, ...], NodeDictionary] = {}
    for request in batch:
        if request.algorithm not in ALGORITHMS:
            known_ones = " and ".join(map(repr, ALGORITHMS))
            reason = f"there is no kernel for the algorithm {request.algorithm!r}; there are {known_ones}"
            raise PlacementError(request.zone_id, reason)
        if not 0 <= request.partitions <= PARTITIONS_MAX:
            raise PlacementError(
                request.zone_id, f"{request.partitions} partitions; 0..{PARTITIONS_MAX} are possible"
            )
        if not -1 - PARTITIONS_MAX <= request.replicas <= PARTITIONS_MAX:
            raise PlacementError(
                request.zone_id, f"{request.replicas} replicas; at most {PARTITIONS_MAX} are possible"
            )
        if request.nodes not in known:
            try:
                known[request.nodes] = node_dictionary(request.nodes)
            except ValueError as error:
                raise PlacementError(request.zone_id, str(error)) from error
    return known


def _rows(piece: pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
    """Zone, first partition and count of each range."""
    columns = (piece.column(name).to_numpy().tolist() for name in ("zone", "first", "count"))
    return zip(*columns, strict=True)


def _empty_matrix(request: PlacementRequest) -> npt.NDArray[np.int32]:
    try:
        width = effective_replicas(len(request.nodes), request.replicas)
    except ValueError as error:
        raise PlacementError(request.zone_id, str(error)) from error
    return np.empty((request.partitions, width), dtype=np.int32)


def _bytes(values: npt.NDArray[np.int32]) -> bytes:
    return values.astype("<i4", copy=False).tobytes()


def _result(request: PlacementRequest, matrix: npt.NDArray[np.int32], engine: Engine) -> PlacementResult:
    consensus = voters(request.consensus, matrix.shape[1])
    surplus = None
    if request.algorithm == BALANCED and matrix.size:
        from rebalance.kernels.balanced import Placed, surplus_of

        surplus = surplus_of(Placed(request.nodes, matrix, consensus), request.weights, request.domains)
    return PlacementResult(request.zone_id, request.nodes, matrix, consensus, engine, surplus)
