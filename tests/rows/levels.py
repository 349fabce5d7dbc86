"""Levels at which a row is shown, decided by what its test runs.

- ``process``: what ``zonectl`` runs (``PROCESSES``): servers, members of groups, store servers, Spark.
- ``core``: shipped code in the test's process, one decision or a whole controller; at most its metastore or its
  database is a server.
- ``model``: something simulated or written again (``MODELS``), whatever shipped code it calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.rows.reach import Name

LEVELS = ("process", "core", "model")
"""The best first."""

PROCESSES: dict[Name, str] = {
    ("tests", "Installation"): "all of it: zonectl up",
    ("tests", "CutInstallation"): "all of it, each process in a network of its own",
    ("tests", "ApiServer"): "the server: zonectl serve",
    ("tests", "StoreProcesses"): "store servers: zonectl store serve",
    ("app", "zonectl"): "any command of zonectl, as a process",
    ("rebalance.groups", "EtcdGroupHost"): "an agent's members, as etcd processes",
    ("rebalance.groups", "EtcdMirrorHost"): "an agent's mirrors, as etcd processes",
    ("rebalance.store", "StoreRuntime"): "a store server on its own disk and port",
    ("spark", "SparkPlacementEngine"): "the controller's placement, with a Spark driver process",
}
"""Package -> name in it, by which a test runs it; with what that is."""

MODELS = ("simulator", "tests.model")
"""Packages of what is simulated or written again."""

BORROWED = (
    "simulator.control.memory_metastore",
    "simulator.control.virtual_time",
    "simulator.control.invariants",
    "simulator.control.moves",
    "tests.model.world",
)
"""Their modules that tests of shipped code use: a metastore, a clock, judges of what happened, and the table of
shipped decisions."""


def level_of(reached: Iterable[Name]) -> str:
    """The level of a test that reaches these names."""
    names = frozenset(reached)
    if processes_in(names):
        return "process"
    modules = {module for module, _ in names} - set(BORROWED)
    return "model" if any(_is_within(module, MODELS) for module in modules) else "core"


def processes_in(reached: Iterable[Name]) -> frozenset[Name]:
    """The entries of ``PROCESSES`` among ``reached``."""
    return frozenset(
        (package, name)
        for module, name in reached
        for package, process in PROCESSES
        if name == process and _is_within(module, [package])
    )


def _is_within(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)
