"""Seeds whose faults stay: every kind of fault, each of them alone, and a thousand."""

from __future__ import annotations

from dataclasses import replace

from simulator.control.run import Simulation


def staying(seed: int, *kinds: str) -> Simulation:
    return Simulation(seed, nodes=5, partitions=4, events=8, staying=kinds)


ENDS = (staying(0, "node is gone"), staying(1, "node is gone"))
"""The kind that lasts by itself."""

HELD = replace(staying(39, "node is gone"), strict_share=1.0)
"""A voter that never returns stays wanted: etcd admits no joiner beside it."""

REMOVED = replace(HELD, seed=38)
"""The voter that never returns was removed, its successor never returns either, and the move goes back."""

SLICE = range(500, 516)
"""Seeds out of the thousand of ``make soak``; every kind of fault is among them."""
