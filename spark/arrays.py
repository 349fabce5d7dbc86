"""Arrays as one binary cell of an Arrow table: numpy's ``npz``, without pickles.

A balanced placement is such a cell: names travel once a node, the previous matrix as it is, and there is no
Python object per replica.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt


def pack(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(blob: bytes) -> dict[str, npt.NDArray[Any]]:
    with np.load(io.BytesIO(blob), allow_pickle=False) as arrays:
        return dict(arrays)


if TYPE_CHECKING:
    from rebalance.kernels.balanced import PlacementProblem


def encode_problem(problem: PlacementProblem) -> bytes:
    arrays = {
        "nodes": np.array(problem.nodes, dtype=np.str_),
        "sizes": np.array([problem.partitions, problem.replicas, problem.voters], dtype=np.int64),
        "weights": np.array(problem.weights, dtype=np.float64),
        "domains": np.array(problem.domains, dtype=np.str_),
    }
    if problem.elsewhere is not None:
        arrays["elsewhere"] = problem.elsewhere
    if problem.previous is not None:
        arrays["previous_nodes"] = np.array(problem.previous.nodes, dtype=np.str_)
        arrays["previous_matrix"] = problem.previous.matrix
        arrays["previous_voters"] = np.array(problem.previous.voters, dtype=np.int64)
    return pack(arrays)


def decode_problem(blob: bytes) -> PlacementProblem:
    from rebalance.kernels.balanced import Placed, PlacementProblem

    arrays = unpack(blob)
    partitions, replicas, voters = arrays["sizes"].tolist()
    previous = None
    if "previous_matrix" in arrays:
        nodes = tuple(arrays["previous_nodes"].tolist())
        previous = Placed(nodes, arrays["previous_matrix"], int(arrays["previous_voters"]))
    return PlacementProblem(
        tuple(arrays["nodes"].tolist()),
        partitions,
        replicas,
        voters,
        previous,
        tuple(arrays["weights"].tolist()),
        tuple(arrays["domains"].tolist()),
        arrays.get("elsewhere"),
    )
