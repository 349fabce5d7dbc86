"""A put that its client has given up does not take the place of a later one of the same client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.e2e.installation import Installation
from zonekeeper_client import OutcomeUnknownError, ZoneClient

KEYS = [f"key-{number}" for number in range(24)]
LIMIT_S = 2.0
LAST_S = 60.0

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.thorough(
        "integration/test_write_terms has late puts at a member, simulation/test_store_hasty_clients at servers"
    ),
]


@contextmanager
def standing_still(processes: list[psutil.Process]) -> Iterator[None]:
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


async def given_up(client: ZoneClient, key: str) -> None:
    with pytest.raises(OutcomeUnknownError):
        await client.put("GIVEN", key, "A", limit_s=LIMIT_S)


@pytest.mark.slow("an installation starts, and its members stand still for some seconds")
@pytest.mark.parametrize(
    ("options", "words"),
    [("", ("etcd", "/members/")), ("STORAGE PROFILES ['bulk']", ("store serve", "--name n"))],
    ids=["etcd", "store"],
)
async def test_an_acknowledged_put_is_not_overtaken(
    installation: Installation, options: str, words: tuple[str, ...]
) -> None:
    """Suspend the processes that keep the zone, give A up after two seconds, and put B to the same key;
    resumed, they acknowledge B, and A never overtakes it."""
    await asyncio.to_thread(installation.execute, f"CREATE ZONE given (PARTITIONS 4, REPLICAS 3) {options}")
    async with ZoneClient([installation.url], time_limit_s=LAST_S, **installation.login) as client:
        await asyncio.gather(*(client.put("GIVEN", key, "before") for key in KEYS))
        with standing_still(installation.processes(*words)):
            await asyncio.gather(*(given_up(client, key) for key in KEYS))
            later = [asyncio.create_task(client.put("GIVEN", key, "B")) for key in KEYS]
            await asyncio.sleep(1.0)  # its first attempts stand beside those of A
        await asyncio.gather(*later)
        held: set[str | None] = set()
        for _ in range(10):
            held |= {found and found.value for found in [await client.get("GIVEN", key) for key in KEYS]}
            await asyncio.sleep(0.3)
    assert held == {"B"}
    await asyncio.to_thread(installation.execute, "DROP ZONE given")
