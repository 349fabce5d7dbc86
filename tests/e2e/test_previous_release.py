"""``zonectl up`` on the data directory of the previous release, and that release on it again: keys of both
engines, users and tokens are there each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.cli.exits import ExitCode
from tests.e2e.installation import ANSWER_S, Installation, wait_for, without_spark
from tests.fixtures.previous_build import PRESENT, Build, missing_history
from zonekeeper_client import BlockingZoneClient, Mode

pytestmark = pytest.mark.timeout(900)

USER, PASSWORD = "alice", "correct horse battery staple"
ZONES = ("GROUPED", "STORED")
"""One of each engine."""
CREATED = """
    CREATE ZONE grouped (PARTITIONS 2, REPLICAS 3);
    CREATE ZONE stored (PARTITIONS 4, REPLICAS 3) STORAGE PROFILES ['bulk']
"""
MADE_USER = f"CREATE USER {USER} PASSWORD '{PASSWORD}'; GRANT SEE, READ, WRITE ON ZONE grouped TO {USER}"
KEYS = 20


class Directory:
    """One data directory, which builds take turns at, and all that was ever written in it."""

    def __init__(self, directory: Path) -> None:
        self.whole = Installation(directory / "data", environment=without_spark(directory))
        self.tokens: list[str] = []
        self._written: dict[tuple[str, str], str] = {}

    def run(self, build: Build) -> None:
        """Run the build's ``up`` in place of the one before, which is stopped as by Ctrl-C; check that each
        process is of that build."""
        if self.whole.is_running():
            assert self.whole.stop() == ExitCode.INTERRUPTED
        self.whole.command = build.zonectl
        self.whole.start()
        processes = self.whole.processes("-m", "app.")
        assert len(processes) > self.whole.nodes
        assert build.foreign(processes) == []

    def write(self, turn: str) -> None:
        """Some keys of each zone for the first time, and all others anew; a token of the user."""
        with BlockingZoneClient([self.whole.url], **self.whole.login) as client:
            for zone in ZONES:
                for number in range(KEYS):
                    self._written[zone, f"{turn}-{number}"] = ""
            for zone, key in self._written:
                self._written[zone, key] = f"{key} by {turn}"
                client.put(zone, key, self._written[zone, key])
        with self._user() as user:
            made = user.post("/api/v1/tokens", json={}).raise_for_status()
        self.tokens.append(made.json()["secret"])

    def check(self) -> None:
        """Every key through the server and straight from its members; user and tokens as before."""
        wait_for("every replica", self._is_converged)
        servers = [self.whole.url]
        with (
            BlockingZoneClient(servers, **self.whole.login) as routed,
            BlockingZoneClient(servers, mode=Mode.DIRECT, tls=self.whole.tls, **self.whole.login) as direct,
        ):
            for (zone, key), value in self._written.items():
                found = [client.get(zone, key) for client in (routed, direct)]
                assert [each and each.value for each in found] == [value, value], (zone, key)
        with self._user() as user:
            assert user.get("/api/v1/whoami").raise_for_status().json()["name"] == USER
            assert len(user.get("/api/v1/tokens").raise_for_status().json()["tokens"]) == len(self.tokens)
            assert user.get("/api/v1/zones/STORED").status_code in (403, 404)
        with self._user("another password") as stranger:
            assert stranger.get("/api/v1/whoami").status_code == httpx.codes.UNAUTHORIZED
        for token in self.tokens:
            with self._client(headers={"Authorization": f"Bearer {token}"}) as user:
                answer = user.get(f"/api/v1/zones/GROUPED/kv/{self._first('GROUPED')}").raise_for_status()
                assert answer.json()["value"] == self._written["GROUPED", self._first("GROUPED")]

    def alter(self, replicas: int) -> None:
        """Alter both zones, until the last data is moved."""
        for zone in ZONES:
            self.whole.execute(f"ALTER ZONE {zone} SET (REPLICAS {replicas})")

    def _is_converged(self) -> bool:
        states = {each["status"]["state"] for zone in ZONES for each in self.whole.partitions(zone)}
        return states == {"DONE"}

    def _first(self, zone: str) -> str:
        return next(key for of, key in self._written if of == zone)

    def _user(self, password: str = PASSWORD) -> httpx.Client:
        return self._client(auth=(USER, password))

    def _client(self, **login: object) -> httpx.Client:
        access = self.whole.access
        return httpx.Client(
            base_url=access.url, verify=access.verify, trust_env=False, timeout=ANSWER_S, **login
        )


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path)
    yield directory
    if directory.whole.is_running():
        directory.whole.stop()


def filled(directory: Directory, build: Build) -> None:
    directory.run(build)
    directory.whole.execute(CREATED)
    directory.whole.sql(MADE_USER)
    directory.write(build.name)
    directory.check()


@pytest.mark.thorough("golden records of each release are read in unit tests")
@pytest.mark.slow("an installation starts, and another one on its directory")
@pytest.mark.skipif(missing_history() != "", reason=missing_history() or "the previous release is there")
def test_its_data_directory_is_taken_over(directory: Directory, previous_build: Build) -> None:
    filled(directory, previous_build)
    directory.run(PRESENT)
    directory.check()
    directory.write("present")
    directory.check()


@pytest.mark.long
@pytest.mark.slow("four installations start, one after the other, and data is moved in each")
def test_builds_take_turns_at_a_data_directory(directory: Directory, previous_build: Build) -> None:
    """Each finds what the other has written and moved, and goes on with it."""
    filled(directory, previous_build)
    for turn, build in enumerate((PRESENT, previous_build, PRESENT)):
        directory.run(build)
        directory.check()
        directory.alter(2 + turn % 2)
        directory.write(f"{build.name}-{turn}")
        directory.check()
