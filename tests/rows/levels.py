"""How a row is shown, and what a test has to run for that.

- ``service``: the test runs the shipped agent, server, controller or command line (``SHIPPED``), as processes
  or put together in one; the network, disk and clock behind the ports may be simulated.
- ``core``: it calls shipped code that decides or computes, without what runs it.
- ``model``: it runs what no process of the product runs (``MODELS``): models, and the simulated
  stealing.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.rows.reach import Name

LEVELS = ("service", "core", "model")
"""The best first."""

SHIPPED: dict[Name, str] = {
    ("tests", "Installation"): "all of it, as processes: zonectl up",
    ("tests", "CutInstallation"): "all of it, each process in a network of its own",
    ("tests", "ApiServer"): "the server, as a process: zonectl serve",
    ("app.cli", "main"): "zonectl, as a process or in the test's",
    ("app", "zonectl"): "zonectl, as a process",
    ("app", "build_app"): "the server, in the test's process",
    ("app", "SqlEngine"): "the server's SQL, over its catalog and keyspace",
    ("catalog", "CatalogService"): "the server's catalog, over its SQL database",
    ("rebalance.nodes", "NodeAgent"): "the agent, in the test's process",
    ("rebalance.groups", "EtcdGroupHost"): "the agent's members, as etcd processes",
    ("rebalance.groups", "EtcdMirrorHost"): "the agent's mirrors, as etcd processes",
    ("rebalance.controllers", "ControllerRuntime"): "the controller, in the test's process",
    ("rebalance.controllers", "ZoneController"): "the controller's work on a zone, over a metastore",
    ("rebalance.controllers", "TopologyKeeper"): "the controller's topology, over a metastore",
    ("rebalance.controllers", "OutboxRelay"): "the controller's relay, over a catalog and a metastore",
    ("rebalance.controllers", "PartitionMapKeeper"): "the controller's partition maps, over a metastore",
    ("rebalance.controllers", "StoreGuard"): "the controller's comparison of the stores, over both",
    ("spark", "SparkPlacementEngine"): "the controller's placement, with a Spark driver process",
    ("tests", "StoreProcesses"): "store servers, as processes: zonectl store serve",
    ("rebalance.store", "StoreRuntime"): "the store server, in the test's process",
    ("simulator.store", "StoreProcess"): "store servers, over simulated disks, clocks and network",
    ("simulator.store", "StoreRun"): "the same, under faults that a seed draws",
    ("simulator.control", "simulate"): "controllers and agents, in one process and in virtual time",
    ("simulator.control", "AgentPlane"): "agents, in one process and in virtual time",
}
"""Package -> name in it, by which a test runs it; with what that is."""

PROCESSES: frozenset[Name] = frozenset(
    {
        ("tests", "Installation"),
        ("tests", "CutInstallation"),
        ("tests", "ApiServer"),
        ("tests", "StoreProcesses"),
        ("app", "zonectl"),
    }
)
"""Those of ``SHIPPED`` that run as processes of their own."""

MODELS = (
    "tests.model.protocol",
    "tests.model.fencing",
    "tests.model.test_",
    "simulator.stealing",
    "simulator.stealing.simulation",
    "simulator.stealing.core.vector_clock",
    "simulator.control.simulated",
)
"""How names of modules begin that no agent, server or controller runs."""


def level_of(reached: Iterable[Name]) -> str:
    """The best that a test may claim that reaches these names."""
    names = frozenset(reached)
    if shipped_in(names):
        return "service"
    return "model" if any(module.startswith(MODELS) for module, _ in names) else "core"


def shipped_in(reached: Iterable[Name]) -> frozenset[Name]:
    """The entries of ``SHIPPED`` among ``reached``."""
    return frozenset(
        (package, name)
        for module, name in reached
        for package, shipped in SHIPPED
        if name == shipped and f"{module}.".startswith(f"{package}.") and not module.startswith(MODELS)
    )
