"""A whole installation under test: ``zonectl up`` on a directory of its own, as a user runs it."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from app.security.local_authority import LocalAuthority
from rebalance.hosting.tls import TlsFiles
from tests.fixtures.local_access import WITHOUT_TLS as WITHOUT_TLS
from tests.fixtures.local_access import ClientLogin, LocalAccess
from tests.fixtures.ports import UP_PORTS
from tests.fixtures.warm_zonectl import warm_zonectl

MARK = "LC_ZK_TEST_MARK"
"""Variable that marks the family, as every child inherits it; no program knows this one."""
ANSWER_S = 60.0
"""Seconds for one request: far more than a server may take by itself, also on a machine that is busy."""
WAIT_S = 240.0
"""Seconds for what an idle machine does within a few."""
PAUSES_S = (0.1, 0.5)
PUT_PAUSE_S = 0.03
"""Seconds between a writer's puts; without a pause it takes a whole processor from what is tested."""
SPARK = "spark"
WITH_SPARK = pytest.mark.parametrize("installation", [SPARK], indirect=True)
"""Installation with Spark, for tests that show it: a JVM takes as long as a whole installation without one."""
ZONECTL = (sys.executable, "-m", "app.cli")


def wait_for(
    what: str, condition: Callable[[], Any], timeout_s: float = WAIT_S, pause_s: float | None = None
) -> Any:
    """The first true answer of ``condition``; fails naming ``what`` when the time is over. A server that is
    away, or has not read its stores yet (503), is asked again. ``pause_s``: between two answers; None: a tenth
    of what was waited so far, within ``PAUSES_S``, for what stays once it is so."""
    begun = time.monotonic()
    deadline = begun + timeout_s
    while True:
        try:
            found = condition()
        except httpx.TransportError:
            found = None
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                raise
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(_next_pause_s(time.monotonic() - begun) if pause_s is None else pause_s)


def _next_pause_s(waited_s: float) -> float:
    shortest_s, longest_s = PAUSES_S
    return min(max(waited_s / 10, shortest_s), longest_s)


def without_spark(directory: Path) -> dict[str, str]:
    """Variables of an environment without Spark: placement is the kernel's own, no JVM is started and none is
    waited for."""
    return {"ZONEKEEPER_SPARK_WAIT_S": "0", "JAVA_HOME": str(directory / "no-java")}


class Installation:
    """``start`` may be called again after a kill: the directory is what counts. ``command``: the `zonectl` that
    is run, which may be that of another build the next time."""

    def __init__(
        self,
        directory: Path,
        nodes: int = 3,
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        command: Sequence[str] = ZONECTL,
    ) -> None:
        self.directory = directory
        self.nodes = nodes
        self.environment = dict(environment or {})
        self.options = options
        self.command = command
        self.mark = uuid.uuid4().hex
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Returns after the API answers and all nodes live: the seconds to the API."""
        served = self.launch()
        wait_for("nodes", self.is_whole)
        return served

    def start_diverged(self) -> None:
        """Returns when all nodes live and the stores were found not to belong together."""
        self.launch()
        wait_for("divergence", lambda: "diverged" in self._readiness().json()["metastore"])
        wait_for("nodes", lambda: self._readiness().json()["nodes"] >= self.nodes)

    def launch(self) -> float:
        """Returns when the API answers, whether nodes live or not: the seconds."""
        begun = time.monotonic()
        (self.directory / "run.json").unlink(missing_ok=True)
        self.directory.mkdir(exist_ok=True)
        with (self.directory.parent / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *self.command,
                    "up",
                    *(self.options or ("--nodes", str(self.nodes))),
                    "--data-dir",
                    str(self.directory),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, **UP_PORTS, **self.environment, MARK: self.mark},
                start_new_session=True,
            )
        wait_for("run.json", lambda: (self.directory / "run.json").exists(), pause_s=0.02)
        wait_for("the API", lambda: self.get("/healthz")["status"] == "ok", pause_s=0.02)
        return time.monotonic() - begun

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def is_whole(self) -> bool:
        response = self._readiness()
        return response.status_code == 200 and response.json()["nodes"] >= self.nodes

    def _readiness(self) -> httpx.Response:
        return self.request("GET", "/readyz")

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        timeout_s: float = ANSWER_S,
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Logged in where that is needed; ``body`` is sent as JSON."""
        access = self.access
        return httpx.request(
            method,
            f"{access.url}{path}",
            json=body,
            params=params,
            headers={**access.headers, **(headers or {})},
            timeout=timeout_s,
            verify=access.verify,
        )

    @property
    def access(self) -> LocalAccess:
        """Access to the API of the process that runs now."""
        return LocalAccess.of(self.directory)

    @property
    def login(self) -> ClientLogin:
        """Login of clients of the Python library."""
        return self.access.login

    @property
    def tls(self) -> TlsFiles | None:
        """Certificates that etcd, members and store servers require; None: they require none."""
        return LocalAuthority.of_machines(self.directory).files

    @property
    def machines(self) -> ssl.SSLContext | bool:
        """The same, for ``verify`` of a request to a member's address."""
        return WITHOUT_TLS if self.tls is None else self.tls.context()

    @property
    def of_services(self) -> dict[str, str]:
        """Settings of a further process of the installation, which reaches etcd and members."""
        names = ("ca", "certificate", "key")
        tls = {f"ZONEKEEPER_TLS_{name.upper()}": str(getattr(self.tls, name)) for name in names}
        return {**tls, "ZONEKEEPER_METASTORE_TLS": "true"} if self.tls is not None else {}

    @property
    def url(self) -> str:
        return self.access.url

    def get(self, path: str) -> Any:
        response = self.request("GET", path)
        response.raise_for_status()
        return response.json()

    def sql(self, text: str) -> Any:
        response = self.request("POST", "/api/v1/statements", {"sql": text}, 2 * ANSWER_S)
        assert response.status_code == 200, response.text
        return response.json()["results"]

    def partitions(self, zone: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/api/v1/zones/{zone}/partitions")["partitions"]
        return found

    def converged(self, result: dict[str, Any]) -> bool:
        progress = self.get(f"/api/v1/progress/{result['zone_id']}?version={result['catalog_version']}")
        return bool(progress["state"] == "CONVERGED")

    def execute(self, text: str, timeout_s: float = 120) -> None:
        """Run statements and wait until each has converged."""
        for result in self.sql(text):
            if result["applied"]:
                wait_for(f"convergence of {text}", lambda result=result: self.converged(result), timeout_s)

    def zonectl(self, *arguments: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        return warm_zonectl().run(arguments, self.of_commands, timeout_s)

    @contextmanager
    def zonectl_beside(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Goes on for the length of the block, with its output in pipes."""
        pipe = subprocess.PIPE
        command = [*ZONECTL, *arguments]
        with subprocess.Popen(command, env=self.of_commands, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    @property
    def of_commands(self) -> dict[str, str]:
        """The environment in which `zonectl` finds it, and logs in."""
        access = self.access
        given = {"ZONEKEEPER_URL": access.url, MARK: self.mark, "COLUMNS": "160"}
        return {**os.environ, **access.settings, **given}

    def processes(self, *words: str) -> list[psutil.Process]:
        """Ours that live, whose command line has all ``words``. A process that was forked and is not yet what
        it is to be has its parent's line: it does not count beside the parent."""
        found: dict[int, tuple[str, int, psutil.Process]] = {}
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) != self.mark or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                line, parent = " ".join(process.cmdline()), process.ppid()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if all(word in line for word in words):
                found[process.pid] = line, parent, process
        return [
            process
            for line, parent, process in found.values()
            if parent not in found or found[parent][0] != line
        ]

    def kill_up(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def assert_nothing_is_left(self) -> None:
        wait_for("the end of all processes", lambda: not self.processes())

    def stop(self) -> int:
        """Ctrl-C; returns the exit code of ``up``."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(120)
        self.assert_nothing_is_left()
        return code


@dataclass
class Writer:
    """Puts keys one after the other, each with a value of its own, and remembers what was acknowledged. With
    ``reads`` it gets each of them, too. ``longest_stall_s``: of a put and its get."""

    installation: Installation
    zone: str
    reads: bool = False
    acknowledged: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    longest_stall_s: float = 0.0
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with self.installation.access.client(ANSWER_S) as client:
            number = 0
            while not self.stopped.is_set():
                key, value = f"written-{number}", uuid.uuid4().hex
                begun = time.monotonic()
                try:
                    response = client.put(f"/api/v1/zones/{self.zone}/kv/{key}", json={"value": value})
                    if response.status_code == 200:
                        self.acknowledged[key] = value
                        if self.reads:
                            response = client.get(f"/api/v1/zones/{self.zone}/kv/{key}")
                    if response.status_code != 200 or response.json().get("value", value) != value:
                        self.errors.append(response.text)
                except httpx.TransportError as error:
                    self.errors.append(repr(error))
                self.longest_stall_s = max(self.longest_stall_s, time.monotonic() - begun)
                number += 1
                self.stopped.wait(PUT_PAUSE_S)

    def read_back(self) -> None:
        """Every acknowledged put is there with its value."""
        assert self.acknowledged
        with self.installation.access.client(ANSWER_S) as client:
            for key, value in self.acknowledged.items():
                response = client.get(f"/api/v1/zones/{self.zone}/kv/{key}")
                assert response.status_code == 200, f"{key}: {response.text}"
                assert response.json()["value"] == value, key


@contextmanager
def writing(installation: Installation, zone: str, *, reads: bool = False) -> Iterator[Writer]:
    """A writer in a thread for the length of the block."""
    writer = Writer(installation, zone, reads)
    thread = threading.Thread(target=writer.run, name="writer")
    thread.start()
    try:
        yield writer
    finally:
        writer.stopped.set()
        thread.join(2 * ANSWER_S)
