"""The networks that other tests cut and slow."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.fixtures.cut_networks import HERE, CutNetworks, cut_networks, interfaces, missing
from tests.fixtures.needs import need

PORT = 7_000
ANSWER_S = 30.0
SILENCE_S = 0.5
ROOT = Path(__file__).parents[2]
MB = 1 << 20
HOLDER = """
import time
from tests.fixtures.cut_networks import cut_networks
with cut_networks("a"):
    print("open", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def networks() -> Iterator[CutNetworks]:
    need(missing())
    with cut_networks("a", "b") as opened:
        yield opened


def listener(networks: CutNetworks, site: str) -> socket.socket:
    server = networks.socket(site)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((networks.address(site), PORT))
    server.listen()
    return server


def connects(networks: CutNetworks, source: str, destination: str) -> bool:
    with closing(networks.socket(source)) as client:
        client.settimeout(SILENCE_S)
        try:
            client.connect((networks.address(destination), PORT))
        except TimeoutError:
            return False
        return True


def datagrams(networks: CutNetworks, site: str) -> socket.socket:
    end = networks.socket(site, socket.SOCK_DGRAM)
    end.bind((networks.address(site), PORT))
    end.settimeout(ANSWER_S)
    return end


def test_a_link_is_cut_in_one_direction(networks: CutNetworks) -> None:
    """Lose silently what is sent against the cut; the other direction and other sites go on."""
    with closing(datagrams(networks, "a")) as a, closing(datagrams(networks, "b")) as b:
        address_a, address_b = ((networks.address(site), PORT) for site in ("a", "b"))
        networks.cut("a", "b", one_way=True)
        a.sendto(b"lost", address_b)
        b.sendto(b"back", address_a)
        assert a.recv(100) == b"back"
        networks.heal()
        a.sendto(b"healed", address_b)
        assert b.recv(100) == b"healed"
    with closing(listener(networks, "a")), closing(listener(networks, "b")):
        networks.cut("a", "b", one_way=True)
        assert not connects(networks, "a", "b")
        assert not connects(networks, "b", "a")
        assert connects(networks, HERE, "a")
        assert connects(networks, HERE, "b")
        networks.heal()
        assert connects(networks, "a", "b")
        assert connects(networks, "b", "a")


def test_a_connection_hangs_while_its_link_is_cut(networks: CutNetworks) -> None:
    """Hold a connection up while its link is cut both ways: it is not closed, and goes on afterwards."""
    with closing(listener(networks, "b")) as server, closing(networks.socket("a")) as client:
        client.connect((networks.address("b"), PORT))
        accepted, _ = server.accept()
        with closing(accepted):
            networks.cut("a", "b")
            client.send(b"late")
            accepted.settimeout(SILENCE_S)
            with pytest.raises(TimeoutError):
                accepted.recv(100)
            networks.heal()
            accepted.settimeout(ANSWER_S)
            assert accepted.recv(100) == b"late"


def transfer_s(networks: CutNetworks, source: str, destination: str, size: int) -> float:
    """Seconds until ``destination`` has ``size`` bytes."""

    def send() -> None:
        with closing(networks.socket(source)) as client:
            client.connect((networks.address(destination), PORT))
            client.sendall(bytes(size))

    with closing(listener(networks, destination)) as server:
        begun = time.monotonic()
        sender = threading.Thread(target=send)
        sender.start()
        accepted, _ = server.accept()
        with closing(accepted):
            left = size
            while left:
                left -= len(accepted.recv(MB))
        sender.join()
        return time.monotonic() - begun


@pytest.mark.parametrize("destination", ["", "b"], ids=["cable", "pair"])
def test_a_slow_link_passes_its_rate_and_no_more(networks: CutNetworks, destination: str) -> None:
    """Limit the rate of a site's cable or of one pair's link; of a pair, one direction and other sites stay
    fast."""
    networks.slow("a", destination, rate=4 * MB, one_way=bool(destination))
    slow_s = transfer_s(networks, "a", "b", 8 * MB)
    fast_s = transfer_s(networks, "b", HERE, 8 * MB)
    back_s = transfer_s(networks, "b", "a", 8 * MB)
    print(f"8 MB: {slow_s:.2f} s slow, {fast_s:.2f} s elsewhere, {back_s:.2f} s back")
    assert slow_s > 1.6
    assert fast_s < slow_s / 2
    assert back_s < slow_s / 2 if destination else back_s > 1.6
    networks.heal()
    assert transfer_s(networks, "a", "b", 8 * MB) < slow_s / 2


def test_nothing_is_left_of_a_test_that_was_killed() -> None:
    """Neither an interface nor a network, which would hold the other end."""
    need(missing())
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        own = f"zk{process.pid}-"
        assert own in interfaces()
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + ANSWER_S
    while own in interfaces():
        assert time.monotonic() < deadline, interfaces()
        time.sleep(0.05)
