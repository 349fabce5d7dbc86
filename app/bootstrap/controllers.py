"""``zonectl controller``: the controllers alone, and how a server gets them beside its API."""

from __future__ import annotations

from contextlib import AsyncExitStack

from app.alerts.readiness_probe import controller_name
from app.bootstrap.composition import ProcessFrame
from app.bootstrap.scrape_entry import open_process
from app.configuration.settings import Settings
from app.configuration.spark_settings import spark_network
from app.metrics.measured_placement import MeasuredPlacement
from app.process.logs import configure
from rebalance.controllers.runtime import ControllerRules, ControllerRuntime, OptionalDuties
from rebalance.core.keyspace.records import ProcessRole
from rebalance.core.partition_maps.partition_map import MAP_PERIOD_S
from rebalance.core.topology.node_presence import HoldRule
from rebalance.groups.calls.group_checks import LinearizableProbe
from rebalance.metastore.level_gate import within_level
from spark.placement_engine import SparkPlacementEngine
from spark.supervisor import DriverConfig

GRACE_LEASES = 2
"""Number of leases for which controllers wait when most nodes disappear at once."""


async def control(settings: Settings) -> None:
    """Run the controllers until cancelled. Several processes may run them: one leads. Raises
    BelowLevelError."""
    configure("controller")
    async with AsyncExitStack() as stack:
        frame = ProcessFrame.open(settings, stack, ProcessRole.CONTROLLER)
        await open_process(frame, controller_name(), ProcessRole.CONTROLLER)
        await within_level(frame.metastore, frame.keyspace, "this controller", open_controllers(frame).run())


def open_controllers(frame: ProcessFrame) -> ControllerRuntime:
    """Controllers with a Spark driver of their own, which starts when they lead; closed with the frame."""
    settings, metrics = frame.settings, frame.metrics
    work, network = settings.data_dir / "spark", spark_network(settings)
    config = DriverConfig(settings.spark_master, work, network=network)
    engine = frame.closing(SparkPlacementEngine(config, settings.spark_wait_s, frame.background))
    probe = frame.closing(LinearizableProbe(settings.tls))
    lease_ms = 1_000 * settings.node_lease_s
    rules = ControllerRules(
        controller_name(),
        settings.controller_lease_s,
        HoldRule(lease_ms, GRACE_LEASES * lease_ms),
        settings.rebalance_strategy,
    )
    runtime = ControllerRuntime(
        frame.metastore,
        frame.keyspace,
        MeasuredPlacement(engine, metrics),
        rules,
        OptionalDuties(MAP_PERIOD_S, probe, history=frame.metastore),
        background=frame.background,
        measures=metrics,
    )
    metrics.ask(runtime.measure)
    return runtime
