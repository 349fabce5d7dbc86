"""Events of a run: statements, nodes that come and go, crashes, pauses. All are drawn from the seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

from catalog.core.quorum import ALL_REPLICAS, quorum_bounds
from catalog.core.zone import EVERY_NODE, DistributionAlgorithm, Node, Zone, ZoneId, ZoneIntent
from catalog.core.zone_options import may_use
from catalog.filters.json_path import JSON_PATH
from simulator.control.planes import DataPlane
from simulator.control.processes import ControllerProcess, Environment

RACKS = 3
FILTERS = (EVERY_NODE, "$[?(@.rack != 0)]", "$[?(@.rack != 1)]", "$[?(@.rack <= 2)]", "$[?(@.rack == 2)]")
REPLICAS = (1, 2, 3, 3, 4, 5, 6, ALL_REPLICAS)
"""Four, and six or more without a QUORUM SIZE, give learners."""
NODES_WITH_ALL_REPLICAS_MAX = 7


def node_number(number: int) -> Node:
    return Node(f"n{number}", (("rack", str(number % RACKS)),), member_limit=1_000_000)


class Scenario:
    """``happen`` does one event; the kinds and their weights are the table below."""

    def __init__(
        self,
        rng: random.Random,
        environment: Environment,
        controllers: list[ControllerProcess],
        plane: DataPlane,
        nodes: int,
    ) -> None:
        self._rng = rng
        self._environment = environment
        self._controllers = controllers
        self._plane = plane
        self._first_nodes = nodes
        self._next_node = nodes
        kinds: tuple[tuple[int, str, Callable[[], Awaitable[str]]], ...] = (
            (10, "ALTER ZONE replicas", self._alter_replicas),
            (6, "ALTER ZONE quorum", self._alter_quorum),
            (6, "ALTER ZONE filter", self._alter_filter),
            (1, "ALTER ZONE name", self._rename),
            (1, "ALTER ZONE algorithm", self._alter_algorithm),
            (1, "DROP ZONE", self._drop),
            (2, "node joins", self._join),
            (2, "node leaves", self._leave),
            (4, "node crashes", self._crash_node),
            (3, "member crashes", self._crash_member),
            (3, "leader changes", self._change_leader),
            (3, "controller crashes", self._crash_controller),
            (2, "controller stops", self._stop_controller),
            (3, "controller pauses", self._pause_controller),
            (4, "agents pause", self._pause_agent),
            (2, "client is cut off", self._cut),
            (2, "metastore pauses", self._pause_store),
        )
        self._kinds = {name: happen for _, name, happen in kinds}
        self._weights = [weight for weight, _, _ in kinds]

    def create_zones(self, partitions: int, zones: int) -> None:
        share = max(partitions // zones, 1)
        for number in range(1, zones + 1):
            count = partitions - share * (zones - 1) if number == zones else share
            algorithm = self._rng.choice(tuple(DistributionAlgorithm)) if count <= 500 else None
            zone = Zone(
                ZoneId(number),
                f"Z{number}",
                partitions=max(count, 1),
                replicas=self._rng.choice((1, 3, 4)),
                quorum_size=None,
                storage_profiles=("default",),
                algorithm=algorithm or DistributionAlgorithm.RENDEZVOUS,
            )
            self._environment.catalog.execute(ZoneIntent(0, zone))

    async def happen(self) -> None:
        (kind,) = self._rng.choices(tuple(self._kinds), self._weights)
        text = await self._kinds[kind]()
        self._environment.trace.note(kind, text)

    def _zone(self) -> Zone | None:
        zones = [intent.zone for intent in self._environment.catalog.intents.values() if not intent.dropped]
        return self._rng.choice(zones) if zones else None

    async def _alter(self, change: Callable[[Zone], Zone]) -> str:
        zone = self._zone()
        if zone is None:
            return "no zone is left"
        altered = change(zone)
        self._environment.catalog.execute(ZoneIntent(0, altered))
        return (
            f"{altered.name} replicas {altered.replicas} quorum {altered.quorum_size} "
            f"filter {altered.nodes_filter} {altered.algorithm.value}"
        )

    async def _alter_replicas(self) -> str:
        replicas = self._rng.choice(REPLICAS)
        if replicas == ALL_REPLICAS and self._next_node > NODES_WITH_ALL_REPLICAS_MAX:
            replicas = 3
        return await self._alter(lambda zone: replace(zone, replicas=replicas, quorum_size=None))

    async def _alter_quorum(self) -> str:
        """Within the bounds of the zone's replicas: what they have more than voters are learners."""
        quorum = self._rng.choice((1, 2, 2, 3))

        def within_bounds(zone: Zone) -> Zone:
            lowest, highest = quorum_bounds(zone.replicas)
            return replace(zone, quorum_size=min(max(quorum, lowest), highest))

        return await self._alter(within_bounds)

    async def _alter_filter(self) -> str:
        """One that some node matches; in the end all of them live."""
        usable = [text for text in FILTERS if self._matches(text)]
        nodes_filter = self._rng.choice(usable)
        return await self._alter(lambda zone: replace(zone, nodes_filter=nodes_filter))

    def _matches(self, nodes_filter: str) -> bool:
        zone = Zone(ZoneId(0), "", 1, 1, None, ("default",), nodes_filter=nodes_filter)
        return any(may_use(zone, node_number(number), JSON_PATH) for number in range(self._first_nodes))

    async def _rename(self) -> str:
        return await self._alter(lambda zone: replace(zone, name=f"{zone.name}X"))

    async def _alter_algorithm(self) -> str:
        algorithm = self._rng.choice(tuple(DistributionAlgorithm))
        return await self._alter(
            lambda zone: replace(zone, algorithm=algorithm) if zone.partitions <= 500 else zone
        )

    async def _drop(self) -> str:
        zones = [intent.zone for intent in self._environment.catalog.intents.values() if not intent.dropped]
        if len(zones) < 2:
            return "only one zone is left"
        zone = self._rng.choice(zones)
        self._environment.catalog.execute(ZoneIntent(0, zone, dropped=True))
        return zone.name

    async def _join(self) -> str:
        if self._next_node >= 2 * self._first_nodes:
            return "enough nodes"
        node = node_number(self._next_node)
        self._next_node += 1
        self._plane.join(node)
        return node.name

    async def _leave(self) -> str:
        name = self._rng.choice(self._plane.names)
        back_s = self._rng.uniform(5.0, 40.0)
        self._plane.leave(name, back_s)
        return f"{name}, back after {back_s:.1f} s"

    async def _crash_node(self) -> str:
        name = self._rng.choice(self._plane.names)
        back_s = self._rng.choice((0.2, 3.0, 12.0, 45.0)) * self._rng.uniform(0.5, 1.5)
        self._plane.crash(name, back_s)
        return f"{name}, back after {back_s:.1f} s"

    async def _crash_member(self) -> str:
        return self._plane.crash_member(self._rng)

    async def _change_leader(self) -> str:
        return self._plane.change_leader(self._rng)

    def _controller(self) -> ControllerProcess:
        """The leader more often than not."""
        leading = [controller for controller in self._controllers if controller.leads]
        return self._rng.choice(leading if leading and self._rng.random() < 0.7 else self._controllers)

    async def _crash_controller(self) -> str:
        controller, back_s = self._controller(), self._rng.uniform(0.1, 10.0)
        controller.kill()
        controller.start_after(back_s)
        return f"{controller.name}, back after {back_s:.1f} s"

    async def _stop_controller(self) -> str:
        controller, back_s = self._controller(), self._rng.uniform(0.1, 10.0)
        await controller.stop()
        controller.start_after(back_s)
        return f"{controller.name}, back after {back_s:.1f} s"

    async def _pause_controller(self) -> str:
        controller, pause_s = self._controller(), self._rng.choice((0.5, 4.0, 12.0, 30.0))
        controller.freeze_for(pause_s)
        return f"{controller.name} for {pause_s} s"

    async def _pause_agent(self) -> str:
        """The agent stands still, its members go on; what it was about to write comes late."""
        process, pause_s = self._rng.choice(self._plane.processes), self._rng.choice((0.5, 2.0, 12.0))
        process.freeze_for(pause_s)
        return f"{process.name} for {pause_s} s"

    async def _cut(self) -> str:
        processes = [*self._controllers, *self._plane.processes]
        process, cut_s = self._rng.choice(processes), self._rng.uniform(1.0, 15.0)
        process.cut_for(cut_s)
        return f"{process.name} for {cut_s:.1f} s"

    async def _pause_store(self) -> str:
        pause_s = self._rng.choice((0.3, 2.0, 9.0))
        self._environment.store.pause()
        asyncio.get_running_loop().call_later(pause_s, self._environment.store.resume)
        return f"for {pause_s} s"
