"""``docs/several-machines.md``, followed from its first command to its last one, on hosts of their own."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import pytest

from rebalance.hosting.tls import TlsFiles
from tests.e2e.installation import wait_for
from tests.fixtures.cut_networks import HERE, missing
from tests.fixtures.databases import new_postgres
from tests.fixtures.machines import Machines, machines
from tests.fixtures.needs import need
from zonekeeper_client import BlockingZoneClient, Mode

pytestmark = [
    pytest.mark.timeout(1_200),
    pytest.mark.thorough("processes are killed and certificates replaced on one machine, one by one"),
]

HOSTS = ("a", "b", "c")
OWN, EACH = "your own machine", "each host"
START_S = 240.0
PASSWORD = "correct horse battery staple"


@dataclass
class Load:
    """Puts and gets one after the other until it is stopped; what went wrong, and the longest that one took."""

    failures: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    longest_s: float = 0.0
    number: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self, client: BlockingZoneClient) -> None:
        while not self.is_over.is_set():
            self.number += 1
            key, value, begun = f"k{self.number % 40}", f"value {self.number}", time.monotonic()
            try:
                client.put("orders", key, value)
                self.written[key] = value
                held = client.get("orders", key)
                assert held is not None
                assert held.value == value
            except Exception as error:
                self.failures.append(f"{key}: {error!r}")
            self.longest_s = max(self.longest_s, time.monotonic() - begun)
            self.is_over.wait(0.02)


@contextmanager
def loaded(client: BlockingZoneClient) -> Iterator[Load]:
    load = Load()
    thread = threading.Thread(target=load.run, args=(client,))
    thread.start()
    try:
        yield load
    finally:
        load.is_over.set()
        thread.join()


@pytest.fixture(scope="module")
def whole(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Machines as the page's first parts leave them."""
    need(missing())
    database = new_postgres(postgres_server)
    with machines(tmp_path_factory.mktemp("machines"), database) as hosts:
        (hosts.home(HERE) / "password").write_text(PASSWORD)
        hosts.follow("Certificates", OWN)
        for host in HOSTS:
            certify(hosts, host)
            hosts.follow("Settings", EACH, host)
        for host in HOSTS:
            hosts.start("Services", "etcd", host)
        hosts.follow("Services", "a", "a")
        for service in hosts.services_of("Services")[1:]:
            for host in HOSTS:
                hosts.start("Services", service, host)
        wait_until_ready(hosts)
        yield hosts


def certify(hosts: Machines, host: str) -> None:
    """Copy to the host what the page says to copy."""
    own = hosts.home(HERE)
    for source, target in (("ca.pem", "ca.pem"), (f"{host}.pem", "host.pem"), (f"{host}.key", "host.key")):
        (hosts.home(host) / target).write_bytes((own / source).read_bytes())
    (hosts.home(host) / "catalog-password").write_text("not asked for")
    (hosts.home(host) / "password").write_text(PASSWORD)
    for name in ("host.key", "catalog-password", "password"):
        (hosts.home(host) / name).chmod(0o600)


def wait_until_ready(hosts: Machines, names: Sequence[str] = HOSTS) -> None:
    """All servers take statements, and all nodes live."""
    authority = ssl.create_default_context(cafile=hosts.home(HERE) / "ca.pem")
    for host in names:
        with httpx.Client(base_url=hosts.url(host), verify=authority, trust_env=False, timeout=10) as client:
            wait_for(f"the server of {host}", lambda client=client: is_ready(client), START_S)


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def live_nodes(hosts: Machines) -> set[str]:
    status = json.loads(hosts.run(HERE, "zonectl status --format json"))
    return {node["name"] for node in status["nodes"] if node["alive"]}


def client_of(hosts: Machines) -> BlockingZoneClient:
    """Client with a certificate of the authority, and with the login of the user who followed the page."""
    own = hosts.home(HERE)
    contexts = json.loads((own / ".config" / "zonekeeper" / "contexts.json").read_text())
    return BlockingZoneClient(
        [hosts.url(host) for host in HOSTS],
        mode=Mode.DIRECT,
        tls=TlsFiles(own / "ca.pem", own / "a.pem", own / "a.key"),
        token=contexts["contexts"][contexts["current"]]["token"],
        authority=(own / "ca.pem").read_text(),
    )


@pytest.mark.slow("twelve processes on four hosts are started, and all restarted one after the other")
def test_each_host_is_restarted_under_load(whole: Machines) -> None:
    """Restart each host without an error at its client: a zone of three replicas has two of them all the
    time."""
    whole.follow("First zone", OWN)
    assert whole.run(HERE, "zonectl kv get orders first") == "value\n"
    with client_of(whole) as client, loaded(client) as load:
        for host in HOSTS:
            whole.follow("Rolling restart", OWN, instead={"can-stop a": f"can-stop {host}"})
            for service in ("node", "controller", "server"):
                whole.end(host, service)
                whole.start("Services", service, host)
            wait_until_ready(whole)
        whole.follow("Rolling restart", OWN)
    assert load.failures == []
    print(f"{load.number} puts and gets, the longest of {load.longest_s:.2f} s")
    check(whole, load)


@pytest.mark.slow("replicas are made anew, and two hosts are restarted")
def test_a_host_that_is_lost_for_good_is_replaced(whole: Machines) -> None:
    heading = "A host is lost for good"
    with client_of(whole) as client, loaded(client) as load:
        whole.lose("c")
        whole.follow(heading, "a", "a")
        whole.follow(heading, OWN, only=0)
        certify(whole, "d")
        whole.follow("Settings", EACH, "d")
        for host in ("a", "b", "d"):
            whole.follow(heading, "each host that is left", host)
        whole.start(heading, "etcd", "d", place="d")
        for service in ("server", "controller", "node"):
            whole.start("Services", service, "d")
        wait_until_ready(whole, ("a", "b", "d"))
        wait_for("the end of c's lease", lambda: "c" not in live_nodes(whole), START_S)
        whole.follow(heading, OWN, only=1)
        for host in ("a", "b"):
            whole.follow("Rolling restart", OWN, instead={"can-stop a": f"can-stop {host}"})
            for service in ("node", "controller", "server"):
                whole.end(host, service)
                whole.start("Services", service, host)
            wait_until_ready(whole, ("a", "b", "d"))
    print(f"{load.number} puts and gets, {len(load.failures)} failures, the longest of {load.longest_s:.2f} s")
    check(whole, load)
    status = json.loads(whole.run(HERE, "zonectl status --format json"))
    assert {node["name"]: node["members"] for node in status["nodes"]} == {"a": 4, "b": 4, "d": 4}
    whole.run(HERE, "zonectl verify orders")

    whole.bring_back("c")
    before = whole.log("c", "node").read_text()
    whole.start("Services", "node", "c")
    refusal = "is the directory that node c had before it was removed for good"
    shown = wait_for("c's refusal", lambda: refused_since(before, whole.log("c", "node"), refusal), START_S)
    whole.end("c", "node")
    assert "member process started" not in shown
    assert "c" not in live_nodes(whole)


def refused_since(before: str, log: Path, refusal: str) -> str:
    """Part of the log that was added since, once the refusal is in it; until then empty."""
    shown = log.read_text().removeprefix(before)
    return shown if refusal in shown else ""


@pytest.mark.slow("processes look at their certificates every few seconds")
def test_certificates_are_replaced_under_load(whole: Machines) -> None:
    """Replace certificates while clients work: the API and etcd show the new ones, and no client gets an
    error."""
    with client_of(whole) as client, loaded(client) as load:
        whole.follow("Certificates are replaced", OWN)
        for host in ("a", "b"):
            certify(whole, host)
            for port in (7443, 2379):
                wait_for(
                    f"the certificate of {host}:{port}", partial(shows_its_own, whole, host, port), START_S
                )
    assert load.failures == []
    check(whole, load)


def shows_its_own(hosts: Machines, host: str, port: int) -> bool:
    """True if the port shows the certificate that is in the host's directory."""
    own = hosts.home(HERE)
    context = ssl.create_default_context(cafile=own / "ca.pem")
    context.load_cert_chain(own / "a.pem", own / "a.key")
    address = hosts.networks.address(host)
    with (
        socket.create_connection((address, port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=address) as secure,
    ):
        own_certificate = ssl.PEM_cert_to_DER_cert((hosts.home(host) / "host.pem").read_text())
        return secure.getpeercert(binary_form=True) == own_certificate


def check(hosts: Machines, load: Load) -> None:
    """Check that acknowledged values are there, read in another way."""
    assert load.written
    for key, value in list(load.written.items())[:5]:
        assert hosts.run(HERE, f"zonectl kv get orders {key}") == f"{value}\n"
