"""``zonectl controller``: the controllers alone, and how a server gets them beside its API."""

from __future__ import annotations

from contextlib import AsyncExitStack

from app.alerts.readiness_probe import controller_name
from app.bootstrap.metrics import exposition_of, measure_process
from app.bootstrap.scrape_entry import open_process
from app.bootstrap.stores import open_metastore
from app.configuration.settings import Settings
from app.configuration.spark_settings import spark_network
from app.log_levels import LogLevelFollower
from app.logs import configure, set_levels
from app.metrics.exposition import Exposition
from app.metrics.measured_placement import MeasuredPlacement
from rebalance.controllers.runtime import ControllerRuntime
from rebalance.core.keys import Keyspace
from rebalance.core.self_reports import ProcessRole
from rebalance.core.topology import HoldRule
from rebalance.core.zone_map import MAP_PERIOD_S
from rebalance.groups.serving_probe import LinearizableProbe
from rebalance.hosting.background import Background, kept
from rebalance.metastore.level_gate import within_level
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import MetastoreHistory
from spark.placement_engine import SparkPlacementEngine
from spark.supervisor import DriverConfig

GRACE_LEASES = 2
"""When most nodes disappear at once: how many leases the controllers wait for them."""


async def control(settings: Settings) -> None:
    """Until cancelled. Several may run: one leads. Raises BelowLevelError."""
    configure("controller")
    async with AsyncExitStack() as stack:
        metrics = exposition_of(ProcessRole.CONTROLLER)
        background = Background()
        measure_process(metrics, settings, background)
        metastore = open_metastore(settings, stack, metrics)
        keyspace = Keyspace(settings.metastore_prefix)
        levels = KeyspaceMirror(metastore, keyspace.log_levels)
        LogLevelFollower(levels, keyspace, set_levels)
        await stack.enter_async_context(kept(background, "log levels", levels.run))
        await open_process(
            controller_name(), ProcessRole.CONTROLLER, settings, metastore, metrics, background, stack
        )
        controllers = open_controllers(settings, metastore, stack, background, metrics)
        await within_level(metastore, keyspace, "this controller", controllers.run())


def open_controllers(
    settings: Settings,
    metastore: MetastoreHistory,
    stack: AsyncExitStack,
    background: Background,
    metrics: Exposition,
) -> ControllerRuntime:
    """Controllers with a Spark driver of their own, which starts when they lead; closed with ``stack``."""
    work, network = settings.data_dir / "spark", spark_network(settings)
    config = DriverConfig(settings.spark_master, work, network=network)
    engine = SparkPlacementEngine(config, settings.spark_wait_s, background)
    stack.push_async_callback(engine.close)
    name = controller_name()
    keyspace = Keyspace(settings.metastore_prefix)
    lease_ms = 1_000 * settings.node_lease_s
    hold = HoldRule(lease_ms, GRACE_LEASES * lease_ms)
    probe = LinearizableProbe(settings.tls)
    stack.push_async_callback(probe.close)
    runtime = ControllerRuntime(
        metastore,
        keyspace,
        MeasuredPlacement(engine, metrics),
        name,
        settings.controller_lease_s,
        hold,
        strategy=settings.rebalance_strategy,
        map_period_s=MAP_PERIOD_S,
        background=background,
        probe=probe,
        history=metastore,
        measures=metrics,
    )
    metrics.ask(runtime.measure)
    return runtime
