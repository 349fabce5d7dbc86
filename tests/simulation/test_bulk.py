"""Nodes and groups as arrays do what agents do: the same statements give the same keys."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.zone import DistributionAlgorithm, Zone, ZoneId, ZoneIntent
from rebalance.core.keyspace.keys import Keyspace
from simulator.control.bulk import BulkPlane
from simulator.control.invariants import Auditor, unfinished
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.planes import AgentPlane
from simulator.control.processes import NO_FAULTS, ControllerProcess, Environment, SimulatedCatalog
from simulator.control.run import silent_logs
from simulator.control.scenario import FILTERS, node_number
from simulator.control.simulated_cluster import GroupRates, SimulatedCluster
from simulator.control.virtual_time import Trace, run_virtually

NODES = 5
Wanted = tuple[int, str, DistributionAlgorithm]
Written = tuple[bytes, int]
"""A key's value and how often it was written."""


async def stable_keys(statements: list[Wanted], *, bulk: bool, directory: Path) -> list[dict[str, Written]]:
    """Stable of every partition after each of ``statements``, each waited for; no faults."""
    store, keyspace, trace = MemoryMetastore(), Keyspace(), Trace()
    auditor = Auditor(store, keyspace, trace)
    rates = GroupRates(lost_call=0.0, late_call=0.0, lost_answer=0.0)
    catalog, cluster = SimulatedCatalog(), SimulatedCluster("equal", rates, auditor)
    environment = Environment("equal", store, keyspace, catalog, cluster, trace, directory, NO_FAULTS, 0.0)
    nodes = [node_number(number) for number in range(NODES)]
    plane = (BulkPlane if bulk else AgentPlane)(environment, nodes)
    auditor.configurations = plane
    await asyncio.sleep(5.0)  # every node is registered: both forms begin with the same data nodes
    controller = ControllerProcess("controller", environment)
    controller.start()
    seen = []
    for replicas, nodes_filter, algorithm in statements:
        zone = Zone(ZoneId(1), "Z", 6, replicas, None, ("default",))
        altered = replace(zone, nodes_filter=nodes_filter, algorithm=algorithm)
        catalog.execute(ZoneIntent(0, altered))
        async with asyncio.timeout(300):
            while any(unfinished(store, keyspace, auditor, plane, catalog.intents.values(), plane.living())):
                await asyncio.sleep(0.5)
        items = store.range_now(keyspace.partitions).items
        seen.append({each.key: (each.value, each.version) for each in items if each.key.endswith("/stable")})
    assert not auditor.broken.done()
    plane.end()
    for process in (controller, *plane.processes):
        process.kill()
    return seen


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((1, 3, 4, 5)), st.sampled_from(FILTERS), st.sampled_from(DistributionAlgorithm)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_arrays_and_agents_write_the_same_keys(statements: list[Wanted]) -> None:
    """Values of stable and how often it was written, after each statement."""
    with silent_logs(), tempfile.TemporaryDirectory() as directory:
        forms = [
            run_virtually(stable_keys(statements, bulk=bulk, directory=Path(directory) / str(bulk)))
            for bulk in (False, True)
        ]
    assert forms[0] == forms[1]
    assert len(forms[0][-1]) == 6
