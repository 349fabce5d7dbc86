"""Timers of data nodes against a script, over a metastore, with a clock that the script moves."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from catalog.core.zone import EVERY_NODE, TIMER_OFF
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.topology.node_presence import NO_HOLD, HoldRule
from simulator.control.memory_metastore import MemoryMetastore
from tests.datadriven.runner import Block, run_script
from tests.fixtures.timer_world import ZONE, TimerWorld


def seconds(text: str) -> int:
    return TIMER_OFF if text == "off" else int(text)


class Play:
    """``new`` begins a world; every other command goes on in it, at the second ``at``."""

    def __init__(self) -> None:
        self.world = TimerWorld(MemoryMetastore(), Keyspace())

    async def execute(self, block: Block) -> str:
        arguments = dict(block.arguments)
        if block.command == "new":
            await self._new(arguments)
        else:
            await self.world.advance(float(arguments.pop("at")))
            answer = await getattr(self, f"_{block.command}")(arguments)
            if answer is not None:
                return str(answer)
        return await self._seen()

    async def _seen(self) -> str:
        if self.world.controller is None:
            return f"{await self.world.nodes()} nobody leads"
        due_ms = self.world.next_due_ms()
        due = "never" if due_ms is None else f"{due_ms / 1_000:g}"
        return f"{await self.world.nodes()} next={due}"

    async def _new(self, arguments: dict[str, str]) -> None:
        hold = NO_HOLD
        if "hold" in arguments:
            hold = HoldRule(*(1_000 * int(each) for each in arguments["hold"].split(",")))
        self.world = TimerWorld(MemoryMetastore(), Keyspace(), hold)
        for each in filter(None, arguments.get("nodes", "").split(",")):
            name, _, region = each.partition(":")
            await self.world.join(name, **({"region": region} if region else {}))
        await self.world.start()
        up, down = seconds(arguments.get("up", "0")), seconds(arguments.get("down", "off"))
        nodes_filter = arguments.get("filter", EVERY_NODE)
        profiles = tuple(arguments.get("profiles", "default").split("+"))
        zone = replace(
            ZONE, auto_scale_up=up, auto_scale_down=down, nodes_filter=nodes_filter, storage_profiles=profiles
        )
        await self.world.publish(zone)

    async def _join(self, arguments: dict[str, str]) -> None:
        name = arguments.pop("node")
        await self.world.join(name, **arguments)

    async def _leave(self, arguments: dict[str, str]) -> None:
        await self.world.leave(*arguments["node"].split(","))

    async def _look(self, _: dict[str, str]) -> None:
        return None

    async def _alter(self, arguments: dict[str, str]) -> None:
        names = {"up": "auto_scale_up", "down": "auto_scale_down"}
        changed: dict[str, object] = {
            names[name]: seconds(text) for name, text in arguments.items() if name in names
        }
        if "filter" in arguments:
            changed["nodes_filter"] = arguments["filter"]
        await self.world.alter(**changed)

    async def _kill(self, _: dict[str, str]) -> None:
        self.world.kill()

    async def _start(self, _: dict[str, str]) -> None:
        await self.world.start()

    async def _history(self, arguments: dict[str, str]) -> str:
        history, _ = await self.world.history_key()
        nodes = history.at_time(round(1_000 * float(arguments["of"])))
        return "unknown" if nodes is None else ",".join(nodes) or "-"

    async def _node(self, arguments: dict[str, str]) -> str:
        nodes = (await self.world.topology()).nodes
        (found,) = (each for each in nodes if each.node.name == arguments["name"])
        return f"{dict(found.node.attributes)} joined={found.joined_ms} left={found.left_ms}"


@pytest.mark.row("IEP-039", "IEP-045", "IEP-052")
def test_script() -> None:
    """IEP-039, IEP-045, IEP-052, and the scenarios that the script names."""
    play = Play()
    with asyncio.Runner() as runner:
        run_script("data_nodes.txt", lambda block: runner.run(play.execute(block)))
