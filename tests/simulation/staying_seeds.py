"""Seeds whose faults stay: those that end, and those that must once moves go on without what is gone."""

from __future__ import annotations

from rebalance.simulation.run import Simulation
from tests.simulation.joiner_cells import MOVES_END


def staying(seed: int, *kinds: str) -> Simulation:
    return Simulation(seed, nodes=5, partitions=4, events=8, staying=kinds)


ENDS = (*(staying(seed) for seed in range(20, 27)), staying(1, "node is gone"))
"""Every kind of fault is among them."""

MUST_END = {
    staying(0, "node is gone"): "pending waits for a joiner that never returns",
    staying(2, "node is gone"): "a learner that never returns stays in the list",
}
"""With why they do not yet; ``MOVES_END`` turns them on."""

__all__ = ["ENDS", "MOVES_END", "MUST_END", "staying"]
