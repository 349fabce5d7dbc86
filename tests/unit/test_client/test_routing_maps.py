"""Routing maps that a client holds, and when it asks for another one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_client.servers import Network, maps_over, problem, routing
from zonekeeper_client import ClientError, ServersUnavailableError, ZoneNotFoundError
from zonekeeper_client.routing_maps import Partition, Route, RoutingMaps
from zonekeeper_client.servers import Answer

P0 = Partition(7, 0)
SAME = httpx.Response(304, headers={"Zonekeeper-Map-Version": "9"})


async def fetch(maps: RoutingMaps) -> None:
    """Fetch the map of ORDERS once more, as any call might."""
    await maps._fetching(maps._zones["ORDERS"])


async def test_calls_that_come_together_fetch_once() -> None:
    """One fetch for a hundred calls that need the first map, and one for a hundred failures."""
    network = Network(routing(1, "a"), routing(2, "b"))
    maps = maps_over(network)
    network.gate.clear()
    waiting = [asyncio.create_task(maps.of("ORDERS")) for _ in range(100)]
    await asyncio.sleep(0.01)
    network.gate.set()
    assert {held.version for held in await asyncio.gather(*waiting)} == {1}
    assert len(network.requests) == 1
    for _ in range(100):
        maps.doubt(P0)
    await maps.wait_for_change(P0, Route(("a",), 0), 2)
    assert maps.route(P0).voters == ("b",)
    assert len(network.requests) == 2
    assert network.most_at_once == 1
    await maps.close()


async def test_a_map_that_is_the_same_is_not_sent_again() -> None:
    """If-None-Match has the tag of the map that is held; a 304 makes it newer and leaves it what it was."""
    network = Network(routing(5, "a"), SAME, routing(8, "b"), routing(10, "c"))
    maps = maps_over(network)
    before = await maps.of("ORDERS")
    await fetch(maps)
    assert maps._zones["ORDERS"].map == replace(before, version=9)
    await fetch(maps)
    assert [request.headers.get("if-none-match") for request in network.requests[:2]] == [None, before.tag]
    # Of another server, whose view is older than that of the 304.
    assert maps.route(P0).voters != ("b",)
    await maps.wait_for_change(P0, Route(("a",), 0), 2)
    assert maps.route(P0).voters == ("c",)
    await maps.close()


async def test_no_server_for_a_moment_and_for_long() -> None:
    """Repeated until the time is over; the error names the last reason."""
    network = Network(httpx.ConnectError("refused"), problem(503, "METASTORE_UNAVAILABLE"), routing(1, "a"))
    maps = maps_over(network)
    assert (await maps.of("ORDERS")).routes == (Route(("a",), 0),)
    assert len(network.requests) == 3
    silent = maps_over(Network(problem(503, "METASTORE_UNAVAILABLE")), 0.2)
    with pytest.raises(ServersUnavailableError, match="ORDERS: http://one:1: METASTORE_UNAVAILABLE"):
        await silent.of("ORDERS")


async def test_a_zone_that_is_not_there() -> None:
    """Each call asks again, because the zone may be created; calls under way keep the addresses they have."""
    network = Network(problem(404, "ZONE_NOT_FOUND"), routing(3, "a"), problem(404, "ZONE_NOT_FOUND"))
    maps = maps_over(network)
    with pytest.raises(ZoneNotFoundError, match="ZONE_NOT_FOUND"):
        await maps.of("ORDERS")
    assert (await maps.of("ORDERS")).version == 3
    with pytest.raises(ZoneNotFoundError):
        await fetch(maps)
    assert maps.route(P0).voters == ("a",)
    with pytest.raises(ZoneNotFoundError):
        await maps.of("ORDERS")
    await maps.close()


PROGRAM = """
import asyncio
from tests.unit.test_client.servers import Network, maps_over, problem, routing

async def main() -> None:
    maps = maps_over(Network(problem(404, "ZONE_NOT_FOUND"), routing(3, "a")))
    try:
        await maps.of("ORDERS")
    except Exception as error:
        print(type(error).__name__)
    print((await maps.of("ORDERS")).version)
    await maps.close()

asyncio.run(main())
"""


def test_a_users_program_prints_what_it_wants_and_nothing_else() -> None:
    """Logs of the client print nothing in a program that has not configured logging."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("ZoneNotFoundError\n3\n", "")


async def test_a_zone_that_was_created_anew() -> None:
    """The same name with another id: its own addresses, and the old id's are not mixed with them."""
    maps = maps_over(Network(routing(3, "a"), routing(9, "b", zone_id=8)))
    await maps.of("ORDERS")
    await fetch(maps)
    assert (await maps.of("ORDERS")).zone_id == 8
    assert maps.route(Partition(8, 0)).voters == ("b",)
    await maps.close()


@pytest.mark.row("R8")
async def test_a_group_that_was_founded_anew_at_the_same_address() -> None:
    """R8: who waits for another route than the one that was refused goes on with the new generation."""
    network = Network(routing(3, "a"), routing(3, "a"), routing(9, "a", generation=8))
    maps = maps_over(network)
    await maps.of("ORDERS")
    assert maps.route(P0) == Route(("a",), 0)
    await maps.wait_for_change(P0, maps.route(P0), 2)
    assert maps.route(P0) == Route(("a",), 8)
    await maps.close()


async def test_a_server_that_names_no_generations() -> None:
    """One of an earlier build: members of any are taken."""
    maps = maps_over(Network(routing(3, "a", generation=None)))
    assert (await maps.of("ORDERS")).routes == (Route(("a",), None),)
    await maps.close()


async def test_a_hash_that_is_not_known() -> None:
    """The error comes before anything is sent to a group that the key may not belong to."""
    with pytest.raises(ClientError, match="the server hashes keys by md5; this client knows murmur3-32"):
        await maps_over(Network(routing(1, "a", key_hash="md5"))).of("ORDERS")


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from("abc")), min_size=1, max_size=6))
def test_the_newest_answer_is_held(answers: list[tuple[int, str]]) -> None:
    """The map held is that of the highest version seen, and the last of those, in any order of answers."""

    async def run() -> None:
        first, *later = answers
        maps = maps_over(Network(routing(first[0], first[1])))
        await maps.of("ORDERS")
        held = first
        for version, voter in later:
            zone = maps._zones["ORDERS"]
            answer = routing(version, voter)
            maps._take(zone, Answer(answer.json(), answer.headers))
            held = (version, voter) if version >= held[0] else held
            assert maps.route(P0).voters == (held[1],)
            assert zone.map is not None
            assert zone.map.version == held[0]

    asyncio.run(run())
